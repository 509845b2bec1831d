# terraform-aws-modules/terraform-aws-vpc v6.6.0 82d1929e669efef4e2ad00611b8a68e7a56e049c

module "this" {
  source                  = "./module"
  name                    = "acme"
  cidr                    = "10.0.0.0/16"
  azs                     = ["eu-central-1a", "eu-central-1b"]
  private_subnets         = ["10.0.1.0/24", "10.0.2.0/24"]
  public_subnets          = ["10.0.11.0/24", "10.0.12.0/24"]
  database_subnets        = ["10.0.21.0/24", "10.0.22.0/24"]
  enable_nat_gateway      = true
  single_nat_gateway      = true
  map_public_ip_on_launch = var.changed
}
