# terraform-aws-modules/terraform-aws-ec2-instance v6.3.0 c3ce8ee95e9d4d563feb03690a5a47758987bede

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

resource "aws_subnet" "this" {
  vpc_id            = aws_vpc.this.id
  cidr_block        = "10.0.0.0/24"
  availability_zone = "eu-central-1a"
}

module "this" {
  source                        = "./module"
  name                          = "acme-machine"
  ami                           = "ami-12c6146b"
  instance_type                 = "t3.micro"
  subnet_id                     = aws_subnet.this.id
  tags                          = { stage = var.changed ? "live" : "test" }
  create_security_group         = true
  security_group_egress_rules   = { all = { ip_protocol = "-1", cidr_ipv4 = "0.0.0.0/0" } }
  create_iam_instance_profile   = true
  iam_role_path                 = var.role_path
  iam_role_permissions_boundary = var.permissions_boundary
  iam_role_policies             = { ssm = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore" }
}
