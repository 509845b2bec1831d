package awsaction

// Name returns the name of an AWS service for people, or its prefix if the table has no
// name for it.
func Name(service string) string {
	if name, ok := names[service]; ok {
		return name
	}
	return service
}

// names has the services that apps use most, by the prefix of their actions (AWS Service
// Authorization Reference).
var names = map[string]string{
	"acm":                     "AWS Certificate Manager",
	"apigateway":              "Amazon API Gateway",
	"appconfig":               "AWS AppConfig",
	"application-autoscaling": "Application Auto Scaling",
	"apprunner":               "AWS App Runner",
	"athena":                  "Amazon Athena",
	"autoscaling":             "EC2 Auto Scaling",
	"backup":                  "AWS Backup",
	"batch":                   "AWS Batch",
	"bedrock":                 "Amazon Bedrock",
	"cloudfront":              "Amazon CloudFront",
	"cloudwatch":              "Amazon CloudWatch",
	"cognito-identity":        "Amazon Cognito identity pools",
	"cognito-idp":             "Amazon Cognito user pools",
	"dynamodb":                "Amazon DynamoDB",
	"ec2":                     "Amazon EC2 and VPC",
	"ecr":                     "Amazon ECR",
	"ecs":                     "Amazon ECS",
	"eks":                     "Amazon EKS",
	"elasticache":             "Amazon ElastiCache",
	"elasticfilesystem":       "Amazon EFS",
	"elasticloadbalancing":    "Elastic Load Balancing",
	"es":                      "Amazon OpenSearch Service",
	"events":                  "Amazon EventBridge",
	"execute-api":             "calls of Amazon API Gateway",
	"firehose":                "Amazon Data Firehose",
	"glue":                    "AWS Glue",
	"kafka":                   "Amazon MSK",
	"kinesis":                 "Amazon Kinesis Data Streams",
	"kms":                     "AWS KMS",
	"lambda":                  "AWS Lambda",
	"logs":                    "Amazon CloudWatch Logs",
	"mq":                      "Amazon MQ",
	"pipes":                   "Amazon EventBridge Pipes",
	"rds":                     "Amazon RDS",
	"redshift":                "Amazon Redshift",
	"route53":                 "Amazon Route 53",
	"s3":                      "Amazon S3",
	"sagemaker":               "Amazon SageMaker",
	"scheduler":               "Amazon EventBridge Scheduler",
	"secretsmanager":          "AWS Secrets Manager",
	"servicediscovery":        "AWS Cloud Map",
	"ses":                     "Amazon SES",
	"sns":                     "Amazon SNS",
	"sqs":                     "Amazon SQS",
	"ssm":                     "AWS Systems Manager",
	"ssmmessages":             "AWS Systems Manager sessions",
	"states":                  "AWS Step Functions",
	"tag":                     "AWS resource tags",
	"wafv2":                   "AWS WAF",
	"xray":                    "AWS X-Ray",
}
