variable "host" {
  type = string
}

resource "terraform_data" "url" {
  input = "https://${var.host}/"
}

output "url" {
  value = terraform_data.url.output
}
