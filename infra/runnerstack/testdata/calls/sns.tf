# terraform-aws-modules/terraform-aws-sns v7.1.0 84b777952d08caa7ce06a4ef53aafdcc03cfc165

module "this" {
  source       = "./module"
  name         = "acme-events"
  display_name = var.changed ? "Events of Acme" : "Events"
  subscriptions = {
    jobs = { protocol = "sqs", endpoint = "arn:aws:sqs:eu-central-1:111122223333:acme-jobs" }
  }
}
