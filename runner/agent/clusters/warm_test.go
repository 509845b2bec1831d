package clusters_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/moto"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var others moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	others.Stop()
	os.Exit(code)
}

const region = "eu-west-1"

// world is a control plane, the runner's program, and a simulated ECS whose containers start when the test decides.
type world struct {
	*plane.Plane
	t      *testing.T
	cloud  *ecstest.Cloud
	runner string
	job    string // the job's settings in the agent's file
	data   string
	script string // that each component runs first, with the operation as $1
	agent  *exec.Cmd
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, runner: program.Build(t, "runner", "-tags=clusters"), data: t.TempDir(), log: &lockedBuffer{}}
	endpoint := others.Endpoint(t)
	cfg := aws.Config{Region: region, BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("id", "key", "")}
	api := ecs.NewFromConfig(cfg)
	if _, err := api.CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: aws.String("runners")}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{Family: aws.String("runner"), NetworkMode: types.NetworkModeAwsvpc,
		RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate}, Cpu: aws.String("256"), Memory: aws.String("512"),
		ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("step"), Image: aws.String("registry.example/runner:1"), Cpu: 256, Memory: aws.Int32(512)}}}); err != nil {
		t.Fatal(err)
	}
	logs := cloudwatchlogs.NewFromConfig(cfg)
	_, _ = logs.CreateLogGroup(t.Context(), &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("/steps")}) // another test may have created it
	w.cloud = ecstest.New(t, endpoint, w.runner, "runner", "/steps", logs)
	w.cloud.Slow = true
	w.job = fmt.Sprintf("region: %s, cluster: runners, subnets: [%s], security_groups: [%s], task_definition: runner, start_timeout: 5m, data: %q",
		region, ecstest.Find(t, endpoint, region, "DescribeSubnets", "subnetId"), ecstest.Find(t, endpoint, region, "DescribeSecurityGroups", "groupId"), t.TempDir())
	w.Plane = plane.New(t, plane.Options{Heartbeat: time.Second})
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			t.Logf("the agent's log:\n%s\nAWS received:\n%s", w.log, strings.Join(w.cloud.Received(), "\n"))
		}
	})
	return w
}

// start starts an agent on the world's data folder.
func (w *world) start(slots int, env ...string) {
	w.t.Helper()
	w.agent = exec.Command(w.runner, "agent", "--url", w.URL(), "--data", w.data, "--log-level", "debug")
	w.agent.Env = append([]string{"PATH=" + os.Getenv("PATH"), "AWS_ENDPOINT_URL=" + w.cloud.URL(), "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=key",
		"FAIRLEAD_ENROLMENT_TOKEN=" + w.EnrolmentToken(), fmt.Sprintf("FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: aws-ecs, concurrency: %d, job: {%s}}}", slots, w.job)}, env...)
	w.agent.Stdout, w.agent.Stderr = w.log, w.log
	if err := w.agent.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// recorded returns of how many tasks the agent has stored the ARN. A next agent searches for any other task, and waits two
// minutes for one that has ended.
func (w *world) recorded() (n int) {
	records, err := filepath.Glob(filepath.Join(w.data, "steps", "*", "ecs-task"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(records)
}

// kill kills the agent with SIGKILL.
func (w *world) kill() { w.stop(syscall.SIGKILL) }

func (w *world) stop(s syscall.Signal) {
	if w.agent != nil {
		_ = w.agent.Process.Signal(s)
		_ = w.agent.Wait()
		w.agent = nil
	}
}

// deploy deploys a chain of components, each of which is a script.
func (w *world) deploy(names ...string) wire.Deployment {
	w.t.Helper()
	return w.deploySized("", names...)
}

// deploySized is deploy with a size for the jobs of each component, in the form of app.yaml.
func (w *world) deploySized(size string, names ...string) wire.Deployment {
	w.t.Helper()
	config := "fairlead: v1\nname: shop\ncomponents:\n"
	digests := map[string]string{}
	for i, name := range names {
		config += fmt.Sprintf("  %s: {type: script, source: ./%s%s", name, name, size)
		if i > 0 {
			config += ", depends_on: [" + names[i-1] + "]"
		}
		config += "}\n"
		digests[name] = w.PushOf(name, map[string]string{"run": "#!/bin/sh\n" + w.script + "echo \"$1 " + name + "\"\n"}).Digest
	}
	return w.DeployOf(config, digests, wire.CreateDeploymentRequest{AutoApprove: true})
}

// over reports whether the deployment has ended.
func (w *world) over(d wire.Deployment) bool {
	return slices.Contains([]string{"succeeded", "failed", "canceled"}, w.Deployment(d.ID).State)
}

func (w *world) succeeded(d wire.Deployment) {
	w.t.Helper()
	w.Until("the end of the deployment", func() bool { return w.over(d) })
	if d = w.Deployment(d.ID); d.State != "succeeded" {
		w.t.Fatalf("the deployment is %s: %+v", d.State, d)
	}
}

// clean waits until no container runs and the agent's data folder has no step.
func (w *world) clean() {
	w.t.Helper()
	w.Until("no container and no folder of a step", func() bool {
		left, err := filepath.Glob(filepath.Join(w.data, "steps", "*"))
		kept, err2 := filepath.Glob(filepath.Join(w.data, "attempts", "*"))
		return err == nil && err2 == nil && len(left)+len(kept)+len(w.cloud.Running()) == 0
	})
}

// ahead returns those of the tasks that were started ahead.
func ahead(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, "wrm_") })
}

// A chain of four components has eight jobs. Without steps that start ahead, each waits for the start of its task. With
// them, the deployment waits once: a step that waits for its job uses no slot of the jobs.
func TestChainWaitsForOneStartOfATask(t *testing.T) {
	const start = 30 * time.Second // of a task on Fargate
	type row struct {
		name         string
		slots, waits int
		first, later int // tasks that start together at the first wait and at each later one
	}
	for _, tc := range shortrun.OneOf(t, 0, []row{
		{"one slot: each apply starts with its plan", 1, 4, 2, 2},
		{"four slots, the default: the other seven start with the first", 4, 1, 8, 1},
		{"eight slots: the same", 8, 1, 8, 1},
	}...) {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.start(tc.slots)
			d := w.deploy("a", "b", "c", "d")
			waits, want := 0, tc.first
			for {
				w.Until(fmt.Sprintf("the end of the deployment, or %d tasks that start", want), func() bool { return len(w.cloud.Pending()) >= want || w.over(d) })
				if w.over(d) {
					break
				}
				waits, want = waits+1, tc.later
				w.cloud.StartContainers()
			}
			w.succeeded(d)
			if waits != tc.waits {
				t.Errorf("the deployment waited for %d starts of a task, %s at %s each; want %d", waits, time.Duration(waits)*start, start, tc.waits)
			}
			t.Logf("%d slots: a chain of four components waits for %d starts of %s: %s", tc.slots, waits, start, time.Duration(waits)*start)
			w.clean()
		})
	}
}

// The task that is started ahead has no job's credential, and ends with its deployment.
func TestWarmTasksEndWithTheirDeployment(t *testing.T) {
	w := newWorld(t)
	w.start(4)
	d := w.deploy("a", "b")
	w.Until("four tasks", func() bool { return len(w.cloud.Pending()) == 4 })
	for _, request := range w.cloud.Received() {
		if strings.Contains(request, "wrm_") && strings.Contains(request, "fll_") {
			t.Error("a task that is started ahead has a launch token")
		}
	}
	w.Until("the agent reports its warm steps", func() bool { return w.LastBeat().WarmSteps == 3 })
	if _, err := w.API.CancelDeployment(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	w.cloud.StartContainers()
	w.clean()
	if got := w.Deployment(d.ID).State; got != "canceled" {
		t.Errorf("the deployment is %s", got)
	}
}

// A task that is started ahead has the size that its component asks for, as a task of the component's own has.
func TestWarmTaskHasTheSizeOfItsJob(t *testing.T) {
	w := newWorld(t)
	w.start(2)
	d := w.deploySized(", job: {cpu: 2, memory: 8Gi}", "a")
	w.Until("a task for the plan, and one for the apply", func() bool { return len(w.cloud.Pending()) == 2 })
	for _, request := range w.cloud.Received() {
		if strings.Contains(request, `"startedBy"`) && !strings.Contains(request, `"cpu":"2048","memory":"8192"`) {
			t.Errorf("a task has another size than 2 CPUs and 8 GiB: %s", request)
		}
	}
	w.cloud.StartContainers()
	w.succeeded(d)
	if tasks := len(w.cloud.Roles()); tasks != 2 {
		t.Errorf("the two jobs had %d tasks, want 2: the apply runs in the task that was started ahead", tasks)
	}
	w.clean()
}

func TestDeadWarmTaskDelaysNoJob(t *testing.T) {
	w := newWorld(t)
	w.start(2)
	d := w.deploy("a")
	w.Until("two tasks", func() bool { return len(w.cloud.Pending()) == 2 })
	warm := ahead(w.cloud.Pending())
	if len(warm) != 1 {
		t.Fatalf("the tasks are %s, want one that is started ahead", w.cloud.Pending())
	}
	hold := w.HoldRequests(proxy.Route(wire.StartJob)) // the plan does not begin before the warm task is dead
	w.cloud.StartContainers()
	w.Until("the warm task runs", func() bool { return slices.Contains(w.cloud.Running(), warm[0]) })
	w.cloud.Kill(warm[0])
	w.Until("the agent knows that the warm task is dead", func() bool { return w.LastBeat().WarmSteps == 0 })
	hold.Release()
	w.Until("the apply starts its own task", func() bool { w.cloud.StartContainers(); return w.over(d) })
	w.succeeded(d)
	w.clean()
}

// A killed agent cannot end its warm tasks. The next agent does, and a warm task that runs a job continues.
func TestNextAgentEndsTheWarmTasksOfAKilledOne(t *testing.T) {
	w := newWorld(t)
	w.start(4)
	d := w.deploy("a", "b")
	w.Until("four tasks, which the agent has recorded", func() bool { return len(w.cloud.Pending()) == 4 && w.recorded() == 4 })
	old := ahead(w.cloud.Pending())
	w.kill()
	w.cloud.StartContainers()
	w.start(4)
	w.Until("the warm tasks of the killed agent end, and the deployment ends", func() bool {
		w.cloud.StartContainers()
		return w.over(d) && !slices.ContainsFunc(w.cloud.Running(), func(id string) bool { return slices.Contains(old, id) })
	})
	w.succeeded(d)
	w.clean()
}

func TestDrainingAgentEndsItsWarmTasks(t *testing.T) {
	w := newWorld(t)
	w.start(4, "FAIRLEAD_WARM_TASKS=2")
	w.Until("two tasks for first jobs", func() bool { return len(w.cloud.Pending()) == 2 })
	w.cloud.StartContainers()
	w.Until("two tasks run", func() bool { return len(ahead(w.cloud.Running())) == 2 })
	w.stop(syscall.SIGTERM)
	w.clean()
}

// With warm tasks for first jobs, a deployment waits for no start.
func TestFirstJobFindsAWarmTask(t *testing.T) {
	w := newWorld(t)
	w.start(8, "FAIRLEAD_WARM_TASKS=1")
	w.Until("a task for the first job", func() bool { return len(w.cloud.Pending()) == 1 })
	w.cloud.StartContainers()
	d := w.deploy("a")
	w.Until("the plan has ended before any other task started", func() bool { return w.Deployment(d.ID).Components[0].State == "applying" })
	w.Until("a task for the apply, and one for the next first job", func() bool { return len(w.cloud.Pending()) == 2 })
	w.cloud.StartContainers()
	w.succeeded(d)
}

// A warm task is started before its component is known. It gets the references to all secrets of the customer, and reads
// those of its component once it has a job.
func TestWarmTaskReadsTheSecretsOfItsJob(t *testing.T) {
	w := newWorld(t)
	for name, value := range map[string]string{"own": "of-the-component", "other": "of-another-one"} {
		if err := os.WriteFile(filepath.Join(w.data, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.start(8, "FAIRLEAD_WARM_TASKS=1", fmt.Sprintf("FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: aws-ecs, concurrency: 8, job: {%s}}, secrets: {a/OWN: %q, b/OTHER: %q}}",
		w.job, "file:"+filepath.Join(w.data, "own"), "file:"+filepath.Join(w.data, "other")))
	w.Until("a task for the first job", func() bool { return len(w.cloud.Pending()) == 1 })
	w.cloud.StartContainers()
	d := w.DeployOf("fairlead: v1\nname: shop\ncomponents:\n  a: {type: script, source: ./a}\n", map[string]string{
		"a": w.PushOf("a", map[string]string{"run": "#!/bin/sh\ntest \"$OWN\" = of-the-component && test -z \"$OTHER\"\n"}).Digest}, wire.CreateDeploymentRequest{AutoApprove: true})
	for !w.over(d) {
		w.Until("the end of the deployment, or a task that starts", func() bool { return len(w.cloud.Pending()) > 0 || w.over(d) })
		w.cloud.StartContainers()
	}
	w.succeeded(d)
	if !slices.ContainsFunc(w.cloud.Received(), func(r string) bool { return strings.Contains(r, "wrm_") && strings.Contains(r, "a/OWN") }) {
		t.Error("no warm task was started with the references")
	}
}
