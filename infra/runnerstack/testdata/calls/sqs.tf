# terraform-aws-modules/terraform-aws-sqs v5.2.1 cc15171d03a9635784bea6aa6d456556d5cce739

module "this" {
  source                     = "./module"
  name                       = "acme-jobs"
  create_dlq                 = true
  create_queue_policy        = true
  queue_policy_statements    = { account = { actions = ["sqs:SendMessage"], principals = [{ type = "AWS", identifiers = ["arn:aws:iam::111122223333:root"] }] } }
  visibility_timeout_seconds = var.changed ? 60 : 30
}
