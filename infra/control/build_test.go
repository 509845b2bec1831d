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
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// with synthesizes the stack with changed props.
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
	s, err := template.Resolve(given())
	if err != nil {
		t.Fatal(err)
	}
	return template, s
}

// Without a build runner, the stack has no resource for a build runner and no cost.
// All other resources are the same with and without a build runner.
func TestBuildRunnerIsOptional(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	values := given()
	values[control.ParameterBuildRunner] = control.None
	without, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range without.Resources {
		place := strings.HasPrefix(r.Type, "AWS::ECS::") || strings.HasPrefix(r.Type, "AWS::EC2::")
		if place && !strings.HasPrefix(id, "Direct") || strings.HasPrefix(id, "BuildRunner") {
			t.Errorf("%s (%s) exists without a configured build runner", id, r.Type)
		}
	}
	rest := maps.Clone(stack(t).Resources)
	before := len(rest)
	maps.DeleteFunc(rest, func(id string, _ infratest.Resource) bool { return strings.HasPrefix(id, "BuildRunner") })
	if len(rest) == before {
		t.Error("the build runner adds no resource")
	}
	if !reflect.DeepEqual(rest, without.Resources) {
		t.Error("the build runner changes other resources of the control plane")
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
	want := map[string]string{"FAIRLEAD_URL": "https://fairlead.example.com", "FAIRLEAD_IDENTITY": "aws-iam", "FAIRLEAD_RUNNER_ID": given()[control.ParameterBuildRunner],
		"FAIRLEAD_TRUSTED_KEYS": given()[control.ParameterBuildKeys], "FAIRLEAD_RUNNER_DATA": "/var/lib/fairlead-runner", "FAIRLEAD_DRAIN_FOR": "1m20s",
		"FAIRLEAD_LOG_LEVEL": "info", "FAIRLEAD_SHARE_LOG": "true", "FAIRLEAD_ALLOW_PLAIN_HTTP": "false"}
	if !maps.Equal(got, want) {
		t.Errorf("the environment of the build runner is %q, want %q", got, want)
	}
}

// The build runner uses the image with a shell and git, from the stack's own registry.
// The name of its role is known before the role exists. The role has no policy.
func TestBuildRunnerRoleHasNoPolicy(t *testing.T) {
	s := stack(t)
	task := s.Resources["BuildRunnerTask"].Properties
	image := fmt.Sprint(task["ContainerDefinitions"].([]any)[0].(map[string]any)["Image"])
	if want := "RepositoryUri-of-fairlead-test/runner@" + given()[control.ParameterShell]; image != want {
		t.Errorf("the build runner's image is %s, the one with git is %s", image, want)
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
			if strings.HasPrefix(r.Type, "AWS::EC2::") && !strings.HasPrefix(id, "Direct") && id != "BuildRunnerSecurityGroup" {
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

// `make deploy` sets each parameter of the stack, and computes with the reservations that
// the stack makes.
func TestDeploymentKnowsParameters(t *testing.T) {
	text, err := os.ReadFile("../../tools/deployment/parameters.go")
	if err != nil {
		t.Fatal(err)
	}
	for name := range synth(t).template.Raw["Parameters"].(map[string]any) {
		if name != "BootstrapVersion" && !strings.Contains(string(text), `{"`+name+`",`) {
			t.Errorf("make deploy does not set the parameter %s", name)
		}
	}
	sum := 0.0
	for _, r := range stack(t).Resources {
		n, _ := r.Properties["ReservedConcurrentExecutions"].(float64)
		sum += n
	}
	if want := fmt.Sprintf("reserved          = %v ", sum); sum == 0 || !strings.Contains(string(text), want) {
		t.Errorf("make deploy computes with another sum than %v", sum)
	}
	values := given()
	values[control.ParameterReserves] = control.ReservesNot
	small, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range small.Resources {
		if r.Properties["ReservedConcurrentExecutions"] != nil {
			t.Errorf("%s reserves executions in an account with a quota of 10, where AWS refuses that", id)
		}
	}
}

// A stack without published values lets no account read anything, and has empty settings.
func TestUnsetParametersPublishNothing(t *testing.T) {
	s, err := synth(t).template.Resolve(map[string]string{"BootstrapVersion": given()["BootstrapVersion"]})
	if err != nil {
		t.Fatal(err)
	}
	environment := s.Resources["ControlAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
	if environment["FAIRLEAD_RUNNER_IMAGE"] != "" || environment["FAIRLEAD_STACK_TEMPLATE_URL"] != "" {
		t.Errorf("customers would get the image %v and the template %v", environment["FAIRLEAD_RUNNER_IMAGE"], environment["FAIRLEAD_STACK_TEMPLATE_URL"])
	}
	if p := s.Resources["RunnerImages"].Properties["RepositoryPolicyText"]; p != nil {
		t.Errorf("the registry has the policy %v", p)
	}
	if n := len(infratest.Statements(s.Resources["TemplatesPolicy"].Properties["PolicyDocument"])); n != 1 {
		t.Errorf("the policy of the bucket has %d statements, want only OnlyTLS", n)
	}
	if _, ok := s.Resources["AlarmsByMail"]; ok {
		t.Error("alarms go to a mail address")
	}
}

// A request of a stranger cannot use up the limit of a running job. The crowd of 10,000
// agents runs against the same limits.
func TestCrowdUsesTheRoutes(t *testing.T) {
	crowd, err := os.ReadFile("../../runner/agent/crowd_test.go")
	if err != nil {
		t.Fatal(err)
	}
	settings := stack(t).Resources["APIStage"].Properties["RouteSettings"].(map[string]any)
	routes := 0
	for _, r := range stack(t).Resources {
		if r.Type != "AWS::ApiGatewayV2::Route" {
			continue
		}
		routes++
		key := r.Properties["RouteKey"].(string)
		limit, ok := settings[key].(map[string]any)
		if !ok {
			t.Errorf("the route %s shares its limits with others", key)
			continue
		}
		path := strings.TrimSuffix(strings.TrimPrefix(key, "ANY "), "{proxy+}")
		if want := fmt.Sprintf("{%q, %v, %v}", path, limit["ThrottlingRateLimit"], limit["ThrottlingBurstLimit"]); strings.HasPrefix(path, "/runner/") && !strings.Contains(string(crowd), want) {
			t.Errorf("the crowd of agents does not run against the limit %s", want)
		}
	}
	if routes != len(settings) {
		t.Errorf("%d routes have %d limits", routes, len(settings))
	}
}

// A crowd of strangers uses up the executions of sessionapi. runnerapi serves running jobs, and
// must not serve a route of strangers.
func TestStrangersHaveTheirOwnFunction(t *testing.T) {
	s := stack(t)
	got := map[string][]string{}
	for _, r := range s.Resources {
		if r.Type != "AWS::ApiGatewayV2::Route" {
			continue
		}
		target := fmt.Sprint(r.Properties["Target"])
		for id, i := range s.Resources {
			if i.Type == "AWS::ApiGatewayV2::Integration" && strings.HasSuffix(strings.ToLower(target), "integrations/"+strings.ToLower(id)) {
				got[id] = append(got[id], r.Properties["RouteKey"].(string))
			}
		}
	}
	want := map[string][]string{
		"ControlAPIIntegration": {"ANY /v1/{proxy+}"},
		"SessionAPIIntegration": {"ANY /runner/v1/challenges", "ANY /runner/v1/enrol", "ANY /runner/v1/sessions"},
		"RunnerAPIIntegration":  {"ANY /runner/v1/claims", "ANY /runner/v1/jobs/{proxy+}", "ANY /runner/v1/{proxy+}"},
	}
	for id := range got {
		slices.Sort(got[id])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the functions serve %v, want %v", got, want)
	}
	for _, function := range []string{"SessionAPI", "RunnerAPI"} {
		if n, _ := s.Resources[function].Properties["ReservedConcurrentExecutions"].(float64); n == 0 {
			t.Errorf("%s has no executions of its own", function)
		}
	}
}

const (
	loginARN     = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:ghcr-AbCdEf"
	parameterARN = "arn:aws:ssm:eu-central-1:111122223333:parameter/fairlead/github"
)

// The agent's file of the build runner names the secrets, and its role may read exactly these. The role of builds in CodeBuild
// may read none. The resources that the setting changes are as reviewed: the tests of functions deploy them.
func TestOnlyTheBuildRunnerReadsItsLogins(t *testing.T) {
	template, s := with(t, func(p *control.Props) {
		p.Build.Secrets = []string{"GHCR_LOGIN=" + loginARN + "#login", "GHCR_TOKEN=" + loginARN + "#token", "GITHUB_TOKEN=" + parameterARN}
	})
	all, changed := template.Raw["Resources"].(map[string]any), map[string]any{}
	for _, id := range []string{"BuildRunnerRole", "BuildRunnerTask"} {
		changed[id] = all[id]
	}
	infratest.Golden(t, infratest.Template{Raw: map[string]any{"Resources": changed}}, "testdata/logins.template.json")
	file, problems := runnerspec.ParseAgent("file", []byte(infratest.TaskEnvironment(t, s, "BuildRunnerTask")["FAIRLEAD_AGENT_CONFIG"]))
	if want := map[string]string{"GHCR_LOGIN": loginARN + "#login", "GHCR_TOKEN": loginARN + "#token", "GITHUB_TOKEN": parameterARN}; len(problems) > 0 || !maps.Equal(file.Secrets, want) || file.Final {
		t.Errorf("the agent's file has the secrets %q and the problems %v, want %q", file.Secrets, problems, want)
	}
	const key = "arn:aws:kms:eu-central-1:111122223333:key/of-the-vendor"
	opens := map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": map[string]any{"AWS": "arn:aws:iam::" + infratest.Account + ":root"}}}}
	rows := []struct {
		role, action, resource string
		context                map[string]any
		allowed                bool
	}{
		{"BuildRunnerRole", "secretsmanager:GetSecretValue", loginARN, nil, true},
		{"BuildRunnerRole", "ssm:GetParameter", parameterARN, nil, true},
		{"BuildRunnerRole", "kms:Decrypt", key, map[string]any{"kms:ViaService": "secretsmanager.eu-central-1.amazonaws.com"}, true},
		{"BuildRunnerRole", "kms:Decrypt", key, nil, false},
		{"BuildRunnerRole", "secretsmanager:GetSecretValue", strings.Replace(loginARN, "ghcr", "payroll", 1), nil, false},
		{"BuildRunnerRole", "secretsmanager:PutSecretValue", loginARN, nil, false},
		{"BuildRunnerRole", "secretsmanager:ListSecrets", "*", nil, false},
		{"BuildRunnerRole", "ssm:GetParameter", parameterARN + "/other", nil, false},
		{"BuildRunnerExecutionRole", "secretsmanager:GetSecretValue", loginARN, nil, false},
		{"BuildRunnerImagesRole", "secretsmanager:GetSecretValue", loginARN, nil, false},
		{"BuildRunnerImagesRole", "ssm:GetParameter", parameterARN, nil, false},
	}
	var questions []infratest.Question
	for _, r := range rows {
		q := infratest.Question{Principal: s.ARN(r.role), Action: r.action, Resource: r.resource, Account: infratest.Account, Context: r.context, Identity: s.Policies(r.role)}
		if r.resource == key {
			q.ResourceP = opens
		}
		questions = append(questions, q)
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if r := rows[i]; allowed != r.allowed {
			t.Errorf("%s may %s on %s: %t, want %t", r.role, r.action, r.resource, allowed, r.allowed)
		}
	}
}

// An image of the vendor replaces the published one for the build runner only.
func TestBuildRunnerStartsTheImageOfTheSettings(t *testing.T) {
	own := "registry.example.com/fairlead/build-runner@sha256:" + strings.Repeat("5", 64)
	_, s := with(t, func(p *control.Props) { p.Build.Image = own })
	for id, r := range s.Resources {
		if r.Type == "AWS::ECS::TaskDefinition" {
			image := r.Properties["ContainerDefinitions"].([]any)[0].(map[string]any)["Image"]
			if (image == own) != (id == "BuildRunnerTask") {
				t.Errorf("%s starts the image %v", id, image)
			}
		}
	}
}
