package sessionpolicy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/sessionpolicy"
)

var needs = sessionpolicy.Needs{Buckets: []string{"states"}}

// A queue, a function and its role: the apply's credentials are for three services, whatever else the role permits.
func TestApplyIsForTheServicesOfItsChanges(t *testing.T) {
	kinds := sessionpolicy.Kinds([]changeset.Change{
		{Kind: "aws_sqs_queue", Action: changeset.Create}, {Kind: "aws_lambda_function", Action: changeset.Update}, {Kind: "aws_iam_role", Action: changeset.Replace},
		{Kind: "aws_db_instance", Action: changeset.Move}, {Kind: "aws_vpc", Action: changeset.Forget}, {Kind: "random_id", Action: changeset.Create}, {Kind: "helm_release", Action: changeset.Delete}})
	if want := []string{"aws_iam_role", "aws_lambda_function", "aws_sqs_queue"}; !slices.Equal(kinds, want) {
		t.Errorf("the changes use %q, want %q: a move and a forget change only the state, and other providers have other credentials", kinds, want)
	}
	n := sessionpolicy.For(kinds, needs)
	if len(n.Policies) == 0 || len(n.Unmapped) > 0 {
		t.Fatalf("%+v", n)
	}
	first := n.Policies[0]
	if want := []string{"iam", "lambda", "sqs"}; !slices.Equal(first.Services, want) {
		t.Errorf("the services are %q, want %q", first.Services, want)
	}
	if strings.Contains(first.Document, `"s3:*"`) || !strings.Contains(first.Document, `"s3:GetObjectVersion"`) || !strings.Contains(first.Document, `"ec2:Describe*"`) {
		t.Errorf("a function reads its code from S3 and its network from EC2, and needs no more of either: %s", first.Document)
	}
}

func TestServicesOfTypes(t *testing.T) {
	for _, tt := range []struct {
		kinds    string
		services string // of the narrowest policy
		unmapped string
		why      string
	}{
		{"aws_s3_bucket", "s3 s3express", "", "the name is that of CloudFormation's type"},
		{"aws_instance", "ec2", "", "the namespace is not in the name"},
		{"aws_s3_bucket_versioning", "s3 s3express", "", "a part of a bucket has no type of its own in CloudFormation"},
		{"aws_s3_bucket_policy", "s3 s3express", "", "two namespaces have this type: an apply with the policy of the other one would fail"},
		{"aws_cloudwatch_log_group aws_cloudwatch_metric_alarm aws_cloudwatch_event_rule", "cloudwatch events logs", "", "the names of three services begin in the same way"},
		{"aws_lb_listener aws_alb", "elasticloadbalancing", "", "two names of one service"},
		{"aws_cognito_identity_pool", "cognito-identity", "", "the namespace's other types have another prefix"},
		{"aws_dynamodb_table", "dynamodb", "", ""},
		{"aws_sqs_queues aws_ami", "ec2 sqs", "", "a data source that an apply reads"},
		{"aws_iam_policy_document aws_caller_identity aws_region", "", "", "these data sources need no permission: iam:* would be too much"},
		{"awscc_s3_bucket", "s3", "", "hashicorp/awscc has the types of CloudFormation"},
		{"awscc_appmesh_mesh", "", "awscc_appmesh_mesh", "a type of CloudFormation without permissions of handlers"},
		{"helm_release kubernetes_manifest google_storage_bucket random_id", "", "", "other providers have other credentials"},
		{"aws_appmesh_mesh aws_sqs_queue aws_waf_rule", "", "aws_appmesh_mesh aws_waf_rule", "CloudFormation states nothing about them here: a guess would break an apply in the middle"},
		{"aws_of_tomorrow", "", "aws_of_tomorrow", "a newer provider than the table"},
		{"awscc_of_tomorrow", "", "awscc_of_tomorrow", "a newer provider than the table"},
		{"", "", "", "nothing but outputs changes"},
	} {
		n := sessionpolicy.For(strings.Fields(tt.kinds), needs)
		if got := strings.Join(n.Unmapped, " "); got != tt.unmapped || (len(n.Policies) == 0) != (tt.unmapped != "") {
			t.Errorf("%s: unmapped are %q with %d policies, want %q: %s", tt.kinds, got, len(n.Policies), tt.unmapped, tt.why)
			continue
		}
		if len(n.Policies) > 0 && strings.Join(n.Policies[0].Services, " ") != tt.services {
			t.Errorf("%s: the services are %q, want %q: %s", tt.kinds, n.Policies[0].Services, tt.services, tt.why)
		}
	}
}

// read returns the allowed actions of a policy's statements.
func read(t *testing.T, document string) (all [][]string) {
	t.Helper()
	var d struct{ Statement []struct{ Action []string } }
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatalf("%v: %s", err, document)
	}
	for _, s := range d.Statement {
		all = append(all, s.Action)
	}
	return all
}

// covered reports whether one of the patterns matches the action.
func covered(patterns []string, action string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		begin, ok := strings.CutSuffix(p, "*")
		return p == action || ok && strings.HasPrefix(action, begin)
	})
}

// An apply of many types needs many actions of other services. A policy that is too large for STS becomes coarser, and never permits
// less: the apply would stop in the middle.
func TestLargePolicyBecomesCoarser(t *testing.T) {
	kinds := strings.Fields("aws_autoscaling_group aws_db_instance aws_eks_cluster aws_lb aws_msk_cluster aws_elastic_beanstalk_environment aws_mwaa_environment aws_datasync_agent aws_transfer_server")
	n := sessionpolicy.For(kinds, needs)
	if len(n.Policies) < 2 {
		t.Fatalf("%d policies", len(n.Policies))
	}
	for i, p := range n.Policies {
		if len(p.Document) > sessionpolicy.MaxSize {
			t.Errorf("policy %d has %d characters, and STS accepts %d", i, len(p.Document), sessionpolicy.MaxSize)
		}
		if i == 0 {
			continue
		}
		before := n.Policies[i-1]
		if len(p.Document) >= len(before.Document) {
			t.Errorf("policy %d has %d characters, and the one before it %d", i, len(p.Document), len(before.Document))
		}
		for _, action := range read(t, before.Document)[0] {
			if !covered(read(t, p.Document)[0], action) {
				t.Errorf("policy %d does not permit %s, which the one before it permits", i, action)
			}
		}
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("a-bucket-with-a-very-long-name-%030d", i))
	}
	if n := sessionpolicy.For(kinds, sessionpolicy.Needs{Buckets: many}); len(n.Policies) != 0 || n.Unmapped != nil {
		t.Errorf("%d policies, unmapped %q: what does not fit must leave the role whole", len(n.Policies), n.Unmapped)
	}
}

// The same changes give the same policy on each runner.
func TestPolicyIsDeterministic(t *testing.T) {
	kinds := strings.Fields("aws_lambda_function aws_vpc aws_eks_cluster aws_db_instance")
	want := sessionpolicy.For(kinds, sessionpolicy.Needs{Buckets: []string{"a", "b"}, Images: true})
	for range 20 {
		slices.Reverse(kinds)
		if got := sessionpolicy.For(kinds, sessionpolicy.Needs{Buckets: []string{"b", "a", "b"}, Images: true}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// Before the changes are known, init and the providers that describe the plan run: they reach the state and no service.
func TestNothingButTheStateBeforeTheChangesAreKnown(t *testing.T) {
	d := sessionpolicy.Before(sessionpolicy.Needs{Buckets: []string{"states", "mirror"}, Images: true})
	var actions []string
	for _, s := range read(t, d) {
		actions = append(actions, s...)
	}
	for _, a := range actions {
		if strings.HasSuffix(a, ":*") && a != "kms:*" || strings.HasPrefix(a, "iam:") {
			t.Errorf("%s is permitted: %s", a, d)
		}
	}
	for _, want := range []string{`"arn:*:s3:::states/*"`, `"arn:*:s3:::mirror"`, `"Null":{"kms:ViaService":"false"}`, `"ecr:GetAuthorizationToken"`} {
		if !strings.Contains(d, want) {
			t.Errorf("the policy lacks %s: %s", want, d)
		}
	}
}

// Each line of the table gives a policy: a mistake in a line would fail only in a customer's apply.
func TestEachTypeOfTheTableHasAPolicy(t *testing.T) {
	for _, kind := range sessionpolicy.Mapped() {
		n := sessionpolicy.For([]string{kind}, needs)
		if len(n.Unmapped) > 0 || len(n.Policies) == 0 {
			t.Errorf("%s: %+v", kind, n)
			continue
		}
		for _, a := range read(t, n.Policies[0].Document)[0] {
			if service, name, ok := strings.Cut(a, ":"); !ok || service == "" || name == "" || strings.Count(a, "*") > 2 || service == "*" {
				t.Errorf("%s: %q is no action", kind, a)
			}
		}
	}
	if n := len(sessionpolicy.Mapped()); n < 2000 {
		t.Errorf("the table has %d types, want more than 2000", n)
	}
}
