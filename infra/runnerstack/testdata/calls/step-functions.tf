# terraform-aws-modules/terraform-aws-step-functions v5.0.2 c22ca4bb301aab75257a898810c02b632ccba48a

module "this" {
  source                            = "./module"
  name                              = "acme-orders"
  role_path                         = var.role_path
  role_permissions_boundary         = var.permissions_boundary
  use_existing_cloudwatch_log_group = false
  definition                        = jsonencode({ StartAt = "wait", States = { wait = { Type = "Wait", Seconds = var.changed ? 2 : 1, End = true } } })
}
