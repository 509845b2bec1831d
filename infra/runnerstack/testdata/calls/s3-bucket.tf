# terraform-aws-modules/terraform-aws-s3-bucket v5.10.0 b040965a526e22a78784840c2f2ae384f2a8e4ef

module "this" {
  source        = "./module"
  bucket        = "acme-app-data"
  force_destroy = true

  versioning                            = { enabled = var.changed }
  attach_policy                         = true
  policy                                = jsonencode({ Version = "2012-10-17", Statement = [{ Effect = "Allow", Principal = { AWS = "arn:aws:iam::111122223333:root" }, Action = "s3:GetObject", Resource = "arn:aws:s3:::acme-app-data/*" }] })
  attach_deny_insecure_transport_policy = true
  server_side_encryption_configuration  = { rule = { apply_server_side_encryption_by_default = { sse_algorithm = "AES256" } } }
  cors_rule                             = [{ allowed_methods = ["GET"], allowed_origins = ["https://example.com"] }]
  lifecycle_rule                        = [{ id = "old", enabled = true, filter = { prefix = "old/" }, expiration = { days = 30 } }]
}
