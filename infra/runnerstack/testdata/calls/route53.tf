# terraform-aws-modules/terraform-aws-route53 v5.0.0 f56825af8cb08bec2478e2f62b678e51986c1531

module "this" {
  source = "./module/modules/zones"
  zones  = { "acme.example.com" = { comment = var.changed ? "zone of the app" : "zone", force_destroy = true } }
}
