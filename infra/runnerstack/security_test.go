package runnerstack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/tools/shortrun"
)

const (
	install    = "ins_01hzy3v5k8d9m0q2r4t6w8x0z1"
	externalID = "fl-6f1d0c2b9e7a4f35"
)

// given returns values of the parameters without defaults, and more, as pairs of name
// and value.
func given(more ...string) map[string]string {
	values := map[string]string{
		"ControlPlaneUrl": "https://fairlead.example.com", "InstallId": install, "RunnerId": "run_01jg00000000000000000000ab", "ExternalId": externalID,
		"TrustedKeys": strings.Repeat("A", 43), "RunnerImage": "999988887777.dkr.ecr.eu-central-1.amazonaws.com/fairlead/runner@sha256:" + strings.Repeat("0", 64),
	}
	for i := 0; i < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}
	return values
}

func stack(t *testing.T, more ...string) infratest.Stack {
	t.Helper()
	s, err := synth(t).template.Resolve(given(more...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLint(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	infratest.Lint(t, synth(t).template, map[string]string{
		"I1022": "the CDK writes Fn::Join for each reference in a text; both functions give the same text, and the published template has Fn::Sub",
	})
}

// A tag can move: with one, the vendor could change what a stack runs without its customer.
func TestImageParameterTakesOnlyADigest(t *testing.T) {
	const repository = "999988887777.dkr.ecr.eu-central-1.amazonaws.com/fairlead/runner"
	digest := "@sha256:" + strings.Repeat("0a", 32)
	values := map[string]bool{
		repository + digest:                     true,
		"registry.example:5000/runner" + digest: true,
		repository:                              false,
		repository + ":latest":                  false,
		repository + ":v1.2.3":                  false,
		repository + digest[:20]:                false,
		repository + digest + ":latest":         false,
		repository + "@md5:" + digest[8:]:       false,
		digest:                                  false,
		"":                                      false,
	}
	list := slices.Sorted(maps.Keys(values))
	for i, accepted := range infratest.Accepts(t, synth(t).template, wire.StackRunnerImage, list) {
		if accepted != values[list[i]] {
			t.Errorf("RunnerImage=%q: accepted %t", list[i], accepted)
		}
	}
	// The value of the parameter is the whole image of both tasks, so nothing replaces the digest.
	image := given()[wire.StackRunnerImage]
	for _, task := range []string{"RunnerTask", "StepTask"} {
		containers := stack(t).Resources[task].Properties["ContainerDefinitions"].([]any)
		if got := containers[0].(map[string]any)["Image"]; got != image {
			t.Errorf("the image of %s is %v, want the parameter's, %s", task, got, image)
		}
	}
}

func TestCheckov(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	infratest.Checkov(t, synth(t).template, map[string]string{
		"CKV_AWS_18 StateBucket": "who reads states is in CloudTrail, with the job as the session's name",
		"CKV_AWS_65 Cluster":     "container insights cost more than the agent, and what a task needs is in the metrics of ECS",
		"CKV_AWS_136 Artifacts":  "ECR encrypts each repository with AWS's own key; the content is the vendor's, who has it anyway",
		"CKV_AWS_136 Images":     "ECR encrypts each repository with AWS's own key; the content is the vendor's, who has it anyway",
	})
}

func TestGuard(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	infratest.Guard(t, synth(t).template, map[string]string{
		"cloudwatch_log_group_retention_period_check":             "how long the runner's own log is kept is the customer's choice",
		"cloudwatch_log_group_encrypted_check":                    "CloudWatch encrypts every group; what jobs write is not in this one",
		"ecr_private_lifecycle_policy_configured_check":           "what is deployed is pulled again by its digest, so nothing expires",
		"ecs_container_insights_enabled_check":                    "one task, whose metrics come with ECS",
		"ecs_task_definition_memory_hard_limit_check":             "the task has one container, which may use all of the task's memory",
		"ecs_service_assign_public_ip_disabled_check":             "an address without a way in spares the NAT gateway; the customer can choose one",
		"iam_managed_policy_no_statements_with_full_access_check": "the boundary is a ceiling and gives nothing",
		"iam_inline_policy_no_statements_with_full_access_check":  "which services the app uses is the customer's choice, under the boundary",
		"kms_create_grant_aws_service_check":                      "the account's own statement covers it, as in every key policy that AWS makes",
		"s3_bucket_logging_enabled_check":                         "who reads states is in CloudTrail, with the job as the session's name",
		"s3_event_notifications_enabled_check":                    "nothing waits for a state",
		"s3_bucket_object_lock_enabled_check":                     "a state is overwritten with each apply; versions are kept, and the boundary guards them",
	})
}

// The template is complete: the installation needs nothing else, and a reader sees all
// of it.
func TestTemplateIsSelfContained(t *testing.T) {
	template := synth(t).template
	text, err := os.ReadFile(template.File)
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"cdk-bootstrap", "BootstrapVersion", "AWS::Lambda", "Custom::", "AWS::CloudFormation::CustomResource", "AWS::CloudFormation::Stack",
		"UserData", `"SecretString"`, "resolve:", "NoEcho", "AWS::IAM::User", "AWS::IAM::AccessKey", "http://", "curl", "Asset"} {
		if strings.Contains(string(text), never) {
			t.Errorf("the template has %q", never)
		}
	}
	for name, p := range template.Raw["Parameters"].(map[string]any) {
		if p.(map[string]any)["Description"] == nil {
			t.Errorf("the parameter %s is not explained", name)
		}
	}
}

func TestStackSetsDeclaredEnvironment(t *testing.T) {
	environment := infratest.TaskEnvironment(t, stack(t), "RunnerTask")
	known, required := map[string]bool{}, []string{}
	for _, v := range config.Variables(&config.Runner{}) {
		known[v.Name] = true
	}
	for _, v := range config.Variables(&config.RunnerStack{}) {
		known[v.Name] = true
		required = append(required, v.Name)
	}
	for name := range environment {
		if !known[name] {
			t.Errorf("the task sets %s, which the runner does not read", name)
		}
	}
	for _, name := range append(required, "FAIRLEAD_URL", "FAIRLEAD_RUNNER_DATA", "FAIRLEAD_DRAIN_FOR") {
		if _, ok := environment[name]; !ok {
			t.Errorf("the task does not set %s", name)
		}
	}
}

// EC2 refuses a description with an apostrophe. After such a refusal,
// CloudFormation rolls the stack back.
func TestEC2TakesTheSecurityGroups(t *testing.T) { infratest.SecurityGroupsAreTaken(t, stack(t)) }

func TestSecurityProperties(t *testing.T) {
	s := stack(t)
	infratest.BucketsAreSafe(t, s)
	infratest.AllowsAreNarrow(t, s, infratest.Narrow{ResourceLess: []string{"ecr:GetAuthorizationToken", "iam:Get*", "iam:List*", "ecs:ListTasks"},
		Except: []string{"Boundary/Services", "Boundary/States", "Boundary/AppRoles", "ProvisionRole/App", "DeployRole/App", "DeprovisionRole/App"}})

	infratest.ARNsNameTheirType(t, s)
	infratest.TasksAreConfined(t, s)
	for id, r := range s.Resources {
		if r.Type == "AWS::IAM::Role" && id != "ExecutionRole" && id != "RunnerRole" && !strings.HasSuffix(id, "StepRole") && r.Properties["PermissionsBoundary"] == nil {
			t.Errorf("%s has no boundary", id)
		}
		if r.Type == "AWS::IAM::ManagedPolicy" {
			size := policySize(t, r)
			t.Logf("%s has %d characters", id, size)
			if size > 6144 {
				t.Errorf("%s has %d characters; IAM accepts 6,144", id, size)
			}
		}
		if r.Type == "AWS::IAM::Role" {
			total := 0
			for _, p := range s.Policies(id) {
				text, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				total += len(text)
			}
			if total > 10_240 {
				t.Errorf("the policies of %s have %d characters; IAM accepts 10,240", id, total)
			}
		}
	}
}

// Each parameter has the effect that its description states.
func TestParameters(t *testing.T) {
	service := func(s infratest.Stack) map[string]any { return s.Resources["RunnerService"].Properties }
	environment := func(s infratest.Stack) map[string]string { return infratest.TaskEnvironment(t, s, "RunnerTask") }
	subnets := func(s infratest.Stack) string {
		return fmt.Sprint(service(s)["NetworkConfiguration"])
	}
	base := stack(t)
	if fmt.Sprint(service(base)["DesiredCount"]) != "1" || !strings.Contains(subnets(base), "AssignPublicIp:ENABLED") || !strings.Contains(subnets(base), "publicsubnet1 publicsubnet2") {
		t.Errorf("by default: %v", service(base))
	}
	if _, ok := base.Resources["NatGateway"]; ok {
		t.Error("by default there is a NAT gateway, which costs money")
	}

	off := stack(t, "RunnerState", "Disabled")
	if fmt.Sprint(service(off)["DesiredCount"]) != "0" {
		t.Errorf("disabled, the service wants %v tasks", service(off)["DesiredCount"])
	}
	if missing := without(base, off); len(missing) > 0 {
		t.Errorf("disabling the runner removes %v", missing)
	}

	behind := stack(t, "NetworkMode", "NewVpcNat")
	if !strings.Contains(subnets(behind), "AssignPublicIp:DISABLED") || !strings.Contains(subnets(behind), "privatesubnet1 privatesubnet2") || behind.Resources["NatGateway"].Type == "" {
		t.Errorf("behind a NAT gateway: %v", subnets(behind))
	}
	own := stack(t, "NetworkMode", "ExistingVpc", "VpcId", "vpc-0a", "SubnetIds", "subnet-1,subnet-2")
	if !strings.Contains(subnets(own), "AssignPublicIp:DISABLED") || !strings.Contains(subnets(own), "subnet-1 subnet-2") || own.Resources["RunnerSecurityGroup"].Properties["VpcId"] != "vpc-0a" {
		t.Errorf("in a VPC of the customer: %v", subnets(own))
	}
	for id, r := range own.Resources {
		if strings.HasPrefix(r.Type, "AWS::EC2::") && id != "RunnerSecurityGroup" {
			t.Errorf("in a VPC of the customer, the stack makes %s", id)
		}
	}
	if got := fmt.Sprint(stack(t, "NetworkMode", "ExistingVpc", "VpcId", "vpc-0a", "SubnetIds", "subnet-1", "AssignPublicIp", "ENABLED").Resources["RunnerService"]); !strings.Contains(got, "AssignPublicIp:ENABLED") {
		t.Errorf("with an address in a VPC of the customer: %v", got)
	}
	// Pairs of CPU and memory that Fargate supports.
	pairs := map[string]string{"Small": "256 512", "Medium": "512 1024", "Large": "1024 2048", "XLarge": "2048 4096"}
	for size, want := range pairs {
		for _, of := range []struct{ isolation, task, want string }{
			{"Task", "StepTask", want}, {"Task", "RunnerTask", pairs["Small"]}, {"Process", "RunnerTask", want},
		} {
			p := stack(t, "RunnerSize", size, "Isolation", of.isolation).Resources[of.task].Properties
			if got := fmt.Sprint(p["Cpu"], " ", p["Memory"]); got != of.want {
				t.Errorf("%s of isolation %s is %s at size %s, want %s", of.task, of.isolation, got, size, of.want)
			}
		}
	}
	// The agent starts tasks with the roles of steps, or processes.
	var file struct {
		Final  bool
		Runner struct {
			Type string
			Job  struct {
				Cluster        string
				Subnets        []string
				SecurityGroups []string `json:"security_groups"`
				PublicIP       bool     `json:"public_ip"`
				TaskDefinition string   `json:"task_definition"`
			}
		} `json:"runner_configuration"`
	}
	if err := json.Unmarshal([]byte(environment(base)["FAIRLEAD_AGENT_CONFIG"]), &file); err != nil {
		t.Fatal(err)
	}
	if j := file.Runner.Job; !file.Final || file.Runner.Type != "aws-ecs" || len(j.Subnets) != 2 || len(j.SecurityGroups) != 1 || !j.PublicIP || j.TaskDefinition == "" || j.Cluster == "" {
		t.Errorf("the agent's file is %s", environment(base)["FAIRLEAD_AGENT_CONFIG"])
	}
	// Warm tasks are a setting of the agent. They need no permission that it does not have.
	for number, want := range map[string]int{"0": 0, "3": 3} {
		s := stack(t, "WarmTasks", number)
		text := strings.NewReplacer("publicsubnet", "subnet-0123456", "GroupId-of-runnersecuritygroup", "sg-01234567").Replace(environment(s)["FAIRLEAD_AGENT_CONFIG"])
		own, problems := runnerspec.ParseAgent("file", []byte(text))
		if len(problems) > 0 || own.Runner.(*runnerspec.ECSRunner).Job.WarmTasks != want {
			t.Errorf("with WarmTasks %s the agent's file is %s: %v", number, text, problems)
		}
		for id, r := range s.Resources {
			if strings.HasPrefix(r.Type, "AWS::IAM::") && !reflect.DeepEqual(r, base.Resources[id]) {
				t.Errorf("with WarmTasks %s, %s differs", number, id)
			}
		}
	}
	processes := stack(t, "Isolation", "Process")
	for name, of := range map[string]bool{"FAIRLEAD_STEP_ROLE_PROVISION": true, "FAIRLEAD_ROLE_PROVISION": false} {
		if got := environment(processes)[name]; (got == "") != of {
			t.Errorf("with processes %s is %q", name, got)
		}
	}
	for size, jobs := range map[string]int{"Small": 1, "Medium": 1, "Large": 2, "XLarge": 4} {
		text := environment(stack(t, "Isolation", "Process", "RunnerSize", size))["FAIRLEAD_AGENT_CONFIG"]
		own, problems := runnerspec.ParseAgent("file", []byte(text))
		if len(problems) > 0 || own.Runner.Kind() != runnerspec.Local || !own.Final {
			t.Fatalf("with processes the agent's file is %s: %v", text, problems)
		}
		if common, _ := runnerspec.Shared(own.Runner); common.Concurrency != jobs {
			t.Errorf("a task of size %s runs %d processes at once, want %d, one for each GiB", size, common.Concurrency, jobs)
		}
	}
	// The customer who chooses this in the console reads there what it gives up.
	described := synth(t).template.Raw["Parameters"].(map[string]any)["Isolation"].(map[string]any)["Description"].(string)
	for _, given := range []string{"does not protect", "at the same time", "memory, files and credentials", "roles of all operations", "one at a time for each GiB"} {
		if _, of, ok := strings.Cut(described, "Process: "); !ok || !strings.Contains(of, given) {
			t.Errorf("the description of Isolation does not name %q: %s", given, described)
		}
	}
	for _, id := range []string{"StepTask", "ProvisionStepRole", "ReadOnlyStepRole"} {
		if _, ok := processes.Resources[id]; ok {
			t.Errorf("with processes there is still %s", id)
		}
	}
}

func without(a, b infratest.Stack) (missing []string) {
	for id := range maps.Keys(a.Resources) {
		if _, ok := b.Resources[id]; !ok {
			missing = append(missing, id)
		}
	}
	return missing
}

// TestFailedFirstCreationLeavesNothing: the rollback of a first creation removes the
// bucket, the key, the seed and the boundary. After a successful creation they outlive the stack,
// because the bucket has the states, the key encrypts them, the seed opens secrets, and roles of
// the app still have the boundary.
func TestFailedFirstCreationLeavesNothing(t *testing.T) {
	var kept []string
	for id, r := range stack(t).Resources {
		if !r.Stays() {
			continue
		}
		kept = append(kept, id)
		if r.DeletionPolicy != "RetainExceptOnCreate" {
			t.Errorf("a failed creation leaves %s behind: %s", id, r.DeletionPolicy)
		}
	}
	slices.Sort(kept)
	if want := []string{"Boundary", "InstallKeySeed", "StateBucket", "StateBucketPolicy", "StateKey"}; !slices.Equal(kept, want) {
		t.Errorf("%q outlive the stack, want %q", kept, want)
	}
}

// A change between Enabled and Paused changes only the value of the parameter that the
// runner reads, so ECS replaces no task and interrupts no job.
func TestPausingReplacesNoTask(t *testing.T) {
	const name = "/fairlead/" + install + "/mode"
	environment := func(s infratest.Stack) map[string]string { return infratest.TaskEnvironment(t, s, "RunnerTask") }
	base := stack(t)
	for state, want := range map[string]string{"Enabled": "enabled", "Paused": "paused", "Disabled": "disabled"} {
		s := stack(t, "RunnerState", state)
		mode := s.Resources["RunnerMode"].Properties
		if mode["Value"] != want || mode["Name"] != name || environment(s)["FAIRLEAD_MODE_PARAMETER"] != name {
			t.Errorf("%s: the parameter %v has the value %v, and the runner reads %s", state, mode["Name"], mode["Value"], environment(s)["FAIRLEAD_MODE_PARAMETER"])
		}
		if allowed := regexp.MustCompile(fmt.Sprint(mode["AllowedPattern"])); !allowed.MatchString(want) || !allowed.MatchString("paused: month-end closing") || allowed.MatchString("off") {
			t.Errorf("the parameter allows %s", allowed)
		}
		if state == "Disabled" {
			continue
		}
		for id, r := range s.Resources {
			if id != "RunnerMode" && !reflect.DeepEqual(r, base.Resources[id]) {
				t.Errorf("%s changes the resource %s", state, id)
			}
		}
	}
}
