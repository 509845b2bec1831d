variable "issuer" { type = string }
variable "keys" { type = any }
variable "endpoint" { type = string }
variable "ca" { type = string }
variable "plan_role" { type = string }
variable "job_role" { type = string }

resource "terraform_data" "cluster" {
  input = "1.0.0"
}

output "issuer" { value = var.issuer }
output "keys" { value = var.keys }
output "endpoint" { value = var.endpoint }
output "ca" { value = var.ca }
output "plan_role" { value = var.plan_role }
output "job_role" { value = var.job_role }
output "release" { value = terraform_data.cluster.output }
