package awsaction_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/awsaction"
)

func TestActionsThatLiftTheBoundaryAreRefused(t *testing.T) {
	for _, action := range []string{
		"iam:*", "iam:PassRole", "sts:AssumeRole", "organizations:LeaveOrganization", "account:CloseAccount", "billing:*", "sso:*", "sso-directory:CreateUser",
		"identitystore:*", "*", "*:*", "", "iam", "lambda", "lambda:", ":Invoke", "lambda:Invoke Function", "lam*:Invoke", "i?m:*", "IAM:*", "Lambda:*", "s3:Get?", "s3:*\n", "s3:*,iam:*",
	} {
		if problem, hint := awsaction.Check(action); problem == "" || hint == "" {
			t.Errorf("%q: problem %q, hint %q", action, problem, hint)
		}
	}
	for _, action := range []string{"lambda:*", "rds:Describe*", "s3:GetObject", "execute-api:Invoke", "route53:*", "iamx:Get", "sso2:*"} {
		if problem, _ := awsaction.Check(action); problem != "" {
			t.Errorf("%q: %s", action, problem)
		}
	}
	for _, service := range append(awsaction.Refused(), "", "*", "S3", "s3:*", "amazon s3") {
		if problem, hint := awsaction.CheckService(service); problem == "" || hint == "" {
			t.Errorf("service %q: problem %q, hint %q", service, problem, hint)
		}
	}
}

func TestMissingActionsAreFound(t *testing.T) {
	for name, c := range map[string]struct{ wanted, granted, missing string }{
		"all are granted":                       {"lambda:* s3:GetObject", "s3:* lambda:* sqs:*", ""},
		"a service is missing":                  {"bedrock:* s3:*", "s3:*", "bedrock:*"},
		"one action does not grant the service": {"s3:*", "s3:Get* s3:Put*", "s3:*"},
		"a pattern covers a narrower one":       {"rds:DescribeDB*", "rds:Describe*", ""},
		"a narrower one does not":               {"rds:Describe*", "rds:DescribeDB*", "rds:Describe*"},
		"wildcards inside":                      {"ssm:StartAutomationExecution", "ssm:Start*Execution", ""},
		"overlapping ends are not a match":      {"ssm:Start", "ssm:Start*tart", "ssm:Start"},
		"IAM ignores the case":                  {"s3:getobject", "s3:GetObject", ""},
		"a prefix is not the service":           {"sso2:* ec2:*", "ec:* sso2:*", "ec2:*"},
		"nothing is granted":                    {"s3:*", "", "s3:*"},
	} {
		if got := strings.Join(awsaction.Missing(strings.Fields(c.wanted), strings.Fields(c.granted)), " "); got != c.missing {
			t.Errorf("%s: got %q, want %q", name, got, c.missing)
		}
	}
}

func TestCoveredActionsAreLeftOut(t *testing.T) {
	got := awsaction.Of([]string{"s3", "lambda", "s3"}, []string{"s3:GetObject", "rds:Describe*", "rds:DescribeDBInstances", "rds:describe*"})
	if fmt.Sprint(got) != "[lambda:* rds:Describe* s3:*]" {
		t.Errorf("got %v", got)
	}
	if got := awsaction.Union([]string{"s3:Get*"}, []string{"s3:*", "sqs:*"}); fmt.Sprint(got) != "[s3:* sqs:*]" {
		t.Errorf("got %v", got)
	}
}

func TestCustomersReadNamesOfServices(t *testing.T) {
	got := awsaction.Sentences([]string{"s3:*", "lambda:*", "rds:Describe*", "rds:CreateDBInstance", "newservice:*", "s3:GetObject"})
	want := []string{"The app may use: Amazon S3, AWS Lambda, newservice.", "Of Amazon RDS it may use only: rds:CreateDBInstance, rds:Describe*."}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := awsaction.Sentences(nil); got != nil {
		t.Errorf("nothing declared: %q", got)
	}
}
