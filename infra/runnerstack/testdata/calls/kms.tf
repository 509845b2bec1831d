# terraform-aws-modules/terraform-aws-kms v4.2.0 407e3db34a65b384c20ef718f55d9ceacb97a846

module "this" {
  source                  = "./module"
  description             = var.changed ? "data of the app" : "data"
  aliases                 = ["acme/data"]
  deletion_window_in_days = 7
  enable_key_rotation     = true
  key_administrators      = ["arn:aws:iam::111122223333:root"]
}
