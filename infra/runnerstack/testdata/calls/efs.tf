# terraform-aws-modules/terraform-aws-efs v2.0.0 90f2acc48bae098363b39778ccd084637c349752

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

resource "aws_subnet" "this" {
  vpc_id            = aws_vpc.this.id
  cidr_block        = "10.0.0.0/24"
  availability_zone = "eu-central-1a"
}

module "this" {
  source                       = "./module"
  name                         = "acme-files"
  creation_token               = "acme-files"
  tags                         = { stage = var.changed ? "live" : "test" }
  attach_policy                = false
  create_backup_policy         = false
  mount_targets                = { a = { subnet_id = aws_subnet.this.id } }
  security_group_vpc_id        = aws_vpc.this.id
  security_group_ingress_rules = { vpc = { cidr_ipv4 = "10.0.0.0/16" } }
  access_points                = { web = { root_directory = { path = "/web" } } }
}
