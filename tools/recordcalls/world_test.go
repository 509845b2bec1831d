package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// newTestWorld returns a world without resources. Without the data of the IAM simulator it
// skips the test.
func newTestWorld(t *testing.T) *world {
	t.Helper()
	known, err := loadActions(t.Context())
	if err != nil {
		testserver.Missing(t, "NOT CHECKED with the data of the IAM simulator", "FAIRLEAD_REQUIRE_IAM_SIMULATOR", "Install Node with npm", err)
	}
	return newWorld(known)
}

// A request becomes one call for each resource that IAM compares, with the tags that the
// resource has at that time.
func TestRequestsBecomeCalls(t *testing.T) {
	w := newTestWorld(t)
	const arn = "arn:aws:ec2:eu-central-1:111122223333:"
	for _, step := range []struct {
		what, request string
		want          []string
	}{
		{"the identifier of a new resource is unknown, and its tags need a permission",
			`{"service": "ec2", "operation": "CreateVpc", "params": {"TagSpecifications": [{"ResourceType": "vpc", "Tags": [{"Key": "a", "Value": "1"}]}]}, "output": {"Vpc": {"VpcId": "vpc-0123456789abcdef0", "DhcpOptionsId": "dopt-0123456789abcdef0"}}, "status": 200}`,
			[]string{"ec2:CreateVpc " + arn + "vpc/* map[aws:RequestTag/a:1 aws:TagKeys:[a]]", "ec2:CreateTags " + arn + "vpc/* map[aws:RequestTag/a:1 aws:TagKeys:[a] ec2:CreateAction:CreateVpc]"}},
		{"IAM compares the tags of the network, not those of the request",
			`{"service": "ec2", "operation": "CreateSubnet", "params": {"VpcId": "vpc-0123456789abcdef0"}, "output": {"Subnet": {"SubnetId": "subnet-0123456789abcdef0", "VpcId": "vpc-0123456789abcdef0"}}, "status": 200}`,
			[]string{"ec2:CreateSubnet " + arn + "subnet/* map[]", "ec2:CreateSubnet " + arn + "vpc/vpc-0123456789abcdef0 map[aws:ResourceTag/a:1]"}},
		{"a tag changes", `{"service": "ec2", "operation": "CreateTags", "params": {"Resources": ["vpc-0123456789abcdef0"], "Tags": [{"Key": "b", "Value": "2"}]}, "status": 200}`,
			[]string{"ec2:CreateTags " + arn + "vpc/vpc-0123456789abcdef0 map[aws:RequestTag/b:2 aws:ResourceTag/a:1 aws:TagKeys:[b]]"}},
		{"a tag is removed", `{"service": "ec2", "operation": "DeleteTags", "params": {"Resources": ["vpc-0123456789abcdef0"], "Tags": [{"Key": "a"}]}, "status": 200}`,
			[]string{"ec2:DeleteTags " + arn + "vpc/vpc-0123456789abcdef0 map[aws:RequestTag/a: aws:ResourceTag/a:1 aws:ResourceTag/b:2 aws:TagKeys:[a]]"}},
		{"a refused request changes nothing", `{"service": "ec2", "operation": "DeleteTags", "params": {"Resources": ["vpc-0123456789abcdef0"], "Tags": [{"Key": "b"}]}, "status": 400}`,
			[]string{"ec2:DeleteTags " + arn + "vpc/vpc-0123456789abcdef0 map[aws:RequestTag/b: aws:ResourceTag/b:2 aws:TagKeys:[b]]"}},
		{"the resource has the tags that are left", `{"service": "ec2", "operation": "DeleteVpc", "params": {"VpcId": "vpc-0123456789abcdef0"}, "status": 200}`,
			[]string{"ec2:DeleteVpc " + arn + "vpc/vpc-0123456789abcdef0 map[aws:ResourceTag/b:2]"}},
		{"an action can have another name than its operation", `{"service": "s3", "operation": "HeadBucket", "params": {"Bucket": "acme"}, "status": 200}`, []string{"s3:ListBucket arn:aws:s3:::acme map[]"}},
		{"a queue is named by its URL", `{"service": "sqs", "operation": "DeleteQueue", "params": {"QueueUrl": "http://127.0.0.1:1/111122223333/jobs"}, "status": 200}`,
			[]string{"sqs:DeleteQueue arn:aws:sqs:eu-central-1:111122223333:jobs map[]"}},
		{"a role has its path and its boundary", `{"service": "iam", "operation": "CreateRole", "params": {"RoleName": "web", "Path": "/app/", "PermissionsBoundary": "arn:aws:iam::111122223333:policy/b"}, "status": 200}`,
			[]string{"iam:CreateRole arn:aws:iam::111122223333:role/app/web map[iam:PermissionsBoundary:arn:aws:iam::111122223333:policy/b]"}},
		{"a later request names the role only", `{"service": "iam", "operation": "DeleteRolePolicy", "params": {"RoleName": "web", "PolicyName": "p"}, "status": 200}`,
			[]string{"iam:DeleteRolePolicy arn:aws:iam::111122223333:role/app/web map[iam:PermissionsBoundary:arn:aws:iam::111122223333:policy/b]"}},
		{"a profile passes its role", `{"service": "iam", "operation": "AddRoleToInstanceProfile", "params": {"RoleName": "web", "InstanceProfileName": "web"}, "status": 200}`,
			[]string{"iam:AddRoleToInstanceProfile arn:aws:iam::111122223333:instance-profile/web map[]", "iam:PassRole arn:aws:iam::111122223333:role/app/web map[iam:PassedToService:ec2.amazonaws.com]"}},
		{"a public parameter has no account", `{"service": "ssm", "operation": "GetParameter", "params": {"Name": "/aws/service/ami"}, "status": 200}`,
			[]string{"ssm:GetParameter arn:aws:ssm:eu-central-1::parameter/aws/service/ami map[]"}},
		{"a new key needs the permission to tag all keys, and has no tags yet", `{"service": "kms", "operation": "CreateKey", "params": {"Tags": [{"TagKey": "a", "TagValue": "1"}]}, "output": {"KeyMetadata": {"KeyId": "24be15be-d4b1-4906-ba8c-675a398385b0"}}, "status": 200}`,
			[]string{"kms:CreateKey * map[aws:RequestTag/a:1 aws:TagKeys:[a]]", "kms:TagResource arn:aws:kms:eu-central-1:111122223333:key/* map[aws:RequestTag/a:1 aws:TagKeys:[a]]"}},
		{"a rule belongs to a bus", `{"service": "events", "operation": "PutRule", "params": {"Name": "r", "EventBusName": "orders", "Tags": [{"Key": "a", "Value": "1"}]}, "status": 200}`,
			[]string{"events:PutRule arn:aws:events:eu-central-1:111122223333:rule/orders/r map[aws:RequestTag/a:1 aws:TagKeys:[a]]",
				"events:TagResource arn:aws:events:eu-central-1:111122223333:rule/orders/r map[aws:RequestTag/a:1 aws:ResourceTag/a:1 aws:TagKeys:[a]]"}},
		{"the targets of a rule are compared by its tags", `{"service": "events", "operation": "PutTargets", "params": {"Rule": "r", "EventBusName": "orders", "Targets": [{"Id": "1", "Arn": "arn:aws:sqs:eu-central-1:111122223333:jobs"}]}, "status": 200}`,
			[]string{"events:PutTargets arn:aws:events:eu-central-1:111122223333:rule/orders/r map[aws:ResourceTag/a:1]"}},
		{"a rule on the default bus names no bus", `{"service": "events", "operation": "DeleteRule", "params": {"Name": "r", "EventBusName": "default"}, "status": 200}`,
			[]string{"events:DeleteRule arn:aws:events:eu-central-1:111122223333:rule/r map[]"}},
		{"IAM does not refuse a question for the own identity", `{"service": "sts", "operation": "GetCallerIdentity", "params": {}, "status": 200}`, nil},
	} {
		var q request
		if err := json.Unmarshal([]byte(step.request), &q); err != nil {
			t.Fatal(err)
		}
		calls, err := w.calls(q)
		var got []string
		for _, c := range calls {
			got = append(got, fmt.Sprint(c.Action, " ", c.Resource, " ", c.Context))
		}
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", step.want) {
			t.Errorf("%s: got %q, %v, want %q", step.what, got, err, step.want)
		}
	}
}

// The recorder fails at a request that it cannot map to an action. It leaves no call out.
func TestUnknownRequestIsAnError(t *testing.T) {
	w := newTestWorld(t)
	for want, q := range map[string]request{
		"read a request":        {Error: "POST /"},
		"IAM knows no action":   {Service: "sqs", Operation: "PeekMessage"},
		"the request names no ": {Service: "sqs", Operation: "DeleteQueue", Params: map[string]any{"Queue": "x"}},
		"tagActions":            {Service: "wafv2", Operation: "CreateIPSet", Params: map[string]any{"Tags": map[string]any{"a": "1"}}},
	} {
		if calls, err := w.calls(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, %v, want an error with %q", q, calls, err, want)
		}
	}
}
