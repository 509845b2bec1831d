# The database. Its password is a sensitive variable. The output url is sensitive, because
# it contains the password.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  type        = string
  description = "The install's name."
}

variable "subnets" {
  type        = map(string)
  description = "The address range of each zone's subnet."
}

variable "password" {
  type        = string
  sensitive   = true
  description = "The password of the database's owner."

  validation {
    condition     = length(var.password) >= 8
    error_message = "The password needs at least 8 characters."
  }
}

locals {
  # Host number 10 in the subnet of the first zone.
  host = cidrhost(var.subnets[sort(keys(var.subnets))[0]], 10)
}

resource "terraform_data" "database" {
  input = {
    engine = "postgres"
    host   = local.host
    port   = 5432
    name   = replace(var.name, "-", "_")
    zones  = sort(keys(var.subnets))
  }

  # A changed password replaces the database. The digest shows that the password changed
  # and does not reveal it.
  triggers_replace = [sha256(var.password)]
}

output "host" {
  value       = terraform_data.database.output.host
  description = "The database's address."
}

output "url" {
  value       = "postgres://shop:${urlencode(var.password)}@${terraform_data.database.output.host}:${terraform_data.database.output.port}/${terraform_data.database.output.name}"
  sensitive   = true
  description = "The URL for connections, with the password."
}
