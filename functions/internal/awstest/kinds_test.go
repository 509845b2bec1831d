package awstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
)

// placed is the module that the tests of this file deploy. Its output shows whether the job ran in the
// image of a test.
const placed = `resource "terraform_data" "x" {}
output "in_image" { value = "in the image: ${fileexists("/bin/tool")}" }
`

// Runners on a laptop, of a Docker engine and of a cluster enrol with a key. None has an identity of
// AWS. The credentials of each runner's session receive its wake-ups from its own queue, and those of
// its jobs write their logs to the install's log group and pull the app. None uses the API instead.
func TestEveryKindUsesItsOwnQueueAndLog(t *testing.T) {
	skipIfShort(t)
	needTofu(t)
	a := deploy(t, releasedTemplate(t, released()))
	api := newDetours(a.front())
	w := connect(t, a, map[string]http.Handler{planeHost: api}).operated()
	defer w.close()
	w.app("placed", map[string]string{"main.tf": placed})

	host := engine.Host(t)
	image := dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner"), "/bin/tool": os.Getenv("FAIRLEAD_TOFU")}, "/runner")
	pods := w.makeNamespace(append([]string{"AWS_EC2_METADATA_DISABLED=true"}, append(w.environ, "PATH="+filepath.Dir(w.toolIn("pod"))+":"+os.Getenv("PATH"))...))
	tool := w.toolIn("process")
	for _, k := range []struct {
		kind string
		log  string // a line that the job's log has only there
		file string // more of the runner_configuration in the agent's file
		env  []string
	}{
		{"local", "place=process", "job: {}", []string{"FAIRLEAD_TOFU=" + tool, "FAIRLEAD_READABLE=" + filepath.Dir(os.Getenv("FAIRLEAD_TOFU"))}},
		{"docker", "in the image: true", fmt.Sprintf("host: %q, job: {image: %q, image_pull_policy: Never, network: host, volumes: ['%s:%[3]s:ro']}", host, image, w.authority),
			[]string{"FAIRLEAD_TOFU=/bin/tool", "FAIRLEAD_PASS_ENV=SSL_CERT_FILE"}},
		{"kubernetes", "place=pod", fmt.Sprintf("job: {kubeconfig: %q, namespace: %s, service_account: jobs, image: %q}", w.kubeconfig(pods), pods.name, runnerOf), nil},
	} {
		t.Run(k.kind, func(t *testing.T) {
			w := w.in(t)
			w.cli("runner", "create", k.kind, "--file", w.writeRunner("runner_configuration: {type: "+k.kind+"}\nstate_storage_configuration: {type: http}\n"))
			stop := w.startAgent(k.kind, append(k.env, fmt.Sprintf("FAIRLEAD_AGENT_CONFIG={runner_configuration: {type: %s, %s}}", k.kind, k.file))...)
			defer stop()
			w.cli("install", "create", k.kind, "--app", "placed", "--runner", k.kind)
			w.checkOwn(k.kind, w.deployed(k.kind), k.log)
			if polls, logs := api.counted(); polls+logs > 0 {
				t.Errorf("the runner polled the API %d times for jobs, and its steps sent %d parts of logs to it, want none", polls, logs)
			}
		})
	}
}

// deployed deploys an install, and returns the id of the deployment.
func (w *world) deployed(install string) string {
	w.t.Helper()
	d := ask[struct {
		Deployment wire.Deployment `json:"deployment"`
	}](w, "install", "deploy", install, "--auto-approve").Deployment
	if d.State != "succeeded" {
		w.t.Fatalf("the deployment is %s: %s", d.State, d.Message)
	}
	return d.ID
}

// checkOwn checks that the jobs of a deployment used AWS directly. The credentials of the runner's session
// received the wake-ups from its queue and not from the API, and those of the runner for the install wrote
// the logs and pulled the components. line is a part of each log.
func (w *world) checkOwn(install, deployment, line string) {
	w.t.Helper()
	made, jobs := ask[wire.Install](w, "install", "show", install), w.jobs(deployment)
	role, i, r := w.attribute("SessionRole", "Arn"), made.ID, ask[wire.Runner](w, "runner", "show", made.Runner).ID
	if len(jobs) == 0 {
		w.t.Errorf("the deployment of %s has no job", install)
	}
	for _, u := range []struct {
		session, action string
		least           int
	}{
		{r, "sqs:ReceiveMessage", len(jobs)}, {r, "sqs:DeleteMessage", len(jobs)},
		{r + "@" + i, "logs:CreateLogStream", len(jobs)}, {r + "@" + i, "logs:PutLogEvents", len(jobs)}, {r + "@" + i, "ecr:GetDownloadUrlForLayer", 1},
	} {
		if n := w.guard.UsesOf(role, u.session, u.action); n < u.least {
			w.t.Errorf("the session %s used %s %d times, want at least %d", u.session, u.action, n, u.least)
		}
	}
	group := cloudwatch.NewTransport(w.account.config("CLOUDWATCH_LOGS"), w.logGroupOf(i), time.Now)
	for _, j := range jobs {
		text, end, err := group.Rest(w.t.Context(), joblog.Info{Stream: joblog.Stream{Job: j.ID, Epoch: j.Epoch}})
		if err != nil || end == nil || end.Size != int64(len(text)) || !bytes.Contains(text, []byte(line)) {
			w.t.Errorf("CloudWatch has this log of job %s (%s), with the end %+v, %v; want a whole log with %q:\n%s", j.ID, j.Operation, end, err, line, text)
		}
	}
}

// logGroupOf returns the name of an install's log group.
func (w *world) logGroupOf(install string) string {
	return (&outside{account: w.account}).given("runnerapi", "FAIRLEAD_LOG_GROUP_PREFIX") + install
}

// toolIn writes a tool that notes a place in the job's log, and then is the real tool.
func (w *world) toolIn(place string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "tofu")
	program.Write(w.t, path, []byte("#!/bin/sh\ncase $1 in plan | apply) echo place="+place+" >&2 ;; esac\nexec '"+os.Getenv("FAIRLEAD_TOFU")+"' \"$@\"\n"))
	return path
}

// kubeconfig writes a kubeconfig of the namespace's service account for agents.
func (w *world) kubeconfig(n namespace) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: n.cluster.Host, InsecureSkipTLSVerify: true}
	c.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: n.token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "agent"}
	c.CurrentContext = "x"
	w.ok("write a kubeconfig", clientcmd.WriteToFile(*c, file))
	return file
}

// startAgent starts an agent of a runner as a person does: it enrols with a token. stop ends the agent.
func (w *world) startAgent(runner string, environ ...string) (stop func()) {
	w.t.Helper()
	token := filepath.Join(w.t.TempDir(), "token")
	w.cli("runner", "enrol", runner, "--out", token)
	cmd := exec.Command(program.Build(w.t, "runner", "-tags=clusters"), "agent", "--url", "https://"+planeHost, "--data", w.t.TempDir(), "--enrolment-token-file", token)
	cmd.Env = append(append([]string{"AWS_EC2_METADATA_DISABLED=true"}, w.environ...), environ...)
	return w.run(cmd, "the runner "+runner)
}

// detours serves the control plane, and counts the requests of agents and steps that use the API in place
// of AWS.
type detours struct {
	http.Handler
	mu       sync.Mutex
	polls    int             // claims without a wake-up
	logs     int             // parts of logs
	reported map[string]bool // jobs whose steps have reported
}

// newDetours serves the control plane plane. A step that has reported is asked for the end of its log,
// if the subscription of the log group has not delivered it yet. This is not counted.
func newDetours(plane http.Handler) *detours {
	mux, d := http.NewServeMux(), &detours{reported: map[string]bool{}}
	note := func(route wire.Route, do func(r *http.Request, body []byte)) {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the caller is gone
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			d.mu.Lock()
			do(r, body)
			d.mu.Unlock()
			plane.ServeHTTP(w, r)
		})
	}
	note(wire.ClaimJob, func(_ *http.Request, body []byte) {
		var claim struct{ Job string }
		if json.Unmarshal(body, &claim) == nil && claim.Job == "" {
			d.polls++
		}
	})
	note(wire.FinishJob, func(r *http.Request, _ []byte) { d.reported[r.PathValue("job")] = true })
	note(wire.AppendJobLog, func(r *http.Request, _ []byte) {
		if !d.reported[r.PathValue("job")] {
			d.logs++
		}
	})
	mux.Handle("/", plane)
	d.Handler = mux
	return d
}

func (d *detours) counted() (polls, logs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.polls, d.logs
}
