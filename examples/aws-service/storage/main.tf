# A private, encrypted, versioned bucket.

terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = var.tags
  }
}

variable "name" {
  type        = string
  description = "The install's name; the bucket's name begins with it."
}

variable "region" {
  type        = string
  description = "The AWS region."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags for every resource."
}

resource "aws_s3_bucket" "results" {
  # Bucket names are global, so AWS adds a unique suffix. A prefix has at most 37
  # characters.
  bucket_prefix = "${substr(var.name, 0, 36)}-"
}

resource "aws_s3_bucket_public_access_block" "results" {
  bucket = aws_s3_bucket.results.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "results" {
  bucket = aws_s3_bucket.results.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "results" {
  bucket = aws_s3_bucket.results.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_versioning" "results" {
  bucket = aws_s3_bucket.results.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "results" {
  bucket = aws_s3_bucket.results.id

  rule {
    id     = "old-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = 30
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  # Rules for versions need versioning to be enabled first.
  depends_on = [aws_s3_bucket_versioning.results]
}

data "aws_iam_policy_document" "tls_only" {
  statement {
    sid     = "DenyWithoutTLS"
    effect  = "Deny"
    actions = ["s3:*"]

    resources = [
      aws_s3_bucket.results.arn,
      "${aws_s3_bucket.results.arn}/*",
    ]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "results" {
  bucket = aws_s3_bucket.results.id
  policy = data.aws_iam_policy_document.tls_only.json

  # S3 refuses two concurrent changes of a bucket's access.
  depends_on = [aws_s3_bucket_public_access_block.results]
}

output "name" {
  value       = aws_s3_bucket.results.bucket
  description = "The bucket's name."
}

output "arn" {
  value       = aws_s3_bucket.results.arn
  description = "The bucket's ARN."
}
