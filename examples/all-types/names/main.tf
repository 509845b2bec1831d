variable "host" {
  type = string
}

locals {
  release = "1.0.0"
}

resource "terraform_data" "name" {
  input = {
    url     = "https://${var.host}/"
    release = local.release
  }
}

output "url" {
  value = terraform_data.name.output.url
}

output "release" {
  value = terraform_data.name.output.release
}
