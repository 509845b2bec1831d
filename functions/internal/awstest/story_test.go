package awstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/canary"
)

// TestAppDeploysThroughTheStacks deploys an app through the resources of the two
// templates. A vendor publishes the app and creates an install for a customer's
// account. The customer creates the runner's stack. Its runner proves its role, polls
// its own queue, assumes the role of each operation and writes to the install's log
// group. A thief on the account's event bus can use no launch token. No secret of the customer is in a place of the control plane, also
// not in one that its keys open. The test repeats the deployment with the typical faults of each service:
// nothing is lost, and no job runs twice.
func TestAppDeploysThroughTheStacks(t *testing.T) {
	skipIfShort(t)
	w := deployWorld(t)
	defer w.close()
	stolen := w.listenOnEventBus()
	w.cli("app", "apply", "examples/shop")
	requests := w.recordRequests()
	vendors := canary.Text("variable of the app")
	environ := w.environ
	w.environ = append(slices.Clone(environ), "VENDORS="+vendors)
	w.cli("variable", "set", "--app", "shop", "--sensitive-env", "VENDORS=VENDORS")
	w.environ = environ
	c, stop := w.install("acme")
	d := w.deployInstall("acme")
	w.waitArchived("acme")
	w.wantCanaries(requests, map[string]string{
		password: "",
		vendors:  "table (opened)", // for several installs, so sealed by the control plane
		// No secrets: they show that the search reaches the other places.
		"Apply complete!":        "archives, logs, table", // the record of the logs is in a table
		"fairlead.job.succeeded": "events",
		w.jobs(d)[0].ID:          "archives, events, logs, queues, table",
	})
	w.checkOwn("acme", d, "terraform_data")
	if !w.checkDirect(c, d) {
		t.Error("no job ran in a task that was started ahead")
	}
	w.checkStates(c, "acme")
	stop()

	for i, tt := range []struct {
		name   string
		faults map[string]func(r *http.Request, body []byte) fault
	}{
		// Dispatch gets the job from the stream and sends the wake-up that the API
		// could not send.
		{"first wake-ups are throttled", map[string]func(*http.Request, []byte) fault{"SQS": first(6, action("SendMessage"), throttled)}},
		{"wake-ups arrive twice", map[string]func(*http.Request, []byte) fault{"SQS": always(action("SendMessage"), twice)}},
		// EventBridge refuses half of the requests: dispatch returns the failed
		// records, and Lambda repeats the batch from the first of them.
		{"stream batches fail halfway", map[string]func(*http.Request, []byte) fault{"EVENTBRIDGE": some(2, action("PutEvents"), throttled)}},
		{"every service throttles", map[string]func(*http.Request, []byte) fault{
			"DYNAMODB": some(10, nil, throttled), "SQS": some(6, nil, throttled), "S3": some(6, nil, throttled),
			"EVENTBRIDGE": some(6, nil, throttled), "KMS": some(6, nil, throttled)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			install := fmt.Sprint("acme-", i+1)
			w := w.in(t)
			_, stop := w.install(install)
			defer stop()
			for service, do := range tt.faults {
				w.gates[service].set(do)
			}
			defer func() {
				for service := range tt.faults {
					w.gates[service].set(nil)
				}
			}()
			w.deployInstall(install)
		})
	}
	if stolen.Load() == 0 {
		t.Error("no task had a token that a thief on the event bus tried to use")
	}
	w.eventually("the sweep's own queue has invoked it between two minutes of its schedule", func() bool { return w.functions["sweep"].fromQueue.Load() > 0 })
}

// in returns the world for a subtest.
func (w *world) in(t testing.TB) *world {
	part, account, resolver := *w, *w.account, *w.resolver
	resolver.t = t
	account.resolver, part.account = &resolver, &account
	return &part
}

// install creates an install for a customer's account, and the runner's stack in
// that account. It waits until the stack is online.
func (w *world) install(name string) (c *customer, stop func()) {
	w.t.Helper()
	w.cli("install", "create", name, "--app", "shop", "--account", accountID, "--region", region, "--input-file", "examples/shop/demo.inputs.yaml")
	c, stop = w.installStack(name)
	var s wire.Stack
	w.eventually("the stack is online", func() bool { s = ask[wire.Stack](w, "install", "stack", name); return s.State == "online" })
	if want := c.ref("StateBucket"); s.Report == nil || s.Report.StateBucket != want || s.Report.Roles["deploy"] != c.attribute("DeployRole", "Arn") {
		w.t.Errorf("the runner reports the stack as %+v, want the bucket %s", s.Report, want)
	}
	w.cli("install", "update", name, "--input-file", "examples/shop/demo.inputs.yaml") // the password: before, there is no key of the install
	return c, stop
}

// checkDirect checks the tasks of the deployment's jobs. Each job ran in a task of
// its own, with the step role of its operation. Its step assumed the role of the operation, with the id of its
// job as the session name. It reports whether a job ran in a task that was started ahead: there is none where
// each next job waits for an approval.
func (w *world) checkDirect(c *customer, deployment string) (ahead bool) {
	w.t.Helper()
	inWarm := map[string]int{} // jobs that ran in a task that was started ahead, by the task's role
	for _, j := range w.jobs(deployment) {
		role := map[string]string{"plan": "ReadOnlyRole", "apply": "ProvisionRole", "plan-destroy": "ReadOnlyRole", "destroy": "DeprovisionRole"}[j.Operation]
		if sessions := w.sessionsOf(c.attribute(role, "Arn")); !slices.Contains(sessions, j.ID) {
			w.t.Errorf("job %s (%s) has not assumed the %s; its sessions: %s", j.ID, j.Operation, role, sessions)
		}
		step := c.attribute(strings.TrimSuffix(role, "Role")+"StepRole", "Arn")
		if got := c.tasks.Roles()[fmt.Sprintf("%s-%d", j.ID, j.Epoch)]; len(got) == 0 {
			inWarm[step]++
		} else if !slices.Equal(got, []string{step}) {
			w.t.Errorf("job %s (%s) ran in tasks with the roles %q, want one task with %s", j.ID, j.Operation, got, step)
		}
	}
	ahead = len(inWarm) > 0
	for startedBy, roles := range c.tasks.Roles() {
		if strings.HasPrefix(startedBy, "wrm_") {
			inWarm[roles[0]]--
		}
	}
	for step, n := range inWarm {
		if n > 0 {
			w.t.Errorf("%d jobs with the role %s ran neither in a task of their own nor in one that was started ahead", n, step)
		}
	}
	return ahead
}

// checkStates checks that the install's states are in the bucket of the customer's
// stack, and that each was locked there by a lock file. The control plane must have
// no state and no saved plan.
func (w *world) checkStates(c *customer, install string) {
	w.t.Helper()
	id := ask[wire.Install](w, "install", "show", install).ID
	client := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	bucket, blobs := c.ref("StateBucket"), w.ref("Blobs")
	out, err := client.ListObjectVersions(w.t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
	w.ok("list the state bucket", err)
	latest, removed := map[string]bool{}, map[string]bool{}
	for _, v := range out.Versions {
		latest[*v.Key] = latest[*v.Key] || *v.IsLatest
	}
	for _, m := range out.DeleteMarkers {
		removed[*m.Key] = true
	}
	var found int
	for key, there := range latest {
		if component, ok := strings.CutSuffix(strings.TrimPrefix(key, "state/"+id+"/"), ".tfstate"); ok && there && strings.HasPrefix(key, "state/") {
			found++
			if lock := key + ".tflock"; !removed[lock] || latest[lock] {
				w.t.Errorf("the state of %s was never locked, or is still locked", component)
			}
		}
	}
	if found != 4 {
		w.t.Errorf("the bucket has %d states of the install, want 4, one for each component: %v", found, latest)
	}
	kept, err := client.ListObjectsV2(w.t.Context(), &s3.ListObjectsV2Input{Bucket: &blobs})
	w.ok("list the control plane's blobs", err)
	for _, o := range kept.Contents {
		w.t.Errorf("the control plane's bucket has %s, want it empty", *o.Key)
	}
}

// deployInstall deploys the install and checks its jobs, logs and outputs.
func (w *world) deployInstall(install string) (deployment string) {
	w.t.Helper()
	d := ask[struct {
		Deployment wire.Deployment `json:"deployment"`
	}](w, "install", "deploy", install, "--auto-approve").Deployment
	if d.State != "succeeded" {
		w.t.Fatalf("the deployment is %s: %s", d.State, d.Message)
	}
	if len(d.Components) != 4 {
		w.t.Errorf("%d components, want 4", len(d.Components))
	}
	jobs := w.jobs(d.ID)
	if len(jobs) != 8 {
		w.t.Errorf("%d jobs, want a plan and an apply for each of four components", len(jobs))
	}
	for _, j := range jobs {
		if j.State != "succeeded" || j.Epoch != 1 {
			w.t.Errorf("job %s (%s %s) is %s at epoch %d: %s", j.ID, j.Operation, j.Component, j.State, j.Epoch, j.Message)
		}
		log := string(w.cli("job", "logs", j.ID))
		if n := strings.Count(log, "Apply complete!"); j.Operation == "apply" && n != 1 {
			w.t.Errorf("the log of job %s (%s %s) has its last line %d times, want once:\n%s", j.ID, j.Operation, j.Component, n, log)
		}
	}
	var outputs map[string]json.RawMessage
	if err := json.Unmarshal(w.cli("install", "outputs", install, "--json"), &outputs); err != nil || len(outputs) == 0 {
		w.t.Errorf("the install has the outputs %s, %v", outputs, err)
	}
	return d.ID
}

func (w *world) jobs(deployment string) []wire.Job {
	w.t.Helper()
	return ask[[]wire.Job](w, "job", "list", "--deployment", deployment)
}

// waitArchived waits until the logs of the install's jobs are in the archive.
func (w *world) waitArchived(install string) {
	w.t.Helper()
	jobs := w.jobs(ask[[]wire.Deployment](w, "deployment", "list", "--install", install)[0].ID)
	client := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	bucket := w.ref("LogArchive")
	w.eventually("the logs of all jobs are archived", func() bool {
		out, err := client.ListObjectsV2(w.t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
		w.ok("list the archive", err)
		found := 0
		for _, j := range jobs {
			for _, o := range out.Contents {
				if strings.Contains(*o.Key, j.ID) {
					found++
					break
				}
			}
		}
		return found == len(jobs)
	})
}

// action matches requests for an operation.
func action(name string) func(*http.Request, []byte) bool {
	return func(r *http.Request, body []byte) bool {
		return strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+name) || bytes.Contains(body, []byte("Action="+name+"&"))
	}
}

// first applies f to the first n matching requests.
func first(n int64, match func(*http.Request, []byte) bool, f fault) func(*http.Request, []byte) fault {
	var seen atomic.Int64
	return func(r *http.Request, body []byte) fault {
		if match(r, body) && seen.Add(1) <= n {
			return f
		}
		return none
	}
}

// always applies f to every matching request.
func always(match func(*http.Request, []byte) bool, f fault) func(*http.Request, []byte) fault {
	return some(1, match, f)
}

// some applies f to about one in n of the matching requests. If match is nil, all
// requests match. A hash of the request's number selects them.
func some(n uint64, match func(*http.Request, []byte) bool, f fault) func(*http.Request, []byte) fault {
	var seen atomic.Uint64
	return func(r *http.Request, body []byte) fault {
		if match != nil && !match(r, body) {
			return none
		}
		h := fnv.New64a()
		i := seen.Add(1)
		_, _ = h.Write([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		if h.Sum64()%n == 0 {
			return f
		}
		return none
	}
}
