# terraform-aws-modules/terraform-aws-eventbridge v4.3.2 f9934726324c988f823682884b4fa003586a7b6f

module "this" {
  create_log_delivery_source = false
  create_log_delivery        = false
  source                     = "./module"
  bus_name                   = "acme-orders"
  role_name                  = "acme-orders-events"
  role_path                  = var.role_path
  role_permissions_boundary  = var.permissions_boundary
  attach_sqs_policy          = true
  sqs_target_arns            = ["arn:aws:sqs:eu-central-1:111122223333:acme-jobs"]
  policy_path                = var.role_path
  rules                      = { orders = { description = var.changed ? "orders of the shop" : "orders", event_pattern = jsonencode({ source = ["shop"] }), enabled = true } }
  targets                    = { orders = [{ name = "jobs", arn = "arn:aws:sqs:eu-central-1:111122223333:acme-jobs" }] }
}
