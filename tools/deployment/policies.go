package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
)

// Needs maps each type of resource that the stack may have to the IAM action that creates it.
// TestPreflightAsksForEachResource compares the types with the template.
func Needs() map[string]string {
	return map[string]string{
		"AWS::ApiGatewayV2::Api": "apigateway:POST", "AWS::ApiGatewayV2::ApiMapping": "apigateway:POST", "AWS::ApiGatewayV2::DomainName": "apigateway:POST",
		"AWS::ApiGatewayV2::Integration": "apigateway:POST", "AWS::ApiGatewayV2::Route": "apigateway:POST", "AWS::ApiGatewayV2::Stage": "apigateway:POST",
		"AWS::Backup::BackupPlan": "backup:CreateBackupPlan", "AWS::Backup::BackupSelection": "backup:CreateBackupSelection", "AWS::Backup::BackupVault": "backup:CreateBackupVault",
		"AWS::Budgets::Budget": "budgets:ModifyBudget", "AWS::CloudWatch::Alarm": "cloudwatch:PutMetricAlarm", "AWS::CloudWatch::Dashboard": "cloudwatch:PutDashboard",
		"AWS::CodeDeploy::Application": "codedeploy:CreateApplication", "AWS::CodeDeploy::DeploymentGroup": "codedeploy:CreateDeploymentGroup",
		"AWS::DynamoDB::Table": "dynamodb:CreateTable", "AWS::EC2::InternetGateway": "ec2:CreateInternetGateway", "AWS::EC2::Route": "ec2:CreateRoute",
		"AWS::EC2::RouteTable": "ec2:CreateRouteTable", "AWS::EC2::SecurityGroup": "ec2:CreateSecurityGroup", "AWS::EC2::Subnet": "ec2:CreateSubnet",
		"AWS::EC2::SubnetRouteTableAssociation": "ec2:AssociateRouteTable", "AWS::EC2::VPC": "ec2:CreateVpc", "AWS::EC2::VPCEndpoint": "ec2:CreateVpcEndpoint",
		"AWS::EC2::VPCGatewayAttachment": "ec2:AttachInternetGateway", "AWS::ECR::Repository": "ecr:CreateRepository", "AWS::ECS::Cluster": "ecs:CreateCluster",
		"AWS::CodeBuild::Project": "codebuild:CreateProject", "AWS::ECS::Service": "ecs:CreateService", "AWS::ECS::TaskDefinition": "ecs:RegisterTaskDefinition", "AWS::Events::EventBus": "events:CreateEventBus",
		"AWS::Events::Rule": "events:PutRule", "AWS::IAM::Role": "iam:CreateRole", "AWS::IAM::RolePolicy": "iam:PutRolePolicy", "AWS::KMS::Alias": "kms:CreateAlias", "AWS::KMS::Key": "kms:CreateKey",
		"AWS::Lambda::Alias": "lambda:CreateAlias", "AWS::Lambda::EventInvokeConfig": "lambda:PutFunctionEventInvokeConfig",
		"AWS::Lambda::EventSourceMapping": "lambda:CreateEventSourceMapping", "AWS::Lambda::Function": "lambda:CreateFunction",
		"AWS::Lambda::Permission": "lambda:AddPermission", "AWS::Lambda::Version": "lambda:PublishVersion", "AWS::Logs::LogGroup": "logs:CreateLogGroup",
		"AWS::Logs::MetricFilter": "logs:PutMetricFilter", "AWS::Route53::RecordSet": "route53:ChangeResourceRecordSets", "AWS::S3::Bucket": "s3:CreateBucket",
		"AWS::S3::BucketPolicy": "s3:PutBucketPolicy", "AWS::SNS::Subscription": "sns:Subscribe", "AWS::SNS::Topic": "sns:CreateTopic",
		"AWS::SNS::TopicPolicy": "sns:SetTopicAttributes", "AWS::SQS::Queue": "sqs:CreateQueue", "AWS::SQS::QueuePolicy": "sqs:SetQueueAttributes",
	}
}

// SpareNeeds is Needs for the spare stack.
func SpareNeeds() map[string]string {
	return map[string]string{"AWS::Backup::BackupVault": "backup:CreateBackupVault", "AWS::CloudWatch::Alarm": "cloudwatch:PutMetricAlarm", "AWS::Events::Rule": "events:PutRule", "AWS::IAM::Role": "iam:CreateRole", "AWS::KMS::Alias": "kms:CreateAlias", "AWS::KMS::ReplicaKey": "kms:ReplicateKey",
		"AWS::S3::Bucket": "s3:CreateBucket", "AWS::S3::BucketPolicy": "s3:PutBucketPolicy"}
}

// optional are the prefixes of types that a stack has only if the operator asks for them. A control policy that forbids
// them is no reason to refuse a deployment without them.
var optional = []string{"AWS::Backup::", "AWS::EC2::", "AWS::ECS::", "AWS::Budgets::", "AWS::Route53::", "AWS::ApiGatewayV2::ApiMapping", "AWS::ApiGatewayV2::DomainName"}

// prepares are the actions with which "cdk bootstrap" and a deployment begin, besides those of Needs.
var prepares = []string{"cloudformation:CreateChangeSet", "cloudformation:ExecuteChangeSet", "iam:PassRole", "iam:PutRolePolicy", "lambda:PutFunctionConcurrency", "ssm:PutParameter"}

// checkPolicies asks IAM which of the deployment's actions the service control policies of the account's organization forbid,
// before anything is created. CloudFormation acts with a role of the account, so these policies bind it as they bind the
// caller, and the caller's own policies do not matter here. It returns an error with the forbidden actions; IgnorePolicies makes it a
// warning, because the simulation does not know all conditions of a policy. A caller who may not ask gets a warning.
//
// types has the action for each type of resource. Those with a prefix of without are not needed.
func (d *Deployment) checkPolicies(ctx context.Context, caller string, types map[string]string, without []string) error {
	needs := map[string]bool{}
	for kind, action := range types {
		if !slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(kind, prefix) }) {
			needs[action] = true
		}
	}
	for _, action := range prepares {
		needs[action] = true
	}
	forbidden, err := d.forbidden(ctx, caller, slices.Sorted(maps.Keys(needs)))
	if err != nil {
		d.say("Warning: IAM does not answer whether a service control policy of your organization forbids this deployment: %v\n  If it does, the deployment stops at the first forbidden action. To check first, permit %s to use iam:SimulatePrincipalPolicy and iam:GetRole.", reasonOf(err), caller)
		return nil
	}
	if len(forbidden) == 0 {
		return nil
	}
	finding := fmt.Sprintf("by IAM's simulation, a service control policy of your AWS organization forbids what this deployment needs in region %s: %s", d.Config.Region, strings.Join(forbidden, ", "))
	if d.IgnorePolicies {
		d.say("Warning: %s", finding)
		return nil
	}
	return fmt.Errorf("%s\nNothing was created. Ask the administrator of the organization to permit these actions in this account, or use another account or region. The simulation may be wrong about policies with conditions: if yours permit the actions, run the command again with IGNORE_POLICIES=1", finding)
}

// reasonOf returns AWS's code and message of an error, without the details of the request.
func reasonOf(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode() + ": " + e.ErrorMessage()
	}
	return err.Error()
}

// forbidden returns the actions that the organization's policies forbid in the region.
func (d *Deployment) forbidden(ctx context.Context, caller string, actions []string) (list []string, err error) {
	client := iam.NewFromConfig(d.Config)
	source, err := principal(ctx, client, caller)
	if err != nil {
		return nil, err
	}
	pages := iam.NewSimulatePrincipalPolicyPaginator(client, &iam.SimulatePrincipalPolicyInput{PolicySourceArn: &source, ActionNames: actions,
		// Organizations often permit some regions only.
		ContextEntries: []types.ContextEntry{{ContextKeyName: aws.String("aws:RequestedRegion"), ContextKeyType: types.ContextKeyTypeEnumString, ContextKeyValues: []string{d.Config.Region}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.EvaluationResults {
			if o := r.OrganizationsDecisionDetail; o != nil && !o.AllowedByOrganizations { // nil: the account is in no organization
				list = append(list, aws.ToString(r.EvalActionName))
			}
		}
	}
	return list, nil
}

// principal returns the ARN of the user or role that IAM can simulate. The ARN of a role's session lacks the path of the role.
// The root user cannot be simulated.
func principal(ctx context.Context, client *iam.Client, caller string) (string, error) {
	_, session, found := strings.Cut(caller, ":assumed-role/")
	if !found {
		return caller, nil
	}
	name, _, _ := strings.Cut(session, "/")
	role, err := client.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil {
		return "", err
	}
	return aws.ToString(role.Role.Arn), nil
}
