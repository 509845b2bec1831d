package plane_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// recorded records the bodies of claim requests.
type recorded struct {
	mu     sync.Mutex
	claims []string
	next   http.Handler
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == wire.ClaimJob.Path {
		b, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(b))
		r.mu.Lock()
		r.claims = append(r.claims, string(b))
		r.mu.Unlock()
	}
	r.next.ServeHTTP(w, req)
}

// A runner is created through one function. It phones home through another function, gets a session
// of the session role and works from its own queue: in a customer's stack, and on a laptop that
// serves all installs of the org. Functions, runner, STS and queues are real.
func TestRunnerWorksFromItsOwnQueue(t *testing.T) {
	t.Run("in a customer's stack", func(t *testing.T) { worksFromItsOwnQueue(t, true) })
	t.Run("on a laptop, for all installs", func(t *testing.T) { worksFromItsOwnQueue(t, false) })
}

func worksFromItsOwnQueue(t *testing.T, inStack bool) {
	c := newCloud(t)
	ctx := t.Context()
	_, token := c.admin()
	cfg := c.controlAPI()
	stream := "s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": stream, "ShardCount": 1}, nil) // in place of Lambda, to which the install's log group is subscribed
	cfg.LogSubscriber = "arn:aws:kinesis:eu-central-1:123456789012:stream/" + stream
	cfg.StackTemplateURL, cfg.RunnerImage = "https://templates.s3.amazonaws.com/runner.json", "ecr.example/runner@sha256:x"
	person := must(client.New(front(t, c.start("controlapi", cfg)), token, client.Options{}))(t)
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "acme", Storage: "http"}))(t)
	app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	must(person.PublishVersion(ctx, "shop", wire.PublishVersionRequest{Config: must(app.Canonical())(t), Artifacts: map[string]string{"web": "sha256:" + strings.Repeat("0", 64)}}))(t)
	must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "shop", Runner: "acme"}))(t)
	var stackConfig *config.RunnerStack
	if inStack {
		stack := must(person.PutStack(ctx, "acme", wire.PutStackRequest{Account: "123456789012", Region: "eu-central-1"}))(t)
		roles := "arn:aws:iam::123456789012:role/fairlead/" + stack.InstallID + "/"
		stackConfig = &config.RunnerStack{Install: stack.InstallID, ExternalID: stack.ExternalID, TrustedKeys: "x", StackID: "arn:aws:cloudformation:eu-central-1:123456789012:stack/acme/1",
			StackVersion: "1", StateBucket: "b", StateKey: "k", Images: "i", Artifacts: "a", Boundary: "p",
			RoleProvision: roles + "provision", RoleDeploy: roles + "deploy", RoleDeprovision: roles + "deprovision", RoleReadOnly: roles + "read-only"}
	}
	enrolment := must(person.CreateEnrolment(ctx, "acme"))(t)

	seen := &recorded{next: c.runnerFront()}
	api := httptest.NewServer(seen)
	t.Cleanup(api.Close)
	agent := exec.Command(program.Build(t, "runner"), "agent", "--url", api.URL, "--data", t.TempDir(), "--log-level", "debug")
	agent.Env = append(c.endpointsOf(), "PATH="+os.Getenv("PATH"), "FAIRLEAD_ENROLMENT_TOKEN="+enrolment.Token)
	if inStack {
		// The runner is of kind aws-ecs. As in the stack, the agent's file is final; here its steps are processes.
		agent.Env = append(append(agent.Env, c.environ(stackConfig)...), "FAIRLEAD_AGENT_CONFIG={final: true, runner_configuration: {type: local}}")
	}
	startAgent(t, agent)
	if inStack {
		testserver.Until(t, "the stack to be online", func() bool {
			s, err := person.GetStack(ctx, "acme")
			return err == nil && s.State == "online" && s.Report != nil && s.Report.Roles["deploy"] == stackConfig.RoleDeploy
		})
	}
	job := must(person.CheckRunner(ctx, "acme"))(t)
	testserver.Until(t, "the check's end", func() bool {
		j, err := person.GetJob(ctx, job.ID)
		return err == nil && j.State == "succeeded"
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, claim := range seen.claims {
		if !strings.Contains(claim, `"job":"`+job.ID+`"`) {
			t.Errorf("the runner polled the API: %s", claim)
		}
	}
	if len(seen.claims) == 0 {
		t.Error("the runner claimed no job")
	}
}

// startAgent starts an agent's process. It gets SIGTERM when the test ends.
func startAgent(t *testing.T, agent *exec.Cmd) {
	t.Helper()
	var output bytes.Buffer
	agent.Stdout, agent.Stderr = &output, &output
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Process.Signal(syscall.SIGTERM)
		agent.Wait()
		if t.Failed() {
			t.Logf("the agent's output:\n%s", output.String())
		}
	})
}

// queueCalls is a proxy before SQS. It records the requests after which a wake-up is gone or visible again.
type queueCalls struct {
	mu       sync.Mutex
	deleted  int
	returned []string // bodies
	next     http.Handler
}

func (q *queueCalls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	q.next.ServeHTTP(w, r)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch r.Header.Get("X-Amz-Target") {
	case "AmazonSQS.DeleteMessage":
		q.deleted++
	case "AmazonSQS.ChangeMessageVisibility":
		q.returned = append(q.returned, string(b))
	}
}

// seen returns the number of deleted wake-ups, and the bodies of the requests that changed when one is visible.
func (q *queueCalls) seen() (deleted int, returned []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.deleted, slices.Clone(q.returned)
}

// The vendor pins a version while an agent of another version polls the runner's queue. That agent gets no
// job. It makes the wake-up visible again at once, so the agent of the pinned version receives it from the
// queue. No sweep runs here, so no other wake-up comes.
func TestWakeUpIsReturnedToThePinnedVersion(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	_, token := c.admin()
	person := must(client.New(front(t, c.start("controlapi", c.controlAPI())), token, client.Options{}))(t)
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "acme", Storage: "http"}))(t)
	start := func(version string) (*recorded, *queueCalls) {
		api := &recorded{next: c.runnerFront()} // of its own: a function here serves one request at a time, and a refused agent waits in one
		sqs := &queueCalls{next: httputil.NewSingleHostReverseProxy(must(url.Parse(c.endpoints["SQS"]))(t))}
		agent := exec.Command(program.Build(t, "runner", "-ldflags=-X main.version="+version), "agent", "--url", served(t, api), "--data", t.TempDir(), "--log-level", "debug")
		agent.Env = append(c.endpointsOf(), "AWS_ENDPOINT_URL_SQS="+served(t, sqs), "PATH="+os.Getenv("PATH"), "FAIRLEAD_ENROLMENT_TOKEN="+must(person.CreateEnrolment(ctx, "acme"))(t).Token)
		startAgent(t, agent)
		return api, sqs
	}
	check := func() (job string, succeeded func() bool) {
		job = must(person.CheckRunner(ctx, "acme"))(t).ID
		return job, func() bool {
			j, err := person.GetJob(ctx, job)
			return err == nil && j.State == "succeeded"
		}
	}
	_, old := start("v1.0.0")
	_, succeeded := check()
	testserver.Until(t, "the end of a check without a pin", succeeded)
	before, _ := old.seen()
	if before != 1 {
		t.Fatalf("the agent deleted %d wake-ups, want one: it must poll the queue", before)
	}

	must(person.UpdateRunner(ctx, "acme", wire.UpdateRunnerRequest{RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: []string{"runner_configuration.version=v2.0.0"}}}))(t)
	job, succeeded := check()
	testserver.Until(t, "the refused agent to return the wake-up", func() bool { _, returned := old.seen(); return len(returned) > 0 })
	if deleted, returned := old.seen(); deleted != before || len(returned) != 1 || !strings.Contains(returned[0], `"VisibilityTimeout":0`) {
		t.Errorf("the agent of another version deleted %d wake-ups and changed the visibility with %s, want none deleted, and 0", deleted-before, returned)
	}
	if j := must(person.GetJob(ctx, job))(t); j.State != "queued" || len(j.Situations) != 1 || j.Situations[0].Kind != "runner-pinned" {
		t.Errorf("the job is %s with the situations %+v, want queued, and runner-pinned", j.State, j.Situations)
	}

	api, next := start("v2.0.0")
	testserver.Until(t, "the end of the check", succeeded)
	testserver.Until(t, "the agent of the pinned version to delete the wake-up", func() bool { deleted, _ := next.seen(); return deleted == 1 })
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, claim := range api.claims {
		if !strings.Contains(claim, `"job":"`+job+`"`) {
			t.Errorf("the agent of the pinned version polled the API: %s", claim)
		}
	}
}
