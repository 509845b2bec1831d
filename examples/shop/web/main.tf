# The web server, which depends on all other components. The apply writes a receipt to the
# disk of the runner's machine. The receipt proves that the apply ran there. The destroy
# removes the receipt.

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
  description = "The number of web servers."

  validation {
    condition     = var.replicas >= 1 && var.replicas <= 20 && floor(var.replicas) == var.replicas
    error_message = "Set 1 to 20 replicas."
  }
}

variable "public" {
  type        = bool
  description = "Whether the web server is reachable from the internet."
}

variable "backends" {
  type = object({
    database = string
    cache    = string
  })
  sensitive   = true
  description = "The URLs of the database, with its password, and of the cache."
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
    backends = sha256(jsonencode(var.backends)) # the digest changes with the secret without showing it
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
  description = "The shop's URL."
}

output "replicas" {
  value       = [for replica in terraform_data.replica : replica.output.name]
  description = "The names of the web servers."
}

output "receipt" {
  value       = one(terraform_data.receipt[*].triggers_replace.file)
  description = "The receipt that the apply wrote, or null."
}
