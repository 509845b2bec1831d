# The smallest component: built-in resources only, nothing to download.

terraform {
  required_version = ">= 1.4"
}

variable "text" {
  type        = string
  description = "What to say."
}

resource "terraform_data" "greeting" {
  input = var.text
}

output "text" {
  value       = terraform_data.greeting.output
  description = "What was said."
}
