# terraform-aws-modules/terraform-aws-alb v10.5.0 87f1c9c18408993abe951db5bf788c676abf0731

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

resource "aws_subnet" "this" {
  count             = 2
  vpc_id            = aws_vpc.this.id
  cidr_block        = "10.0.${count.index}.0/24"
  availability_zone = "eu-central-1${["a", "b"][count.index]}"
}

module "this" {
  source                       = "./module"
  name                         = "acme-web"
  vpc_id                       = aws_vpc.this.id
  subnets                      = aws_subnet.this[*].id
  internal                     = true
  enable_deletion_protection   = false
  idle_timeout                 = var.changed ? 120 : 60
  security_group_ingress_rules = { http = { from_port = 80, to_port = 80, ip_protocol = "tcp", cidr_ipv4 = "10.0.0.0/16" } }
  security_group_egress_rules  = { all = { ip_protocol = "-1", cidr_ipv4 = "10.0.0.0/16" } }
  listeners                    = { http = { port = 80, protocol = "HTTP", forward = { target_group_key = "web" } } }
  target_groups                = { web = { protocol = "HTTP", port = 80, target_type = "ip", create_attachment = false } }
}
