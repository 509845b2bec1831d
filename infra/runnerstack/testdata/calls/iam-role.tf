# terraform-aws-modules/terraform-aws-iam v6.5.0 981121bcd17618b8ed032223c0d9e647b9277ef9

module "this" {
  source               = "./module/modules/iam-role"
  name                 = "acme-web"
  use_name_prefix      = false
  path                 = var.role_path
  permissions_boundary = var.permissions_boundary
  description          = var.changed ? "role of the web server" : "role"
  trust_policy_permissions = {
    ec2 = { actions = ["sts:AssumeRole"], principals = [{ type = "Service", identifiers = ["ec2.amazonaws.com"] }] }
  }
  policies                  = { ssm = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore" }
  create_inline_policy      = true
  inline_policy_permissions = { read = { actions = ["s3:GetObject"], resources = ["arn:aws:s3:::acme-app-data/*"] } }
  create_instance_profile   = true
}
