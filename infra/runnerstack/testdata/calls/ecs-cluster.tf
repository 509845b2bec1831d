# terraform-aws-modules/terraform-aws-ecs v6.12.0 3363797525c9f3cf46f32427e67e753fcaba376c

module "this" {
  source                                  = "./module/modules/cluster"
  name                                    = "acme"
  setting                                 = [{ name = "containerInsights", value = var.changed ? "enabled" : "disabled" }]
  cloudwatch_log_group_name               = "/acme/ecs"
  create_task_exec_iam_role               = true
  create_task_exec_policy                 = false # the module's policy has no path, and a role of the stack may make policies only below role_path
  task_exec_iam_role_path                 = var.role_path
  task_exec_iam_role_permissions_boundary = var.permissions_boundary
}
