package awstest

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"
)

// usage is what BenchmarkUsage counts. Package bench makes the prices of it.
type usage struct {
	// Idle is what the control plane used while a runner was idle for IdleSeconds, and Polls how often
	// the runner asked its queue meanwhile.
	Idle        map[string]use `json:"idle"`
	IdleSeconds float64        `json:"idle_seconds"`
	Polls       int            `json:"polls"`
	// Deployed is what a deployment of examples/shop used, with the archives of its logs, and Queue how
	// often the runner asked its queue for its jobs, and deleted or hid messages.
	Deployed map[string]use `json:"deployed"`
	Jobs     int            `json:"jobs"`
	Queue    int            `json:"queue"`
	// Heartbeats are the heartbeats of agents, apart from renewals of their sessions.
	Heartbeats use `json:"heartbeats"`
}

// idleFor is how long BenchmarkUsage observes an idle runner: two sessions of briefSessions and more.
const idleFor = 100 * time.Second

// heartbeatRoute is the route of an agent's heartbeats.
const heartbeatRoute = "POST /runner/v1/session/heartbeat"

// BenchmarkUsage counts what a runner and its jobs use of AWS on the vendor's side, through the functions
// of the stack and a task of the customer's stack for each job. The idle runner's sessions are short, so
// that it renews them while the benchmark looks.
func BenchmarkUsage(b *testing.B) {
	needTofu(b)
	a := deploy(b, releasedTemplate(b, released()))
	a.meter = newMeter(b)
	w := connect(b, a, map[string]http.Handler{planeHost: briefSessions(a.front())}).operated()
	defer w.close()
	w.cli("app", "apply", "examples/shop")
	_, stop := w.install("acme")
	defer stop()
	session := w.attribute("SessionRole", "Arn")
	polls := func() int { return w.guard.Uses(session, "sqs:ReceiveMessage") }
	w.eventually("the runner's start is over: it has sent its first heartbeat, and the event of its start was delivered", func() bool {
		seen := a.meter.look()
		return seen[heartbeatRoute].Count > 0 && seen["webhook"].Count > 0
	})
	var out usage
	for b.Loop() {
		before, asked, began := a.meter.look(), polls(), time.Now()
		time.Sleep(idleFor) // the time is what is observed
		out.IdleSeconds, out.Idle, out.Polls = time.Since(began).Seconds(), a.meter.since(before), polls()-asked
		if out.Idle[sessionsRoute].Count == 0 {
			b.Error("an idle runner did not renew its session")
		}
		for key := range out.Idle {
			if key != sessionsRoute && key != "sweep" {
				b.Errorf("an idle runner causes %q", key)
			}
		}

		before, asked = a.meter.look(), polls()+w.guard.Uses(session, "sqs:DeleteMessage")+w.guard.Uses(session, "sqs:ChangeMessageVisibility")
		d := w.deployInstall("acme")
		w.waitArchived("acme")
		out.Jobs = len(w.jobs(d))
		out.Deployed, out.Queue = a.meter.since(before), polls()+w.guard.Uses(session, "sqs:DeleteMessage")+w.guard.Uses(session, "sqs:ChangeMessageVisibility")-asked
	}
	out.Heartbeats = a.meter.look()[heartbeatRoute]
	text, err := json.MarshalIndent(out, "", "  ")
	if file := os.Getenv("FAIRLEAD_BENCH_USAGE"); err == nil && file != "" {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	w.ok("write what was used", err)
	b.Logf("%s", text)
	b.ReportMetric(0, "ns/op") // removes the time of the run
}
