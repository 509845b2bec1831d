# Stands for a real database: built-in resources only, nothing to download.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  type        = string
  description = "Name of the database."
}

resource "terraform_data" "database" {
  input = var.name
}

output "url" {
  value       = "db://${terraform_data.database.output}"
  description = "Where the database is."
}
