# The cache, in one of the network's subnets.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  type        = string
  description = "The install's name."
}

variable "subnet" {
  type        = string
  description = "The address range of the cache's subnet."
}

resource "terraform_data" "cache" {
  input = {
    id   = "cache-${var.name}"
    host = cidrhost(var.subnet, 20)
    port = 6379
  }
}

output "host" {
  value       = terraform_data.cache.output.host
  description = "The cache's address."
}

output "port" {
  value       = terraform_data.cache.output.port
  description = "The cache's port."
}
