package runnerstack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// A stack is deleted, and its bucket and key stay. A new stack of the same install gets
// both as parameters, and its roles open the states. The earlier stack's policies of the
// bucket and the key decide about that, because the new stack has none.
func TestReinstalledStackOpensEarlierStates(t *testing.T) {
	const another = "ins_01hzy3v5k8d9m0q2r4t6w8x0z2"
	earlier := stack(t)
	bucket, key := earlier.ARN("StateBucket"), earlier.ARN("StateKey")
	again := []string{"ExistingStateBucket", strings.TrimPrefix(bucket, "arn:aws:s3:::"), "ExistingStateKey", key}
	mine, other := stack(t, again...), stack(t, append(again, "InstallId", another)...)
	for _, id := range []string{"StateBucket", "StateBucketPolicy", "StateKey"} {
		if _, ok := mine.Resources[id]; ok {
			t.Errorf("the new stack makes %s although it got the earlier one", id)
		}
	}
	environment := infratest.TaskEnvironment(t, mine, "RunnerTask")
	if got, want := environment["FAIRLEAD_STATE_BUCKET"]+" "+environment["FAIRLEAD_STATE_KEY"], again[1]+" "+key; got != want {
		t.Errorf("the new runner reports the bucket and the key %s, want %s", got, want)
	}
	rows := []struct {
		in               infratest.Stack
		role             string
		action, resource string
		allowed          bool
		what             string
	}{
		{mine, "ReadOnlyRole", "s3:GetObject", bucket + "/state/web.tfstate", true, "a plan reads the earlier state"},
		{mine, "ReadOnlyRole", "kms:Decrypt", key, true, "a plan opens the earlier state"},
		{mine, "ReadOnlyRole", "s3:PutObject", bucket + "/state/web.tfstate", false, "a plan writes the earlier state"},
		{mine, "ProvisionRole", "s3:PutObject", bucket + "/state/web.tfstate", true, "an apply continues the earlier state"},
		{mine, "ProvisionRole", "kms:GenerateDataKey", key, true, "an apply encrypts with the earlier key"},
		{mine, "DeprovisionRole", "s3:PutObject", bucket + "/state/web.tfstate", true, "a teardown continues the earlier state"},
		{mine, "ProvisionRole", "s3:DeleteBucket", bucket, false, "an apply removes the earlier bucket"},
		{mine, "ProvisionRole", "s3:DeleteObjectVersion", bucket + "/state/web.tfstate", false, "an apply removes versions of the earlier state"},
		{mine, "ProvisionRole", "kms:ScheduleKeyDeletion", key, false, "an apply removes the earlier key"},
		{other, "ProvisionRole", "s3:GetObject", bucket + "/state/web.tfstate", false, "a stack of another install takes the bucket as its own"},
		{other, "ProvisionRole", "kms:Decrypt", key, false, "a stack of another install takes the key as its own"},
	}
	var questions []infratest.Question
	for _, r := range rows {
		q := infratest.Question{Principal: r.in.ARN(r.role), Action: r.action, Resource: r.resource, Account: infratest.Account, Identity: append(r.in.Policies(r.role), managed(t, r.in, r.role)...),
			Boundary:  r.in.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any),
			ResourceP: earlier.Resources["StateBucketPolicy"].Properties["PolicyDocument"].(map[string]any)}
		if r.resource == key {
			q.ResourceP = earlier.Resources["StateKey"].Properties["KeyPolicy"].(map[string]any)
		}
		questions = append(questions, q)
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s: %t, want %t", r.what, allowed, r.allowed)
		}
	}
}

// A stack says which of bucket and key it made: what existed before may be the customer's own,
// and neither its output nor the vendor's list may advise to remove it.
func TestStackNamesWhatItMade(t *testing.T) {
	const key = "arn:aws:kms:eu-central-1:111122223333:key/0aa0aa00"
	for _, tt := range []struct {
		made    string
		existed int // of bucket and key
		given   []string
	}{
		{"bucket,key", 0, nil},
		{"bucket", 1, []string{"ExistingStateKey", key}},
		{"", 2, []string{"ExistingStateBucket", "bucket-of-an-earlier-stack", "ExistingStateKey", key}},
	} {
		s := stack(t, tt.given...)
		if got := infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_STATES_MADE"]; got != tt.made {
			t.Errorf("with %q the runner reports that the stack made %q, want %q", tt.given, got, tt.made)
		}
		out, err := s.Output("RetainedResources")
		if n := strings.Count(fmt.Sprint(out), "it existed before this stack: keep it"); err != nil || n != tt.existed {
			t.Errorf("with %q the output says of %d resources that they existed before, want %d: %v, %v", tt.given, n, tt.existed, out, err)
		}
	}
}

// The role of ECS stays when its stack is deleted. A new stack that makes it again fails, so the list of what stays names it.
func TestStackNamesTheRoleOfECSThatItMade(t *testing.T) {
	for choice, named := range map[string]bool{"Exists": false, "Create": true} {
		s := stack(t, "EcsServiceLinkedRole", choice)
		_, made := s.Resources["EcsServiceRole"]
		out, err := s.Output("RetainedResources")
		if got := strings.Contains(fmt.Sprint(out), "AWSServiceRoleForECS"); err != nil || made != named || got != named {
			t.Errorf("%s: the stack makes the role: %t, its output names it: %t, want %t: %v, %v", choice, made, got, named, out, err)
		}
	}
}

// The optional parts of the stack exist only if the customer asks for them.
func TestOptionalPartsAreTheCustomersChoice(t *testing.T) {
	const key = "arn:aws:kms:eu-central-1:111122223333:key/0aa0aa00"
	base := stack(t)
	for _, id := range []string{"FlowLog", "FlowLogGroup", "FlowLogRole", "EcsServiceRole"} {
		if _, ok := base.Resources[id]; ok {
			t.Errorf("by default the stack makes %s", id)
		}
	}
	if base.Resources["RunnerLog"].Properties["KmsKeyId"] != nil {
		t.Error("by default the log group has a key")
	}

	own := stack(t, "ExistingStateKey", key, "LogKeyArn", key, "FlowLogs", "Enabled")
	if _, ok := own.Resources["StateKey"]; ok {
		t.Error("the stack makes a key although the customer gave one")
	}
	if got := fmt.Sprint(own.Resources["StateBucket"].Properties["BucketEncryption"]); !strings.Contains(got, key) {
		t.Errorf("the customer's key does not encrypt the states: %s", got)
	}
	for _, id := range []string{"RunnerLog", "FlowLogGroup"} {
		if own.Resources[id].Properties["KmsKeyId"] != key {
			t.Errorf("the customer's key does not encrypt %s", id)
		}
	}
	flows := own.Resources["FlowLog"].Properties
	if flows["ResourceId"] != "vpc" || flows["TrafficType"] != "ALL" {
		t.Errorf("the flow log records %v", flows)
	}
	if _, ok := stack(t, "FlowLogs", "Enabled", "NetworkMode", "ExistingVpc", "VpcId", "vpc-0a", "SubnetIds", "subnet-1").Resources["FlowLog"]; ok {
		t.Error("the stack records connections of the customer's own VPC")
	}

	// ECS makes the role with the first cluster, and then fails for some seconds.
	fresh := stack(t, "EcsServiceLinkedRole", "Create")
	role := fresh.Resources["EcsServiceRole"]
	if role.Properties["AWSServiceName"] != "ecs.amazonaws.com" || role.DeletionPolicy != "Retain" {
		t.Errorf("the role of ECS is %v; other clusters of the account need it after the stack", role)
	}
	if tags := fmt.Sprint(fresh.Resources["Cluster"].Properties["Tags"]); !strings.Contains(tags, "ecsservicerole") || !strings.Contains(tags, "publicsubnet1routes") {
		t.Errorf("the cluster does not wait for the role and the network: %s", tags)
	}
}
