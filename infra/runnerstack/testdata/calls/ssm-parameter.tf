# terraform-aws-modules/terraform-aws-ssm-parameter v2.1.1 abb960488d6a8df74cec298e4b3b287235ac1bda

module "this" {
  source = "./module"
  name   = "/acme/endpoint"
  value  = var.changed ? "https://example.com/2" : "https://example.com/1"
  type   = "String"
}
