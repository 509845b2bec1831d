package control_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/config"
)

// with synthesizes the stack with changed props, without its bootstrap parameter.
func with(t *testing.T, change func(*control.Props)) (infratest.Template, infratest.Stack) {
	t.Helper()
	p := props()
	change(&p)
	template, findings, err := infratest.Synth(t.TempDir(), func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, p) })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
	s, err := template.Resolve(map[string]string{"BootstrapVersion": "/cdk-bootstrap/hnb659fds/version"})
	if err != nil {
		t.Fatal(err)
	}
	return template, s
}

// Without a build runner, the stack has no resource for a build runner and no cost.
// All other resources are the same with and without a build runner.
func TestBuildRunnerIsOptional(t *testing.T) {
	without, _ := with(t, func(p *control.Props) { p.Build = control.Build{} })
	for id, r := range without.Resources {
		if strings.HasPrefix(r.Type, "AWS::ECS::") || strings.HasPrefix(r.Type, "AWS::EC2::") || strings.HasPrefix(id, "BuildRunner") {
			t.Errorf("%s (%s) exists without a configured build runner", id, r.Type)
		}
	}
	whole := synth(t).template
	for section, added := range map[string]func(id string) bool{
		"Resources": func(id string) bool { return strings.HasPrefix(id, "BuildRunner") },
		"Outputs":   func(id string) bool { return id == "BuildRunner" },
	} {
		rest := maps.Clone(whole.Raw[section].(map[string]any))
		before := len(rest)
		maps.DeleteFunc(rest, func(id string, _ any) bool { return added(id) })
		if len(rest) == before {
			t.Errorf("the build runner adds nothing to the %s", section)
		}
		if !reflect.DeepEqual(rest, without.Raw[section]) {
			t.Errorf("the build runner changes the %s of the control plane", section)
		}
	}
}

// The task sets only variables that an agent reads and that this agent needs.
func TestBuildRunnerGetsDeclaredEnvironment(t *testing.T) {
	var known []string
	for _, v := range config.Variables(&config.Runner{}) {
		known = append(known, v.Name)
	}
	got := infratest.TaskEnvironment(t, stack(t), "BuildRunnerTask")
	for name := range got {
		if !slices.Contains(known, name) {
			t.Errorf("the build runner's task sets %s, which the runner does not read", name)
		}
	}
	want := map[string]string{"FAIRLEAD_URL": "https://fairlead.example.com", "FAIRLEAD_IDENTITY": "aws-iam", "FAIRLEAD_RUNNER_ID": props().Build.Runner,
		"FAIRLEAD_TRUSTED_KEYS": props().Build.Keys[0], "FAIRLEAD_RUNNER_DATA": "/var/lib/fairlead-runner", "FAIRLEAD_DRAIN_FOR": "1m20s",
		"FAIRLEAD_LOG_LEVEL": "info", "FAIRLEAD_SHARE_LOG": "true", "FAIRLEAD_ALLOW_PLAIN_HTTP": "false"}
	if !maps.Equal(got, want) {
		t.Errorf("the environment of the build runner is %q, want %q", got, want)
	}
}

// The build runner uses the same image as customers, from the stack's own registry.
// The name of its role is known before the role exists. The role has no policy.
func TestBuildRunnerRoleHasNoPolicy(t *testing.T) {
	s := stack(t)
	task := s.Resources["BuildRunnerTask"].Properties
	image := fmt.Sprint(task["ContainerDefinitions"].([]any)[0].(map[string]any)["Image"])
	if want := fmt.Sprint(s.Resources["ControlAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["FAIRLEAD_RUNNER_IMAGE"]); image != want {
		t.Errorf("the build runner's image is %s, the customers' is %s", image, want)
	}
	role := s.Resources["BuildRunnerRole"].Properties
	if len(s.Policies("BuildRunnerRole")) > 0 || role["ManagedPolicyArns"] != nil {
		t.Errorf("the build runner's role has policies: %v", role)
	}
	const arn = "arn:aws:iam::111122223333:role/fairlead-test-build-runner-eu-central-1"
	if s.ARN("BuildRunnerRole") != arn || task["TaskRoleArn"] != arn {
		t.Errorf("the build runner's role is %s, its task has %v", s.ARN("BuildRunnerRole"), task["TaskRoleArn"])
	}
	// The permissions that AWS documents for a task with an image from ECR and a log
	// in CloudWatch.
	var actions []string
	for _, st := range infratest.Statements(s.Policies("BuildRunnerExecutionRole")[0]) {
		for _, a := range st["Action"].([]any) {
			actions = append(actions, a.(string))
		}
	}
	slices.Sort(actions)
	want := []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer", "logs:CreateLogStream", "logs:PutLogEvents"}
	if !slices.Equal(actions, want) {
		t.Errorf("the execution role of the build runner may %q, want %q", actions, want)
	}
}

func TestBuildRunnerUsesConfiguredNetwork(t *testing.T) {
	place := func(s infratest.Stack) string {
		return fmt.Sprint(s.Resources["BuildRunnerService"].Properties["NetworkConfiguration"])
	}
	if got := place(stack(t)); !strings.Contains(got, "AssignPublicIp:ENABLED") || !strings.Contains(got, "buildrunnerpublicsubnet1 buildrunnerpublicsubnet2") {
		t.Errorf("by default: %s", got)
	}
	if p := stack(t).Resources["BuildRunnerTask"].Properties; fmt.Sprint(p["Cpu"], " ", p["Memory"]) != "256 512" {
		t.Errorf("by default it has %v and %v", p["Cpu"], p["Memory"])
	}
	for _, tt := range []struct {
		public bool
		want   string
	}{{false, "AssignPublicIp:DISABLED"}, {true, "AssignPublicIp:ENABLED"}} {
		_, s := with(t, func(p *control.Props) {
			p.Build.VPC, p.Build.Subnets, p.Build.PublicIP, p.Build.Size = "vpc-0a1b2c3d", []string{"subnet-0a1b2c3d", "subnet-0e1f2a3b"}, tt.public, "Large"
		})
		if got := place(s); !strings.Contains(got, tt.want) || !strings.Contains(got, "[subnet-0a1b2c3d subnet-0e1f2a3b]") || s.Resources["BuildRunnerSecurityGroup"].Properties["VpcId"] != "vpc-0a1b2c3d" {
			t.Errorf("in the vendor's VPC: %s", got)
		}
		if p := s.Resources["BuildRunnerTask"].Properties; fmt.Sprint(p["Cpu"], " ", p["Memory"]) != "1024 2048" {
			t.Errorf("Large has %v and %v", p["Cpu"], p["Memory"])
		}
		for id, r := range s.Resources {
			if strings.HasPrefix(r.Type, "AWS::EC2::") && id != "BuildRunnerSecurityGroup" {
				t.Errorf("in the vendor's VPC, the stack makes %s", id)
			}
		}
	}
}

// Each context key that `make deploy` passes is one that the stack reads.
func TestDeploymentPassesKnownContextKeys(t *testing.T) {
	read := map[string]bool{}
	if _, err := control.FromContext(func(key string) string { read[key] = true; return "" }); err != nil {
		t.Fatal(err)
	}
	passed := 0
	files, err := os.ReadDir("../../tools/deployment")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile("../../tools/deployment/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"-c", "(\w+)=`).FindAllStringSubmatch(string(text), -1) {
			if passed++; !read[m[1]] {
				t.Errorf("the deployment passes %s, which the stack does not read", m[1])
			}
		}
	}
	if passed == 0 {
		t.Error("the deployment passes no context key")
	}
}
