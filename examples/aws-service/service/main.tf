# The container on ECS Fargate: it receives messages from the queue and writes to the
# bucket. It accepts no connections.

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

resource "aws_ecs_cluster" "this" {
  name = var.name

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/fairlead/${var.name}/service"
  retention_in_days = 30
}

resource "aws_security_group" "this" {
  name_prefix = "${var.name}-service-"
  description = "The service: outbound HTTPS only"
  vpc_id      = var.vpc_id

  lifecycle {
    create_before_destroy = true # a security group in use cannot be deleted
  }
}

resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.this.id
  description       = "AWS APIs and the image's registry"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_ecs_task_definition" "this" {
  family                   = var.name
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = tostring(var.cpu)
  memory                   = tostring(var.memory)
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task.arn

  container_definitions = jsonencode([
    {
      name      = "service"
      image     = var.image
      essential = true

      environment = [
        for name, value in merge(var.environment, {
          AWS_REGION  = var.region
          QUEUE_URL   = var.queue.url
          BUCKET_NAME = var.bucket.name
        }) : { name = name, value = value }
      ]

      linuxParameters = { initProcessEnabled = true }
      stopTimeout     = 60

      logConfiguration = {
        logDriver = "awslogs"
        options = {
          "awslogs-group"         = aws_cloudwatch_log_group.this.name
          "awslogs-region"        = var.region
          "awslogs-stream-prefix" = "service"
        }
      }
    }
  ])
}

resource "aws_ecs_service" "this" {
  name            = "service"
  cluster         = aws_ecs_cluster.this.id
  task_definition = aws_ecs_task_definition.this.arn
  desired_count   = var.desired_count
  launch_type     = "FARGATE"
  propagate_tags  = "SERVICE"

  # If true, the apply waits until the tasks run. It fails if the new tasks do not start
  # and ECS rolls back to the old tasks.
  wait_for_steady_state = var.wait

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = [aws_security_group.this.id]
    assign_public_ip = var.assign_public_ip
  }

  # Tasks without their permissions or without network access would fail. So these
  # resources exist before the first task starts and until the last task has stopped.
  depends_on = [
    aws_iam_role_policy.task,
    aws_iam_role_policy_attachment.execution,
    aws_vpc_security_group_egress_rule.https,
  ]
}

output "cluster" {
  value       = aws_ecs_cluster.this.name
  description = "The name of the ECS cluster."
}

output "service" {
  value       = aws_ecs_service.this.name
  description = "The name of the ECS service."
}

output "log_group" {
  value       = aws_cloudwatch_log_group.this.name
  description = "The name of the log group with the container's output."
}

output "task_role_arn" {
  value       = aws_iam_role.task.arn
  description = "The ARN of the container's role."
}
