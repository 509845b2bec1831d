# terraform-aws-modules/terraform-aws-ecr v3.2.0 b6ef04d088cf91d5ba9505132e9ff7c9f847ed5d

module "this" {
  source                          = "./module"
  repository_name                 = "acme-web"
  repository_image_tag_mutability = var.changed ? "IMMUTABLE" : "MUTABLE"
  repository_force_delete         = true
  repository_lifecycle_policy     = jsonencode({ rules = [{ rulePriority = 1, selection = { tagStatus = "untagged", countType = "imageCountMoreThan", countNumber = 3 }, action = { type = "expire" } }] })
}
