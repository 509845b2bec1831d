package sim

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// story is a run without any fault but those that it asks for: one component,
// one install, and tools that take their time.
func story(t *testing.T, seed uint64, tell func(w *world, h *person)) {
	t.Helper()
	dir, err := os.MkdirTemp(diskRoot(), "fairlead-simulation")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{Seed: seed, Dir: dir})
		w.plan = scenario{rates: map[string]float64{"tool-slow": 1}, app: []component{{name: "c1", resources: 2}},
			runners: []runnerPlan{{name: "runner1", storage: "http", hosts: 1, capacity: 2}}, installs: []installPlan{{name: "i1", runner: "runner1"}}}
		w.apiToken = simulatedToken
		w.quiet = true
		w.startServer()
		go w.keepServers()
		persons := w.setUp()
		w.quiet = false
		tell(w, persons[0])
		for _, v := range w.violations {
			t.Error(v)
		}
		w.tearDown(persons)
	})
}

// await waits, on the bubble's clock, until a job is as it should be, and
// returns how long that took.
func (w *world) await(t *testing.T, what string, ok func(store.Job) bool) time.Duration {
	t.Helper()
	began := w.since()
	for w.since()-began < 10*time.Minute {
		for _, j := range w.allJobs() {
			if ok(j) {
				return w.since() - began
			}
		}
		w.nap(10 * time.Millisecond)
	}
	t.Fatalf("no job is %s after ten minutes", what)
	return 0
}

// TestDeathsAreNoticed: how long it takes until somebody does something about
// what has died, and nobody has said so.
func TestDeathsAreNoticed(t *testing.T) {
	running := func(op job.Operation) func(store.Job) bool {
		return func(j store.Job) bool { return j.Operation == op && j.State == job.Running }
	}
	over := func(op job.Operation) func(store.Job) bool {
		return func(j store.Job) bool { return j.Operation == op && j.State != job.Running && j.Lease.Epoch > 0 }
	}
	for _, tt := range []struct {
		name   string
		op     job.Operation
		strike func(w *world)
		within time.Duration
	}{
		{"a step dies at a plan: its agent says so", job.OpPlan, func(w *world) { w.firstStep().p.kill() }, 2 * time.Second},
		// Its tools here are slow to stop. The agent waits for 20 s at most until
		// they have saved what they made, and then says so.
		{"a step dies at an apply: its agent says so when the tool has saved, or had its time", job.OpApply, func(w *world) { w.firstStep().p.kill() }, 22 * time.Second},
		{"an agent dies with its step: the next agent says so", job.OpPlan, func(w *world) {
			w.firstStep().p.kill()
			w.hosts[0].killAgent()
		}, 60 * time.Second},
		{"a host is gone at a plan: its lease runs out", job.OpPlan, func(w *world) { w.hosts[0].vanish() }, 60 * time.Second},
		{"a host is gone at an apply: its lease runs out", job.OpApply, func(w *world) { w.hosts[0].vanish() }, 60 * time.Second},
		{"a host is cut off: its lease runs out", job.OpApply, func(w *world) { w.hosts[0].setCut(swallowing) }, 60 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var longest time.Duration
			for seed := range uint64(20) {
				story(t, seed, func(w *world, h *person) {
					h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
					w.await(t, "running", running(tt.op))
					w.nap(w.between("strike", time.Second, 9*time.Second))
					tt.strike(w)
					longest = max(longest, w.await(t, "over", over(tt.op)))
				})
			}
			t.Logf("%s at the longest", longest.Round(time.Millisecond))
			if longest > tt.within {
				t.Errorf("it took %s, and should take %s at most", longest, tt.within)
			}
		})
	}
}

// TestLostWakeUpIsNoticed: a job whose wake-up was lost is claimed all the same.
func TestLostWakeUpIsNoticed(t *testing.T) {
	for _, fault := range []string{"send-lost", "send-failed", "server-dies-after-write"} {
		t.Run(fault, func(t *testing.T) {
			var longest time.Duration
			for seed := range uint64(20) {
				story(t, seed, func(w *world, h *person) {
					w.nap(15 * time.Second) // the agent polls
					w.plan.rates = map[string]float64{fault: 1}
					began := w.since()
					done := make(chan struct{})
					go func() {
						h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
						close(done)
					}()
					w.await(t, "made", func(store.Job) bool { return true })
					if fault == "server-dies-after-write" {
						w.nap(50 * time.Millisecond) // it dies of this write
					} else {
						w.nap(10 * time.Millisecond)
					}
					w.calm()
					w.await(t, "claimed", func(j store.Job) bool { return j.Lease.Epoch > 0 })
					longest = max(longest, w.since()-began)
					<-done
				})
			}
			t.Logf("%s at the longest", longest.Round(time.Millisecond))
			if limit := 60 * time.Second; longest > limit {
				t.Errorf("it took %s, and should take %s at most", longest, limit)
			}
		})
	}
}

// firstStep returns a step that is alive.
func (w *world) firstStep() *stepProcess {
	for _, h := range w.hosts {
		if steps, _ := h.living(); len(steps) > 0 {
			return steps[0]
		}
	}
	panic(fmt.Sprintf("no step is alive after %s", w.since()))
}
