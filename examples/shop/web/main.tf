# The web server, which needs all the others. It writes a receipt to the disk of
# the machine that applies it, as proof that the apply really ran there; its
# destruction removes the receipt.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  type        = string
  description = "The install's name."
}

variable "version_label" {
  type        = string
  description = "The app and its version."
}

variable "replicas" {
  type        = number
  description = "How many copies run."

  validation {
    condition     = var.replicas >= 1 && var.replicas <= 20 && floor(var.replicas) == var.replicas
    error_message = "Run 1 to 20 copies."
  }
}

variable "public" {
  type        = bool
  description = "Whether it is reachable from the internet."
}

variable "backends" {
  type = object({
    database = string
    cache    = string
  })
  sensitive   = true
  description = "The urls of what it talks to; the database's holds a password."
}

variable "receipts" {
  type        = string
  default     = ""
  description = "The folder for the receipt; empty for none."
}

locals {
  url = "${var.public ? "https" : "http"}://${var.name}.${var.public ? "example.com" : "internal"}"
}

resource "terraform_data" "replica" {
  count = var.replicas

  input = {
    name     = "${var.name}-web-${count.index}"
    version  = var.version_label
    backends = sha256(jsonencode(var.backends)) # restarts on a change, shows no secret
  }
}

resource "terraform_data" "receipt" {
  count = var.receipts == "" ? 0 : 1

  triggers_replace = {
    file = "${var.receipts}/${var.name}.json"
    service = jsonencode({
      url      = local.url
      replicas = var.replicas
      version  = var.version_label
    })
  }

  provisioner "local-exec" {
    command = "mkdir -p \"$(dirname \"$FILE\")\" && printf '{\"written_at\":\"%s\",\"service\":%s}\\n' \"$(date -u +%Y-%m-%dT%H:%M:%SZ)\" \"$SERVICE\" > \"$FILE\""
    environment = {
      FILE    = self.triggers_replace.file
      SERVICE = self.triggers_replace.service
    }
  }

  provisioner "local-exec" {
    when    = destroy
    command = "rm -f \"$FILE\""
    environment = {
      FILE = self.triggers_replace.file
    }
  }

  depends_on = [terraform_data.replica]
}

output "url" {
  value       = local.url
  description = "Where the shop is."
}

output "replicas" {
  value       = [for replica in terraform_data.replica : replica.output.name]
  description = "The names of the copies."
}

output "receipt" {
  value       = one(terraform_data.receipt[*].triggers_replace.file)
  description = "The receipt that the apply wrote, or null."
}
