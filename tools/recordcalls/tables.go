package main

import "regexp"

// prefixes has the prefix of a service's actions where it is not the name in signatures.
var prefixes = map[string]string{"monitoring": "cloudwatch"}

// names has the action of an operation where the two differ.
var names = map[string]string{
	"s3:HeadBucket": "ListBucket", "s3:ListObjects": "ListBucket", "s3:ListObjectsV2": "ListBucket", "s3:ListObjectVersions": "ListBucketVersions",
	"s3:GetBucketEncryption": "GetEncryptionConfiguration", "s3:PutBucketEncryption": "PutEncryptionConfiguration", "s3:DeleteBucketEncryption": "PutEncryptionConfiguration",
	"s3:GetBucketLifecycleConfiguration": "GetLifecycleConfiguration", "s3:PutBucketLifecycleConfiguration": "PutLifecycleConfiguration", "s3:DeleteBucketLifecycle": "PutLifecycleConfiguration",
	"s3:GetBucketReplication": "GetReplicationConfiguration", "s3:GetBucketAccelerateConfiguration": "GetAccelerateConfiguration", "s3:DeleteBucketCors": "PutBucketCORS",
	"s3:GetPublicAccessBlock": "GetBucketPublicAccessBlock", "s3:PutPublicAccessBlock": "PutBucketPublicAccessBlock", "s3:DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
	"s3:DeleteBucketTagging": "PutBucketTagging", "s3:GetObjectLockConfiguration": "GetBucketObjectLockConfiguration", "s3:DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
	"s3:DeleteObjects": "DeleteObject", "s3:HeadObject": "GetObject", "s3:GetBucketNotificationConfiguration": "GetBucketNotification", "s3:PutBucketNotificationConfiguration": "PutBucketNotification",
}

// fields has the fields of a request that have a variable of an ARN, where the names differ:
// by service, resource type and variable. "*" is for what no request has.
var fields = map[string][]string{
	"s3:bucket:BucketName": {"Bucket"}, "s3:object:BucketName": {"Bucket"}, "s3:object:ObjectName": {"Key"},
	"sqs:queue:QueueName": {"QueueName", "QueueUrl"},
	"sns:topic:TopicName": {"Name"},
	"kms:key:KeyId":       {"KeyId", "TargetKeyId"}, "kms:alias:Alias": {"AliasName"},
	"iam:role:RoleNameWithPath": {"RoleName"}, "iam:policy:PolicyNameWithPath": {"PolicyName"}, "iam:instance-profile:InstanceProfileNameWithPath": {"InstanceProfileName"},
	"rds:subgrp:SubnetGroupName":                     {"DBSubnetGroupName"},
	"ssm:parameter:ParameterNameWithoutLeadingSlash": {"Name", "Names", "ResourceId"},
	"events:event-bus:EventBusName":                  {"EventBusName", "Name"},
	"events:rule-on-custom-event-bus:RuleName":       {"Rule", "Name"},
	"events:rule-on-default-event-bus:RuleName":      {"Rule", "Name"},
	"route53:hostedzone:Id":                          {"Id", "HostedZoneId", "ResourceId"},
	"elasticfilesystem:file-system:FileSystemId":     {"FileSystemId", "MountTargetId", "ResourceId"},
	"ecs:cluster:ClusterName":                        {"ClusterName", "Cluster"},
	"autoscaling:autoScalingGroup:GroupId":           {"*"}, "autoscaling:autoScalingGroup:GroupFriendlyName": {"AutoScalingGroupName", "ResourceId"},
}

// tagActions has the permission that a request with tags also needs.
var tagActions = map[string]string{
	"acm": "AddTagsToCertificate", "autoscaling": "CreateOrUpdateTags", "cloudwatch": "TagResource", "dynamodb": "TagResource", "ec2": "CreateTags", "ecr": "TagResource", "ecs": "TagResource",
	"eks": "TagResource", "elasticache": "AddTagsToResource", "elasticfilesystem": "TagResource", "elasticloadbalancing": "AddTags", "events": "TagResource", "kms": "TagResource",
	"lambda": "TagResource", "logs": "TagResource", "rds": "AddTagsToResource", "s3": "TagResource", "secretsmanager": "TagResource", "sns": "TagResource", "sqs": "TagQueue",
	"ssm": "AddTagsToResource", "states": "TagResource",
}

// receivers has the service to which a request gives a role.
var receivers = map[string]string{
	"ec2": "ec2.amazonaws.com", "ecs": "ecs-tasks.amazonaws.com", "eks": "eks.amazonaws.com", "events": "events.amazonaws.com", "lambda": "lambda.amazonaws.com",
	"rds": "monitoring.rds.amazonaws.com", "states": "states.amazonaws.com",
}

var ec2ID = regexp.MustCompile(`^([a-z]+)-[0-9a-f]{8,}$`)

// ec2Types has the type of a resource by the start of its identifier.
var ec2Types = map[string]string{
	"acl": "network-acl", "ami": "image", "dopt": "dhcp-options", "eipalloc": "elastic-ip", "eni": "network-interface", "fl": "vpc-flow-log", "i": "instance", "igw": "internet-gateway",
	"lt": "launch-template", "nat": "natgateway", "rtb": "route-table", "sg": "security-group", "sgr": "security-group-rule", "snap": "snapshot", "subnet": "subnet", "vol": "volume",
	"vpc": "vpc", "vpce": "vpc-endpoint",
}
