# terraform-aws-modules/terraform-aws-dynamodb-table v5.5.0 45c9cb10c2f6209e7362bba92cadd5ab3c9e2003

module "this" {
  source                         = "./module"
  name                           = "acme-orders"
  hash_key                       = "id"
  attributes                     = [{ name = "id", type = "S" }]
  ttl_enabled                    = var.changed
  ttl_attribute_name             = "expires"
  point_in_time_recovery_enabled = true
}
