package ecs_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/runner/executor/ecs"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

const (
	group    = "/fairlead/steps"
	region   = "eu-west-3" // not used elsewhere: other packages have clusters and task definitions of these names at the same server
	pullable = "runner"    // a task definition whose image exists
	broken   = "nothing"   // a task definition whose image does not exist
)

// Images of a step's own, each with a task definition as a customer's stack makes it. missing is in no registry.
const (
	runnerImage = "registry.example/runner@sha256:0123"
	ownImage    = "registry.example/acme/tools@sha256:1111111111111111111111111111111111111111111111111111111111111111"
	missing     = "127.0.0.1:1/missing/tools@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

func awsConfig(endpoint string, transport http.RoundTripper) aws.Config {
	return aws.Config{Region: region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""),
		HTTPClient: &http.Client{Transport: transport}}
}

// site is a cluster with task definitions, a network and a log group.
type site struct {
	cloud, subnet, group string
	of                   *ecstest.Cloud
	images               map[string]string // task definitions of images
}

func newSite(t *testing.T) site {
	t.Helper()
	endpoint := server.Endpoint(t)
	cfg := awsConfig(endpoint, http.DefaultTransport)
	api := awsecs.NewFromConfig(cfg)
	ctx := t.Context()
	if _, err := api.CreateCluster(ctx, &awsecs.CreateClusterInput{ClusterName: aws.String("runners")}); err != nil {
		t.Fatal(err)
	}
	for family, image := range map[string]string{pullable: runnerImage, broken: "registry.example/missing/image:1"} {
		if _, err := api.RegisterTaskDefinition(ctx, &awsecs.RegisterTaskDefinitionInput{Family: aws.String(family), NetworkMode: types.NetworkModeAwsvpc,
			RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
			ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String(ecs.Container), Image: &image, StopTimeout: aws.Int32(2), Cpu: 256, Memory: aws.Int32(512)}}}); err != nil {
			t.Fatal(err)
		}
	}
	logs := cloudwatchlogs.NewFromConfig(cfg)
	var there interface{ ErrorCode() string }
	if _, err := logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String(group)}); err != nil &&
		(!errors.As(err, &there) || there.ErrorCode() != "ResourceAlreadyExistsException") {
		t.Fatal(err)
	}
	c := ecstest.New(t, endpoint, executortest.Program(t), pullable, group, logs)
	c.Variables, c.Missing = map[string][]string{ownImage: {executortest.ImageSetting + "=of-the-image", "ONLY=of-the-image"}}, []string{missing}
	s := site{cloud: c.URL(), of: c, images: map[string]string{}, subnet: ecstest.Find(t, endpoint, region, "DescribeSubnets", "subnetId"), group: ecstest.Find(t, endpoint, region, "DescribeSecurityGroups", "groupId")}
	for family, image := range map[string]string{"script-1": ownImage, "script-2": missing} {
		s.images[image] = s.define(t, family, image, executor.CopyCommand)
	}
	return s
}

// define registers the task definition of an image as a customer's stack does. The first container runs the program of the runner's
// image with the command.
func (s site) define(t *testing.T, family, image, command string) (arn string) {
	t.Helper()
	program := func(readOnly bool) []types.MountPoint {
		return []types.MountPoint{{SourceVolume: aws.String("program"), ContainerPath: aws.String(executor.ImageFolder), ReadOnly: &readOnly}}
	}
	out, err := awsecs.NewFromConfig(awsConfig(s.cloud, http.DefaultTransport)).RegisterTaskDefinition(t.Context(), &awsecs.RegisterTaskDefinitionInput{
		Family: &family, NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
		Volumes: []types.Volume{{Name: aws.String("program")}},
		ContainerDefinitions: []types.ContainerDefinition{
			{Name: aws.String(ecs.CopyContainer), Image: aws.String(runnerImage), Essential: aws.Bool(false), Command: []string{command, executor.ImageFolder}, MountPoints: program(false), Memory: aws.Int32(64)},
			{Name: aws.String(ecs.Container), Image: &image, EntryPoint: []string{executor.ImageProgram}, MountPoints: program(true), Memory: aws.Int32(256),
				DependsOn: []types.ContainerDependency{{ContainerName: aws.String(ecs.CopyContainer), Condition: types.ContainerConditionSuccess}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return *out.TaskDefinition.TaskDefinitionArn
}

func (s site) options(root string) ecs.Options {
	return ecs.Options{Steps: root, Runner: "run_1", AWS: awsConfig(s.cloud, http.DefaultTransport), Every: 20 * time.Millisecond, Job: runnerspec.ECSJob{
		Cluster: "runners", Subnets: []string{s.subnet}, SecurityGroups: []string{s.group}, TaskDefinition: pullable, ImageDefinitions: s.images,
		CPU: 250, Memory: 64 << 20, LogGroup: group, PassEnv: []string{}, JobCommon: runnerspec.JobCommon{StartTimeout: runnerspec.Duration(time.Minute)}}}
}

func open(t *testing.T, o ecs.Options) executor.Executor {
	t.Helper()
	e, err := ecs.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestExecutor(t *testing.T) {
	s := newSite(t)
	executortest.Run(t, executortest.Subject{
		New: func(t *testing.T, root string, via func(http.RoundTripper) http.RoundTripper) executor.Executor {
			o := s.options(root)
			o.UnknownFor = time.Millisecond // this cloud is consistent at once
			if via != nil {
				o.AWS = awsConfig(s.cloud, via(http.DefaultTransport))
			}
			return open(t, o)
		},
		Remote: true, KeepsExit: true, Memory: 64,
		OwnImage: func(*testing.T) (string, string) { return ownImage, "" },
		NoImage: func(t *testing.T, root string) executor.Executor {
			o := s.options(root)
			o.Job.TaskDefinition = broken
			return open(t, o)
		},
	})
}

// Start returns a permanent refusal at once, with the message of ECS.
func TestStartReportsARefusal(t *testing.T) {
	s := newSite(t)
	for name, tc := range map[string]struct {
		change func(*ecs.Options)
		env    []string
		image  string
		want   string
	}{
		"the cluster does not exist":          {change: func(o *ecs.Options) { o.Job.Cluster = "elsewhere" }, want: "luster"},
		"the task definition does not exist":  {change: func(o *ecs.Options) { o.Job.TaskDefinition = "missing" }, want: "task definition"},
		"the overrides are too long":          {change: func(*ecs.Options) {}, env: []string{"BIG=" + strings.Repeat("x", 9000)}, want: "FAIRLEAD_PASS_ENV"},
		"a variable is named like a key":      {change: func(*ecs.Options) {}, env: []string{"AWS_SECRET_ACCESS_KEY=hush"}, want: "AWS_SECRET_ACCESS_KEY looks like a secret"},
		"the image has no task definition":    {change: func(*ecs.Options) {}, image: strings.Replace(ownImage, "/tools@", "/others@", 1), want: "the parameter ScriptImages"},
		"a variable is named like a password": {change: func(*ecs.Options) {}, env: []string{"REGISTRY_PASSWORD=hush"}, want: "REGISTRY_PASSWORD looks like a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := s.options(filepath.Join(t.TempDir(), "steps"))
			tc.change(&o)
			_, err := open(t, o).Start(t.Context(), executor.Step{ID: "job_1-1", Args: []string{"step"}, Env: tc.env, Image: tc.image})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// STS refuses the role of the configuration. The check before the first job and the start of a job name the role and the fix, and
// not the layers of the SDK. ECS gets no request.
func TestRefusedRoleIsReportedBeforeTheFirstTask(t *testing.T) {
	sts := ststest.New(time.Now)
	sts.LetAssume(func(url.Values) (time.Duration, string) { return 0, "AccessDenied" })
	self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	var asked atomic.Int32
	cfg := aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken),
		HTTPClient: &http.Client{Transport: cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts,
			"ecs." + region + ".amazonaws.com": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })}}}
	const want = "the role arn:aws:iam::123456789012:role/manager cannot be assumed with the external id acme: its trust policy"
	auth := runnerspec.AWSAuth{RoleARN: "arn:aws:iam::123456789012:role/manager", ExternalID: "acme"}
	e := open(t, ecs.Options{Steps: filepath.Join(t.TempDir(), "steps"), Runner: "run_1", AWS: assume.Role(cfg, auth, region, "fairlead-run_1"),
		Job: runnerspec.ECSJob{Cluster: "runners", Subnets: []string{"subnet-1"}, TaskDefinition: pullable}})
	_, refused := e.Start(t.Context(), executor.Step{ID: "job_1-1", Args: []string{"step"}})
	for message, err := range map[string]error{
		"ECS cluster runners: get AWS credentials: " + want: e.(executor.Checker).Check(t.Context()),
		"run a task for step job_1-1: " + want:              refused,
	} {
		if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseMisconfigured || !strings.HasPrefix(err.Error(), message) {
			t.Errorf("got %v, want a misconfiguration: %s", err, message)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("ECS got %d requests, want none", n)
	}
}

// PassEnv names the variables that ECS sets for the identity of a task, so the
// step passes them to its tool. A variable that names the file of a secret is
// passed to the task like any other variable.
func TestTaskGetsItsVariables(t *testing.T) {
	s := newSite(t)
	o := s.options(filepath.Join(t.TempDir(), "steps"))
	o.Job.PassEnv = nil // use the default
	id := "job_variables-1"
	dir := filepath.Join(o.Steps, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	e := open(t, o)
	h, err := e.Start(t.Context(), executor.Step{ID: id, Args: []string{"step", "--dir", dir, "environ"}, Env: []string{"ONLY=this", "AWS_WEB_IDENTITY_TOKEN_FILE=/token"}})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := h.Wait(t.Context()); err != nil || x.Code == nil || *x.Code != 0 {
		t.Fatalf("ended as %+v, %v", x, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_REGION"} {
		if !slices.Contains(e.Place().PassEnv, name) || !strings.Contains(string(b), name+"=") {
			t.Errorf("PassEnv is %s, but the container's variables include %s", e.Place().PassEnv, name)
		}
	}
	for _, v := range []string{"ONLY=this", "AWS_WEB_IDENTITY_TOKEN_FILE=/token"} {
		if !strings.Contains("\n"+string(b)+"\n", "\n"+v+"\n") {
			t.Errorf("the step does not have %s", v)
		}
	}
}

// The role of a step decides which role of the customer's account its job can take, so it takes
// precedence over the role of the runner's configuration.
func TestTaskHasTheIdentityOfItsStep(t *testing.T) {
	const configured, own = "arn:aws:iam::123456789012:role/configured", "arn:aws:iam::123456789012:role/plan-step"
	s := newSite(t)
	o := s.options(filepath.Join(t.TempDir(), "steps"))
	o.Job.TaskRoleARN = configured
	e := open(t, o)
	for id, tt := range map[string]struct{ identity, want string }{
		"job_plan-1":  {own, own},
		"job_check-1": {"", configured},
	} {
		if err := os.MkdirAll(filepath.Join(o.Steps, id), 0o700); err != nil {
			t.Fatal(err)
		}
		h, err := e.Start(t.Context(), executor.Step{ID: id, Identity: tt.identity, Args: []string{"step", "--dir", filepath.Join(o.Steps, id), "environ"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.of.Roles()[id]; !slices.Equal(got, []string{tt.want}) {
			t.Errorf("the step %s with the identity %q ran in tasks with the roles %q, want one task with %s", id, tt.identity, got, tt.want)
		}
	}
}

// The container of the agent's own definition has limits. ECS refuses a task that is smaller than its
// container, and a larger task does not raise them.
func TestSizeOfAStepReachesItsContainer(t *testing.T) {
	type limits struct{ CPU, Memory int }
	for name, tt := range map[string]struct {
		definition string
		want       limits
	}{
		"the agent's own definition": {"", limits{2048, 8192}},
		"a definition of the stack":  {pullable, limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			o := s.options(filepath.Join(t.TempDir(), "steps"))
			o.Job.TaskDefinition, o.Job.ExecutionRoleARN, o.Job.Image = tt.definition, "arn:aws:iam::123456789012:role/execution", "registry.example/runner@sha256:0123"
			id := "job_large-1"
			dir := filepath.Join(o.Steps, id)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			h, err := open(t, o).Start(t.Context(), executor.Step{ID: id, CPU: 2000, Memory: 8 << 30, Args: []string{"step", "--dir", dir, "environ"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			var run struct {
				Overrides struct {
					CPU, Memory        string
					ContainerOverrides []limits
				}
			}
			for _, body := range s.of.Received() {
				if strings.Contains(body, `"startedBy":"`+id) {
					if err := json.Unmarshal([]byte(body), &run); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := run.Overrides
			if got.CPU != "2048" || got.Memory != "8192" || len(got.ContainerOverrides) != 1 {
				t.Fatalf("the task's overrides are %+v, want 2048 and 8192 MiB", got)
			}
			if c := got.ContainerOverrides[0]; c != tt.want {
				t.Errorf("the container's overrides are %+v, want %+v", c, tt.want)
			}
		})
	}
}

// ECS is eventually consistent: some answers do not contain a task that ECS has
// already started. The step of such a task has not vanished.
func TestTaskUnknownToECSForAWhileHasNotVanished(t *testing.T) {
	for name, lost := range map[string]bool{"its agent waits": false, "its agent died before it recorded the task": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.of.Unknown = 5
			o := s.options(filepath.Join(t.TempDir(), "steps"))
			id := "job_unknown-1"
			dir := filepath.Join(o.Steps, id)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			e := open(t, o)
			h, err := e.Start(t.Context(), executor.Step{ID: id, Args: []string{"step", "--dir", dir, "environ"}})
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				if err := e.Remove(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				// Attach can only find a task that runs or will run, and this task may have
				// ended. The test only checks that the search takes a while.
				o.UnknownFor = 500 * time.Millisecond
				if h, err = open(t, o).Attach(t.Context(), id); err != nil {
					t.Fatalf("Attach does not continue to search: %v", err)
				}
			}
			x, err := h.Wait(t.Context())
			if err != nil || !lost && (x.Code == nil || *x.Code != 0) {
				t.Errorf("ended as %+v, %v", x, err)
			}
		})
	}
}

// A task that ECS does not know for a long time may still run. The driver stops
// the task before it reports the step as vanished.
func TestVanishedTaskIsStoppedFirst(t *testing.T) {
	s := newSite(t)
	s.of.Unknown = 1 << 20
	o := s.options(filepath.Join(t.TempDir(), "steps"))
	o.UnknownFor = 300 * time.Millisecond
	id := "job_vanished-1"
	dir := filepath.Join(o.Steps, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := open(t, o).Start(t.Context(), executor.Step{ID: id, Args: []string{"step", "--dir", dir, "environ"}})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	x, err := h.Wait(t.Context())
	if err != nil || x.Cause != fairlead.CauseVanished {
		t.Errorf("ended as %+v, %v", x, err)
	}
	if waited := time.Since(begun); waited < o.UnknownFor {
		t.Errorf("the step was reported as vanished after %s", waited)
	}
	if !slices.ContainsFunc(s.of.Received(), func(request string) bool { return strings.Contains(request, "the runner cannot find the task") }) {
		t.Error("the task was not stopped")
	}
}

// The driver registers one task definition for a configuration, and all agents
// share the definition. Neither the definition nor a request contains a secret: the
// definition only refers to secrets. For another configuration, the driver
// registers another definition.
func TestTaskDefinitionIsRegistered(t *testing.T) {
	s := newSite(t)
	const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:licence"
	s.of.Secrets[arn] = "hush"
	o := s.options(filepath.Join(t.TempDir(), "steps"))
	o.Runner = "run_made" // other tests register definitions of run_1 at the same server
	o.Job.TaskDefinition, o.Job.ExecutionRoleARN, o.Job.TaskRoleARN = "", "arn:aws:iam::123456789012:role/execution", "arn:aws:iam::123456789012:role/job"
	o.Job.Image, o.Job.Secrets, o.Job.StopGrace = "registry.example/runner@sha256:0123", map[string]string{"LICENCE": arn}, runnerspec.Duration(40*time.Second)
	for _, id := range []string{"job_made-1", "job_made-2"} {
		dir := filepath.Join(o.Steps, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h, err := open(t, o).Start(t.Context(), executor.Step{ID: id, Args: []string{"step", "--dir", dir, "environ"}})
		if err != nil {
			t.Fatal(err)
		}
		if x, err := h.Wait(t.Context()); err != nil || x.Code == nil || *x.Code != 0 {
			t.Fatalf("ended as %+v, %v", x, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "environ")); err != nil || !strings.Contains(string(b), "LICENCE=hush") {
			t.Errorf("the step does not have its secret: %s, %v", b, err)
		}
	}
	o.Job.Image, o.Job.Secrets, o.Job.StopGrace = "registry.example/runner@sha256:4567", nil, runnerspec.Duration(time.Hour)
	if _, err := open(t, o).Start(t.Context(), executor.Step{ID: "job_made-3", Args: []string{"step"}}); err != nil {
		t.Fatal(err)
	}
	api := awsecs.NewFromConfig(awsConfig(server.Endpoint(t), http.DefaultTransport))
	all, err := api.ListTaskDefinitions(t.Context(), &awsecs.ListTaskDefinitionsInput{})
	if err != nil {
		t.Fatal(err)
	}
	made := slices.DeleteFunc(all.TaskDefinitionArns, func(arn string) bool { return !strings.Contains(arn, "/fairlead-run_made-") })
	if len(made) != 2 {
		t.Fatalf("the registered task definitions are %s", made)
	}
	for _, arn := range made {
		d, err := api.DescribeTaskDefinition(t.Context(), &awsecs.DescribeTaskDefinitionInput{TaskDefinition: &arn})
		if err != nil {
			t.Fatal(err)
		}
		c := d.TaskDefinition.ContainerDefinitions[0]
		if *c.Name != ecs.Container || !*c.ReadonlyRootFilesystem || len(c.MountPoints) != 2 || c.LogConfiguration.Options["awslogs-group"] != group ||
			*d.TaskDefinition.ExecutionRoleArn != o.Job.ExecutionRoleARN || *d.TaskDefinition.TaskRoleArn != o.Job.TaskRoleARN || *d.TaskDefinition.Cpu != "256" {
			t.Errorf("the task definition is %+v with the container %+v", d.TaskDefinition, c)
		}
		if c.LinuxParameters == nil || c.LinuxParameters.InitProcessEnabled == nil || *c.LinuxParameters.InitProcessEnabled {
			t.Errorf("the container may have an init process, whose environment a tool can read: %+v", c.LinuxParameters)
		}
		switch *c.Image {
		case "registry.example/runner@sha256:0123":
			if len(c.Secrets) != 1 || *c.Secrets[0].Name != "LICENCE" || *c.StopTimeout != 40 {
				t.Errorf("the first container is %+v", c)
			}
		default:
			if len(c.Secrets) != 0 || *c.StopTimeout != 120 { // the longest that Fargate permits
				t.Errorf("the second container is %+v", c)
			}
		}
	}
	for _, request := range s.of.Received() {
		if strings.Contains(request, "hush") {
			t.Errorf("a request contains a secret: %s", request)
		}
	}
}

// An image without a task definition is refused at once, with its own cause: the agent could choose what runs with the roles of
// the stack if it registered one.
func TestImageWithoutADefinitionIsRefused(t *testing.T) {
	s := newSite(t)
	other := strings.Replace(ownImage, "sha256:1", "sha256:2", 1)
	_, err := open(t, s.options(filepath.Join(t.TempDir(), "steps"))).Start(t.Context(), executor.Step{ID: "job_1-1", Args: []string{"step"}, Image: other})
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImageRefused || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), "job.image_definitions") {
		t.Errorf("got %v", err)
	}
	for _, request := range s.of.Received() {
		if strings.Contains(request, other) {
			t.Errorf("ECS received %s", request)
		}
	}
}

// A runner's image that is older than the agent has no command that copies its program.
func TestProgramThatCannotBeCopiedIsReported(t *testing.T) {
	s := newSite(t)
	s.images[ownImage] = s.define(t, "script-old", ownImage, "unknown-command")
	h, err := open(t, s.options(filepath.Join(t.TempDir(), "steps"))).Start(t.Context(), executor.Step{ID: "job_old-1", Args: []string{"step"}, Image: ownImage})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := h.Wait(t.Context()); err != nil || x.Cause != fairlead.CauseLaunchFailed || !strings.Contains(x.Message, "older than the agent") {
		t.Errorf("ended as %+v (%v)", x, err)
	}
}

// In an image of a step's own, the variables with the credentials of the task's role are not those of the image: the vendor's tool does
// not get them.
func TestCredentialsAreNotOfTheImage(t *testing.T) {
	s := newSite(t)
	o := s.options(filepath.Join(t.TempDir(), "steps"))
	id := "job_own-1"
	dir := filepath.Join(o.Steps, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := open(t, o).Start(t.Context(), executor.Step{ID: id, Args: []string{"step", "--dir", dir, "environ"}, Image: ownImage})
	if err != nil {
		t.Fatal(err)
	}
	if x, err := h.Wait(t.Context()); err != nil || x.Code == nil || *x.Code != 0 {
		t.Fatalf("ended as %+v, %v", x, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	const credentials = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	set, own := false, false
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		set = set || name == credentials
		own = own || name == executor.OwnVariable && slices.Contains(strings.Split(value, ","), credentials)
	}
	if !set || !own {
		t.Errorf("ECS sets %s: %t; it counts as the step's own: %t", credentials, set, own)
	}
}

func TestNewRequiresARegion(t *testing.T) {
	o := site{}.options("/data/steps")
	o.AWS.Region = ""
	if _, err := ecs.New(o); err == nil || !strings.Contains(err.Error(), "runner_configuration.job.region") {
		t.Errorf("without a region: %v", err)
	}
}
