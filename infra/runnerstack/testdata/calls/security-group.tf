# terraform-aws-modules/terraform-aws-security-group v5.3.1 3cf4e1a48a4649179e8ea27308daf0b551cb0bfa

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

module "this" {
  source              = "./module"
  name                = "acme-web"
  use_name_prefix     = false
  vpc_id              = aws_vpc.this.id
  ingress_cidr_blocks = ["10.0.0.0/16"]
  ingress_rules       = var.changed ? ["https-443-tcp", "http-80-tcp"] : ["https-443-tcp"]
  egress_rules        = ["all-all"]
  ingress_with_self   = [{ rule = "all-all" }]
}
