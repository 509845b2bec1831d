package main_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// deaf is a shell script that ignores INT, TERM and HUP. It starts two processes that
// keep the tool's output open: the first is in the same process group, the second is in
// another session.
const deaf = `trap "" INT TERM HUP; sleep 4000 & setsid sleep 4000 &`

// TestCancel cancels applies whose tools obey signals, and applies whose tools ignore
// signals. In each case, the apply and all its processes end. The created resources are in
// the state, unless the tool had to be killed.
func TestCancel(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	for n, tc := range []struct {
		name, before string
		cancel       func(*e2e.World, *e2e.Deployment, wire.Job)
	}{
		{"a deployment whose tool obeys signals", "", func(w *e2e.World, d *e2e.Deployment, _ wire.Job) {
			w.Must("deployment", "cancel", d.ID)
		}},
		{"a deployment whose tool has children that ignore signals", deaf, func(w *e2e.World, d *e2e.Deployment, _ wire.Job) {
			w.Must("deployment", "cancel", d.ID)
		}},
		{"a deployment whose tool is frozen", "", func(w *e2e.World, d *e2e.Deployment, j wire.Job) {
			if err := syscall.Kill(w.ToolPID(j), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			w.Must("deployment", "cancel", d.ID)
		}},
		{"a job", deaf, func(w *e2e.World, _ *e2e.Deployment, j wire.Job) {
			w.Must("job", "cancel", j.ID)
		}},
	} {
		for _, storage := range shortrun.OneOf(t, n, storages...) {
			t.Run(tc.name+"/"+storage, func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, programs, e2e.Options{Storage: storage, ServerFlags: []string{"--grace", "2s"}})
				i := w.Install("a", tc.before)
				d, j, open := apply(i, "second")
				asked := time.Now()
				tc.cancel(w, d, j)
				now := d.Until("canceled", "failed")
				t.Logf("it ended %s after the request, with a grace of 2 s", time.Since(asked).Round(time.Millisecond))
				open() // open the gate; no process waits at it any more
				if c := d.Component(); c.State != "canceled" && c.State != "failed" {
					t.Errorf("component %+v of a deployment in state %s", c, now.State)
				}
				if j = w.Job(j.ID); j.State != "canceled" || j.Reason != "canceled" {
					t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
				}
				w.CheckOffers(d.Show())
				i.CheckInterrupted(j)
				if did := d.Finish(); !slices.Equal(did, []string{retry, approve}) {
					t.Errorf("to continue, the person ran %q", did)
				}
				// A frozen tool is killed, and cannot save its state.
				if made := i.Created(); len(made) != 2 && !strings.Contains(tc.name, "frozen") {
					t.Errorf("created %v: the state lacked the resource of the first apply", made)
				}
				i.CheckOnce()
				i.CheckClean()
				i.CheckState()
			})
		}
	}
}

// TestDrain stops an agent during an apply. After the first signal, the apply continues to
// its end. The second signal interrupts the apply.
func TestDrain(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	t.Run("SIGTERM: the apply ends, and the next agent claims the next job", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{})
		i := w.Install("a", "")
		d, _, open := apply(i, "second")
		w.Agent.Signal(syscall.SIGTERM)
		e2e.Until(t, "the agent drains", func() bool { return session(t, w).Draining })
		other := w.Install("b", "").Deploy() // no agent may claim its job
		open()
		d.Until("succeeded")
		if code := w.Agent.Exit(t); code != 0 {
			t.Errorf("the agent ended with %d", code)
		}
		if j := other.JobIn("plan", "queued"); j.Epoch != 0 {
			t.Errorf("a draining agent claimed %+v", j)
		}
		w.StartAgent()
		other.Finish()
		i.CheckOnce()
		i.CheckClean()
		if made := i.Created(); len(made) != 2 {
			t.Errorf("created %v", made)
		}
	})
	t.Run("SIGTERM twice: the tool is interrupted and saves its state", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{Storage: "http", ServerFlags: []string{"--grace", "2s"}})
		i := w.Install("a", deaf)
		d, j, open := apply(i, "second")
		w.Agent.Signal(syscall.SIGTERM)
		e2e.Until(t, "the agent drains", func() bool { return session(t, w).Draining })
		w.Agent.Signal(syscall.SIGTERM)
		if code := w.Agent.Exit(t); code != 0 {
			t.Errorf("the agent ended with %d", code)
		}
		open()
		if j = w.Job(j.ID); j.State != "canceled" || j.Reason != "interrupted" {
			t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
		}
		i.CheckInterrupted(j)
		w.StartAgent()
		d.Finish()
		if made := i.Created(); len(made) != 2 {
			t.Errorf("created %v: the state lacked the resource of the first apply", made)
		}
		i.CheckOnce()
		i.CheckClean()
	})
	t.Run("replaced while it drains: the new agent reports why it cannot start", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{})
		i := w.Install("a", "")
		d, _, open := apply(i, "second")
		w.Agent.Signal(syscall.SIGTERM)
		old := w.Agent
		second := w.SpawnAgent()
		if code := second.Exit(t); code == 0 || !strings.Contains(second.Output(), "another agent uses the data folder") {
			t.Errorf("exit code %d: %s", code, second.Output())
		}
		old.Kill() // like a supervisor after its timeout
		w.StartAgent()
		open()
		d.Until("succeeded")
		if made := i.Created(); len(made) != 2 {
			t.Errorf("created %v", made)
		}
		i.CheckOnce()
		i.CheckClean()
	})
}

// session returns the runner's session that is online.
func session(t *testing.T, w *e2e.World) wire.RunnerSession {
	r, err := w.Client.GetRunner(t.Context(), "local")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Sessions {
		if s.State == "online" {
			return s
		}
	}
	return wire.RunnerSession{}
}

// TestExpiredLeaseEndsTheAttempt lets leases expire. After its lease has expired, an
// attempt changes nothing, and the deployment can continue.
func TestExpiredLeaseEndsTheAttempt(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	for _, storage := range shortrun.OneOf(t, 0, storages...) {
		t.Run("a step that slept beyond its lease kills its tool and writes nothing/"+storage, func(t *testing.T) {
			t.Parallel()
			w := e2e.New(t, programs, e2e.Options{Storage: storage, ServerFlags: []string{"--lease", "3s"}})
			i := w.Install("a", "")
			d, j, open := apply(i, "second")
			step := w.StepPID(j)
			if err := syscall.Kill(step, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			e2e.Until(t, "the job has ended", func() bool { j = w.Job(j.ID); return j.FinishedAt != nil })
			if j.State != "lost" || j.Reason != "lease-expired" {
				t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
			}
			size := j.Log[0].Size
			if err := syscall.Kill(step, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			e2e.Until(t, "the step and its children have ended", func() bool {
				return !slices.ContainsFunc(w.Strays(), func(p e2e.Proc) bool { return p.PID == step || strings.Contains(p.Line, "/second") })
			})
			open()
			if now := w.Job(j.ID); now.State != "lost" || now.Log[0].Size != size {
				t.Errorf("the control plane accepted a request of a stale step: %+v", now)
			}
			d.Finish()
			i.CheckOnce()
			i.CheckClean()
			i.CheckState()
		})
	}
	t.Run("a host that is gone for good: its job is lost, and another host continues", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{Storage: "http", ServerFlags: []string{"--lease", "3s"}})
		i := w.Install("a", "")
		d, j, open := apply(i, "second")
		w.KillHost()
		open()
		e2e.Until(t, "the job has ended", func() bool { j = w.Job(j.ID); return j.FinishedAt != nil })
		if j.State != "lost" || j.Reason != "lease-expired" || !strings.Contains(j.Message, "host") {
			t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
		}
		w.ReplaceHost()
		if did := d.Finish(); !slices.Equal(did, []string{approve}) {
			t.Errorf("to continue, the person ran %q", did)
		}
		i.CheckOnce()
		i.CheckClean()
		i.CheckState()
	})
	t.Run("a claim whose answer is lost with its agent", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{ServerFlags: []string{"--lease", "3s"}})
		i := w.Install("a", "")
		w.Agent.Kill() // so that the proxy holds the first claim of the next agent
		h := w.Proxy.HoldAnswers(proxy.Route(wire.ClaimJob))
		d := i.Deploy("--plan-only")
		w.StartAgent()
		h.Arrived(t)
		j := d.JobIn("plan", "claimed")
		w.Agent.Kill()
		h.Drop()
		w.StartAgent()
		d.Until("succeeded")
		if now := w.Job(j.ID); now.Epoch != 2 {
			t.Errorf("the job is %+v", now)
		}
	})
}

// TestLimits reaches each time limit of a job. Each limit ends the job with its own reason.
// The test does not reach two limits: the limit of one day in the queue, and the limit of
// some hours of work.
func TestLimits(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	for _, storage := range shortrun.OneOf(t, 1, storages...) {
		t.Run("a tool without output is interrupted and saves its state/"+storage, func(t *testing.T) {
			t.Parallel()
			w := e2e.New(t, programs, e2e.Options{Storage: storage, ServerFlags: []string{"--lease", "3s", "--no-output-timeout", "2s"}})
			i := w.Install("a", "")
			d, j, open := apply(i, "second")
			d.Until("failed")
			open()
			if j = w.Job(j.ID); j.State != "failed" || j.Reason != "no-output-timeout" || !strings.Contains(j.Message, "wrote no output for 2s") {
				t.Errorf("the job is %s for %q: %s", j.State, j.Reason, j.Message)
			}
			i.CheckInterrupted(j)
			if shown := d.Show(); !strings.Contains(shown, "job.no_output_timeout") {
				t.Errorf("`deployment show` does not name the setting:\n%s", shown)
			}
			if did := d.Finish(); !slices.Equal(did, []string{retry, approve}) {
				t.Errorf("to continue, the person ran %q", did)
			}
			if made := i.Created(); len(made) != 2 {
				t.Errorf("created %v: the state lacked the resource of the first apply", made)
			}
			i.CheckOnce()
			i.CheckClean()
			i.CheckState()
		})
	}
	t.Run("a job that is claimed and never starts", func(t *testing.T) {
		t.Parallel()
		w := e2e.New(t, programs, e2e.Options{ServerFlags: []string{"--lease", "3s"}}) // also shortens the start timeout
		i := w.Install("a", "")
		w.Agent.Kill()
		d := i.Deploy()
		for range 3 {
			h := w.Proxy.HoldAnswers(proxy.Route(wire.ClaimJob))
			w.StartAgent()
			h.Arrived(t)
			w.Agent.Kill()
			h.Drop()
		}
		d.Until("failed")
		if j := d.JobIn("plan", "failed"); j.Reason != "start-timeout" || j.Epoch != 3 {
			t.Errorf("after %d attempts the job is %s for %q: %s", j.Epoch, j.State, j.Reason, j.Message)
		}
		w.CheckOffers(d.Show())
		w.StartAgent()
		if did := d.Finish(); !slices.Equal(did, []string{retry, approve}) {
			t.Errorf("to continue, the person ran %q", did)
		}
		i.CheckOnce()
		i.CheckClean()
	})
}
