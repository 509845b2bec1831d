# The smallest component: it uses only built-in resources and downloads nothing.

terraform {
  required_version = ">= 1.4"
}

variable "text" {
  type        = string
  description = "The text of the greeting."
}

resource "terraform_data" "greeting" {
  input = var.text
}

output "text" {
  value       = terraform_data.greeting.output
  description = "The greeting."
}
