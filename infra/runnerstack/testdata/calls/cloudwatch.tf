# terraform-aws-modules/terraform-aws-cloudwatch v5.7.2 a2a5f9d15e30d0d24b667933599e5e1bef24a8b8

module "log" {
  source            = "./module/modules/log-group"
  name              = "/acme/web"
  retention_in_days = var.changed ? 30 : 14
}

module "errors" {
  source                          = "./module/modules/log-metric-filter"
  name                            = "errors"
  log_group_name                  = module.log.cloudwatch_log_group_name
  pattern                         = "ERROR"
  metric_transformation_namespace = "Acme"
  metric_transformation_name      = "Errors"
}
