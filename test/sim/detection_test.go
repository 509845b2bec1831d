package sim

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// story runs body in a world with one component, one install and slow tools. The only faults are
// the faults that body causes.
func story(t *testing.T, seed uint64, body func(w *world, h *person)) {
	t.Helper()
	plan := scenario{rates: map[string]float64{"tool-slow": 1}, app: []component{{name: "c1", resources: 2}},
		runners: []runnerPlan{{name: "runner1", storage: "http", hosts: 1, capacity: 2}}, installs: []installPlan{{name: "i1", runner: "runner1"}}}
	play(t, seed, plan, func(w *world, persons []*person) { body(w, persons[0]) })
}

// play runs body in a world with this plan.
func play(t *testing.T, seed uint64, plan scenario, body func(w *world, persons []*person)) {
	t.Helper()
	dir, err := os.MkdirTemp(diskRoot(), "fairlead-simulation")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{Seed: seed, Dir: dir})
		w.plan = plan
		w.apiToken = simulatedToken
		w.quiet = true
		w.startServer()
		go w.keepServers()
		persons := w.setUp()
		w.quiet = false
		body(w, persons)
		for _, v := range w.violations {
			t.Error(v)
		}
		w.tearDown(persons)
	})
}

// await waits until ok is true for a job. It returns the duration of the wait on the bubble's
// clock.
func (w *world) await(t *testing.T, what string, ok func(store.Job) bool) time.Duration {
	t.Helper()
	return w.until(t, "a job is "+what, func() bool { return slices.ContainsFunc(w.allJobs(), ok) })
}

// until waits until ok returns true. It returns the duration of the wait on the bubble's clock.
func (w *world) until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := w.since()
	for !ok() {
		if w.since()-began > 10*time.Minute {
			t.Fatalf("after ten minutes it is not so that %s", what)
		}
		w.nap(10 * time.Millisecond)
	}
	return w.since() - began
}

// TestDeathsAreNoticed measures the time from the death of a process or a host until its job
// leaves the state running. The dead process or host reports nothing itself.
func TestDeathsAreNoticed(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
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
		{"a step dies during a plan: its agent reports it", job.OpPlan, func(w *world) { w.firstStep().p.kill() }, 2 * time.Second},
		// The tools here stop slowly. The agent waits for at most 20 s until they
		// have saved their state, and then reports the death.
		{"a step dies during an apply: its agent reports it after the tool saved its state, or after 20 s", job.OpApply, func(w *world) { w.firstStep().p.kill() }, 22 * time.Second},
		{"an agent dies with its step: the next agent reports it", job.OpPlan, func(w *world) {
			w.firstStep().p.kill()
			w.hosts[0].killAgent()
		}, 60 * time.Second},
		{"a host is gone during a plan: its lease expires", job.OpPlan, func(w *world) { w.hosts[0].vanish() }, 60 * time.Second},
		{"a host is gone during an apply: its lease expires", job.OpApply, func(w *world) { w.hosts[0].vanish() }, 60 * time.Second},
		{"a host is cut off: its lease expires", job.OpApply, func(w *world) { w.hosts[0].setCut(swallowing) }, 60 * time.Second},
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
			t.Logf("longest time: %s", longest.Round(time.Millisecond))
			if longest > tt.within {
				t.Errorf("it took %s, want at most %s", longest, tt.within)
			}
		})
	}
}

// TestLostWakeUpIsNoticed measures the time until a job is claimed after its wake-up was lost.
func TestLostWakeUpIsNoticed(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
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
						w.nap(50 * time.Millisecond) // the server dies after this write
					} else {
						w.nap(10 * time.Millisecond)
					}
					w.calm()
					w.await(t, "claimed", func(j store.Job) bool { return j.Lease.Epoch > 0 })
					longest = max(longest, w.since()-began)
					<-done
				})
			}
			t.Logf("longest time: %s", longest.Round(time.Millisecond))
			if limit := 60 * time.Second; longest > limit {
				t.Errorf("it took %s, want at most %s", longest, limit)
			}
		})
	}
}

// TestCancelInterruptsWithin3SecondsOnAWS measures the time from the cancellation of an apply
// until its tool is interrupted. As on AWS, renewals are answered at once, so a step learns of a
// cancellation from its marker. Its agent has no part in it: it may be full, or another agent of
// the runner may have the place for which the queue's message would have come.
func TestCancelInterruptsWithin3SecondsOnAWS(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	busy := func(w *world) (runs []*run) {
		for _, h := range w.hosts {
			steps, _ := h.living()
			h.mu.Lock()
			for _, s := range steps {
				if s.run != nil && s.run.p.alive() {
					runs = append(runs, s.run)
				}
			}
			h.mu.Unlock()
		}
		return runs
	}
	for _, tt := range []struct {
		name    string
		agents  int // each with one slot
		markers bool
		within  time.Duration
	}{
		{"the agent is full", 1, true, 3 * time.Second},
		{"two agents of the runner, both full", 2, true, 3 * time.Second},
		{"without a marker it takes until the next renewal", 1, false, 16 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var longest time.Duration
			seeds := uint64(20)
			if testing.Short() {
				seeds = 5
			}
			for seed := range seeds {
				plan := scenario{rates: map[string]float64{"tool-slow": 1}, runners: []runnerPlan{{name: "runner1", storage: "http", hosts: tt.agents, capacity: 1}},
					marks: &marks{lost: !tt.markers}}
				for i := range tt.agents + 1 { // one more deployment than slots, so a job is queued
					plan.installs = append(plan.installs, installPlan{name: fmt.Sprint("i", i+1), runner: "runner1"})
				}
				plan.app = []component{{name: "c1", resources: 2}}
				play(t, seed, plan, func(w *world, persons []*person) {
					for _, h := range persons {
						h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
					}
					w.until(t, "each agent applies", func() bool { return len(busy(w)) == tt.agents })
					runs := busy(w)
					// All moments between two looks and between two renewals are equally likely.
					w.nap(time.Duration(w.unit("cancel") * float64(5*time.Second)))
					began, victim := w.since(), runs[0]
					admin := persons[0]
					if err := admin.until("cancel the job", func(ctx context.Context) error { _, err := admin.c.CancelJob(ctx, string(victim.spec.Job)); return err }); err != nil {
						t.Fatal(err)
					}
					w.until(t, "the tool is interrupted", func() bool { return isClosed(victim.interrupt) })
					longest = max(longest, w.since()-began)
					for _, other := range runs[1:] {
						if isClosed(other.interrupt) {
							t.Error("the tool of another agent's job was interrupted too")
						}
					}
				})
			}
			t.Logf("longest time: %s", longest.Round(time.Millisecond))
			if longest > tt.within {
				t.Errorf("it took %s, want at most %s", longest, tt.within)
			}
			if !tt.markers && longest < 3*time.Second {
				t.Errorf("it took only %s without a marker: this test cannot see a lost marker", longest)
			}
		})
	}
}

// A customer's stack sets no time for saves, and its tools change databases and clusters: what has
// begun can last for minutes after an interrupt. A cancellation waits for the save.
func TestCancelWaitsForASaveOfFiveMinutes(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	for seed := range uint64(3) {
		plan := scenario{rates: map[string]float64{"tool-slow": 1}, app: []component{{name: "c1", resources: 4}}, marks: &marks{}, saves: 5 * time.Minute,
			runners: []runnerPlan{{name: "runner1", storage: "http", hosts: 1, capacity: 1, stack: true}}, installs: []installPlan{{name: "i1", runner: "runner1"}}}
		play(t, seed, plan, func(w *world, persons []*person) {
			h := persons[0]
			h.deploy(wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
			var r *run
			w.until(t, "the tool has created a resource", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				for key, all := range w.ledger.applies {
					if len(w.ledger.cloud[key]) > 0 {
						r = all[0].run
					}
				}
				return r != nil
			})
			if err := h.until("cancel the job", func(ctx context.Context) error { _, err := h.c.CancelJob(ctx, string(r.spec.Job)); return err }); err != nil {
				t.Fatal(err)
			}
			w.until(t, "the tool is interrupted", func() bool { return isClosed(r.interrupt) })
			took := w.await(t, "over", func(j store.Job) bool { return j.ID == r.spec.Job && j.State.Final() })
			if took < 5*time.Minute {
				t.Errorf("the tool ended %s after its interrupt, before it had saved", took)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if j := w.ledger.jobs[r.spec.Job]; j.State != job.Canceled || j.Salvaged != nil {
				t.Errorf("%s after the interrupt the job is %s (%s: %s)", took, j.State, j.Reason, j.Message)
			}
			for uid, o := range w.ledger.cloud[r.key] {
				if !o.known {
					t.Errorf("the resource %s is in no saved state", uid)
				}
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
