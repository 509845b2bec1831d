variable "name" {
  type        = string
  description = "The install's name; the names of all resources begin with it."

  validation {
    condition     = length(var.name) <= 40
    error_message = "Use at most 40 characters: role names have at most 64 and add a suffix."
  }
}

variable "region" {
  type        = string
  description = "The AWS region."
}

variable "vpc_id" {
  type        = string
  description = "The VPC to run in."
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of that VPC."

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "Give at least one subnet."
  }
}

variable "assign_public_ip" {
  type        = bool
  default     = false
  description = "Whether tasks get a public address."
}

variable "image" {
  type        = string
  description = "The container image."
}

variable "desired_count" {
  type        = number
  default     = 1
  description = "The number of tasks."
}

variable "wait" {
  type        = bool
  default     = true
  description = "Whether the apply waits until the tasks run."
}

variable "cpu" {
  type        = number
  default     = 256
  description = "CPU units of one task."
}

variable "memory" {
  type        = number
  default     = 512
  description = "MiB of memory of one task."
}

variable "environment" {
  type        = map(string)
  default     = {}
  description = "Further environment variables of the container. Not for secrets."
}

variable "role_path" {
  type        = string
  default     = "/"
  description = "The path of the roles."
}

variable "permissions_boundary" {
  type        = string
  default     = ""
  description = "ARN of the permissions boundary of the roles; empty: no boundary."
}

variable "queue" {
  type = object({
    url = string
    arn = string
  })
  description = "The queue that the service processes."
}

variable "bucket" {
  type = object({
    name = string
    arn  = string
  })
  description = "The bucket that the service writes to."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags for every resource."
}
