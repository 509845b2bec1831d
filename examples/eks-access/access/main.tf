# One access entry for each AWS role of operations. It makes the role a user of the cluster with one
# group. The chart of the runner gives the groups their permissions: the value jobs.groupPrefix.

terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

variable "region" {
  type        = string
  description = "The AWS region of the cluster."
}

variable "cluster" {
  type        = string
  description = "The name of the cluster."
}

variable "roles" {
  type        = map(string)
  description = "The ARN of the AWS role of each operation."

  validation {
    condition     = length(setsubtract(keys(var.roles), ["read-only", "deploy", "provision", "deprovision"])) == 0
    error_message = "The roles are read-only, deploy, provision and deprovision."
  }
}

variable "group_prefix" {
  type        = string
  description = "How the names of the groups begin: the value jobs.groupPrefix of the chart."
}

# The entry has no access policy of EKS. Such a policy adds permissions that the chart does not limit:
# AmazonEKSClusterAdminPolicy lets a plan run programs by a read of nodes/proxy.
resource "aws_eks_access_entry" "operation" {
  for_each = var.roles

  cluster_name      = var.cluster
  principal_arn     = each.value
  kubernetes_groups = ["${var.group_prefix}-${each.key}"]
  type              = "STANDARD"
}

output "groups" {
  value = { for operation, entry in aws_eks_access_entry.operation : operation => one(entry.kubernetes_groups) }
}
