# The network, with one subnet for each zone. It simulates a VPC and needs no cloud.

terraform {
  required_version = ">= 1.4"
}

variable "name" {
  type        = string
  description = "The install's name."
}

variable "zones" {
  type        = list(string)
  description = "The zones of the network."

  validation {
    condition     = length(var.zones) > 0 && length(var.zones) <= 16 && length(distinct(var.zones)) == length(var.zones)
    error_message = "Give 1 to 16 different zones."
  }
}

locals {
  cidr        = "10.20.0.0/16"
  subnet_list = [for i, zone in var.zones : { zone = zone, cidr = cidrsubnet(local.cidr, 4, i) }]
}

resource "terraform_data" "network" {
  input = {
    id   = "net-${var.name}"
    cidr = local.cidr
  }
}

resource "terraform_data" "subnet" {
  for_each = { for subnet in local.subnet_list : subnet.zone => subnet }

  input = {
    network = terraform_data.network.output.id
    zone    = each.key
    cidr    = each.value.cidr
  }
}

output "id" {
  value       = terraform_data.network.output.id
  description = "The network's identifier."
}

output "subnets" {
  value       = { for zone, subnet in terraform_data.subnet : zone => subnet.output.cidr }
  description = "The address range of each zone's subnet."
}

output "subnet_list" {
  value       = [for zone in var.zones : terraform_data.subnet[zone].output.cidr]
  description = "The address ranges of the subnets, in the order of the zones."
}
