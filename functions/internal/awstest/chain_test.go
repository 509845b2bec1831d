package awstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// startTime is how long the start of a task takes in the tests of this file, as on Fargate.
const startTime = 30 * time.Second

// chain is an install whose deployments are a chain of four components. Each start of a task takes a
// given time.
type chain struct {
	*measured
	none     atomic.Bool // no step starts ahead
	versions int         // of the app; each is deployed once, because a plan without changes has no apply

	warm warmSteps
}

// newChain deploys the control plane, and creates the install and its customer's stack.
func newChain(t testing.TB, start time.Duration) (c *chain, stop func()) {
	t.Helper()
	needTofu(t)
	c = &chain{}
	a := deploy(t, releasedTemplate(t, released()))
	w := connect(t, a, map[string]http.Handler{planeHost: c.front(a.front())}).operated()
	w.tasks.StartTime = start
	c.publish(w) // the install needs a version
	c.measured = w.measured("chain", "acme", nil)
	return c, func() { c.stop(); w.close() }
}

// publish publishes a new version of the app, in which each component has changed.
func (c *chain) publish(w *world) {
	w.t.Helper()
	c.versions++
	dir, config := w.t.TempDir(), "fairlead: v1\nname: chain\ncomponents:\n"
	for i, name := range []string{"a", "b", "c", "d"} {
		config += fmt.Sprintf("  %s: {type: script, source: ./%s", name, name)
		if i > 0 {
			config += fmt.Sprintf(", depends_on: [%c]", name[0]-1)
		}
		config += "}\n"
		w.ok("write a component", errors.Join(os.Mkdir(filepath.Join(dir, name), 0o755),
			os.WriteFile(filepath.Join(dir, name, "run"), fmt.Appendf(nil, "#!/bin/sh\necho \"$1 of version %d\"\n", c.versions), 0o755)))
	}
	w.ok("write the app", os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(config), 0o644))
	w.cli("app", "apply", dir)
}

// warmSteps are the ids of the warm steps that run attempts, by the attempts. Safe for concurrent use.
type warmSteps struct {
	mu  sync.Mutex
	ids map[string]string
}

// of returns the warm step that runs the attempt JOB-EPOCH; ok is false if the attempt has a task of its own.
func (w *warmSteps) of(attempt string) (id string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok = w.ids[attempt]
	return id, ok
}

// front serves the control plane, and notes the warm step of each claim.
func (w *warmSteps) front(plane http.Handler) http.Handler {
	return edited(plane, wire.ClaimJob, func(_ *http.Request, answer []byte) []byte {
		var claim wire.Claim
		if json.Unmarshal(answer, &claim) == nil && claim.WarmStep != "" {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.ids == nil {
				w.ids = map[string]string{}
			}
			w.ids[fmt.Sprintf("%s-%d", claim.Job, claim.Epoch)] = claim.WarmStep
		}
		return answer
	})
}

// front serves the control plane, and notes the warm step of each claim. While none is set, it answers
// that no step is to start ahead.
func (c *chain) front(plane http.Handler) http.Handler {
	noted := c.warm.front(plane)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.none.Load() || r.Method != wire.StartAhead.Method || r.URL.Path != wire.StartAhead.Path {
			noted.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(wire.StartedAhead{WarmSteps: []wire.WarmStep{}}) // the runner may be gone
	})
}

// deployed deploys the chain. It returns how long that took, for how many starts of tasks the
// deployment waited, and how many of its jobs ran in warm tasks. Tasks that are requested before the
// end of a start are one start with it: the deployment waits for them at the same time.
func (c *chain) deployed() (took time.Duration, starts, warm int) {
	t, ctx := c.account.t, c.account.t.Context()
	t.Helper()
	c.publish(c.world)
	began := time.Now()
	d, err := c.CreateDeployment(ctx, c.name, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	c.ok("deploy", err)
	d = c.untilDone(ctx, d)
	took = time.Since(began)
	jobs := c.jobs(d.ID)
	if d.State != "succeeded" || len(jobs) != 8 {
		t.Fatalf("the deployment is %s after %d jobs, want succeeded after 8: %s", d.State, len(jobs), d.Message)
	}
	slices.SortFunc(jobs, func(x, y wire.Job) int { return x.ClaimedAt.Compare(*y.ClaimedAt) })
	var until time.Time // the end of the last start that the deployment waited for
	for _, j := range jobs {
		task := fmt.Sprintf("%s-%d", j.ID, j.Epoch)
		if step, ahead := c.warm.of(task); ahead {
			task = step
			warm++
		}
		requested, started := c.tasks.Start(task)
		if started.IsZero() {
			t.Errorf("job %s (%s %s) ran in no task", j.ID, j.Operation, j.Component)
		}
		if started.After(*j.ClaimedAt) && requested.After(until) {
			starts++
			until = started
		}
	}
	return took, starts, warm
}

// A chain of four components has eight jobs, and each has a task of its own. The tasks of the other
// seven start together with that of the first job, so the deployment waits for one start.
func TestChainOnTheStacksWaitsForOneStart(t *testing.T) {
	skipIfShort(t)
	c, stop := newChain(t, startTime)
	defer stop()
	took, starts, warm := c.deployed()
	if starts != 1 || warm != 7 {
		t.Errorf("the chain waited for %d starts of a task, and %d of its jobs ran in warm tasks; want 1 and 7", starts, warm)
	}
	t.Logf("the deployment took %s", took)
}

// BenchmarkChain measures how long the deployment of a chain of four components takes, if each start
// of a task takes startTime, with warm tasks and without. With -short, a start takes a second.
func BenchmarkChain(b *testing.B) {
	start := startTime
	if testing.Short() {
		start = time.Second
	}
	c, stop := newChain(b, start)
	defer stop()
	s, sizes := samples{}, map[string]int64{"start_ms": start.Milliseconds()}
	for b.Loop() {
		for _, want := range []struct {
			name         string
			starts, warm int
		}{{"chain_warm", 1, 7}, {"chain_cold", 8, 0}} {
			c.none.Store(want.warm == 0)
			took, starts, warm := c.deployed()
			if starts != want.starts || warm != want.warm {
				b.Fatalf("%s: the chain waited for %d starts of a task, and %d of its jobs ran in warm tasks; want %d and %d", want.name, starts, warm, want.starts, want.warm)
			}
			s.add(want.name, took)
			sizes[want.name+"_starts"] = int64(starts)
		}
	}
	s.report(b, "FAIRLEAD_BENCH_CHAIN", sizes)
}
