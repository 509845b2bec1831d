# terraform-aws-modules/terraform-aws-autoscaling v9.2.1 29629cd207703b3c4c784e9d7d8f1e130773edab

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

resource "aws_subnet" "this" {
  vpc_id            = aws_vpc.this.id
  cidr_block        = "10.0.0.0/24"
  availability_zone = "eu-central-1a"
}

module "this" {
  source                          = "./module"
  name                            = "acme-web"
  use_name_prefix                 = false
  launch_template_use_name_prefix = false
  vpc_zone_identifier             = [aws_subnet.this.id]
  min_size                        = 0
  max_size                        = var.changed ? 2 : 1
  desired_capacity                = 0
  wait_for_capacity_timeout       = 0
  image_id                        = "ami-12c6146b"
  instance_type                   = "t3.micro"
  create_iam_instance_profile     = true
  iam_role_name                   = "acme-web-machines"
  iam_role_use_name_prefix        = false
  iam_role_path                   = var.role_path
  iam_role_permissions_boundary   = var.permissions_boundary
  iam_role_policies               = { ssm = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore" }
}
