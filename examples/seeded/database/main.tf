# Simulates a database: it uses only built-in resources and downloads nothing.

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
  description = "The database's URL."
}
