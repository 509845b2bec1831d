# A work queue, and a dead-letter queue for messages that failed five times.

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
  description = "The install's name; the names of the queues begin with it."
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

resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.name}-dead-letters"
  message_retention_seconds = 1209600 # 14 days, the most that SQS keeps
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue" "work" {
  name                       = "${var.name}-work"
  message_retention_seconds  = 345600 # 4 days
  visibility_timeout_seconds = 300
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = 5
  })
}

# Only the work queue may use the dead-letter queue.
resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.work.arn]
  })
}

data "aws_iam_policy_document" "tls_only" {
  for_each = {
    work         = aws_sqs_queue.work
    dead_letters = aws_sqs_queue.dead_letters
  }

  statement {
    sid       = "DenyWithoutTLS"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [each.value.arn]

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

resource "aws_sqs_queue_policy" "work" {
  queue_url = aws_sqs_queue.work.id
  policy    = data.aws_iam_policy_document.tls_only["work"].json
}

resource "aws_sqs_queue_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id
  policy    = data.aws_iam_policy_document.tls_only["dead_letters"].json
}

output "url" {
  value       = aws_sqs_queue.work.url
  description = "The queue's URL."
}

output "arn" {
  value       = aws_sqs_queue.work.arn
  description = "The queue's ARN."
}

output "dead_letters_url" {
  value       = aws_sqs_queue.dead_letters.url
  description = "The URL of the queue for messages that failed five times."
}
