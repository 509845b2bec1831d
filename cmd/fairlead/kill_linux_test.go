package main_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// A stage is a point of a deployment. The function reach starts a deployment and stops it
// at the stage. It returns the deployment, the active job, and a function that lets the
// deployment continue. The job is empty if no job is active.
type stage struct {
	name    string
	applies bool // an apply has started
	reach   func(*testing.T, *e2e.World, *e2e.Install) (*e2e.Deployment, wire.Job, func())
}

var (
	queued = stage{"queued", false, func(_ *testing.T, w *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		w.Agent.Kill()
		d := i.Deploy()
		return d, d.JobIn("plan", "queued"), func() {}
	}}
	claimed = stage{"claimed", false, func(t *testing.T, w *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		h := w.Proxy.HoldRequests(proxy.Route(wire.StartJob))
		d := i.Deploy()
		h.Arrived(t)
		return d, d.JobIn("plan", "claimed"), h.Release
	}}
	planning = stage{"planning", false, func(t *testing.T, w *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		h := w.Proxy.HoldGate(i.Name)
		d := i.Deploy()
		h.Arrived(t)
		return d, d.JobIn("plan", "running"), h.Release
	}}
	waiting = stage{"plan waits for approval", false, func(_ *testing.T, _ *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		d := i.Deploy()
		d.Until("awaiting-approval")
		return d, wire.Job{}, func() {}
	}}
	applying = stage{"applying, no resource was created", true, func(_ *testing.T, _ *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		return apply(i, "first")
	}}
	halfway = stage{"applying, one of two resources was created", true, func(_ *testing.T, _ *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		return apply(i, "second")
	}}
	finishing = stage{"applied, not reported", true, func(t *testing.T, w *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		d := i.Deploy()
		d.Until("awaiting-approval")
		h := w.Proxy.HoldRequests(proxy.Route(wire.FinishJob))
		d.Approve()
		h.Arrived(t)
		return d, d.JobIn("apply", "running"), h.Release
	}}
	reported = stage{"applied and reported, the answer is held", true, func(t *testing.T, w *e2e.World, i *e2e.Install) (*e2e.Deployment, wire.Job, func()) {
		d := i.Deploy()
		d.Until("awaiting-approval")
		h := w.Proxy.HoldAnswers(proxy.Route(wire.FinishJob))
		d.Approve()
		h.Arrived(t)
		return d, d.JobIn("apply", "succeeded"), h.Release
	}}
)

func apply(i *e2e.Install, held string) (*e2e.Deployment, wire.Job, func()) {
	d := i.Deploy()
	d.Until("awaiting-approval")
	g := i.Gate(held)
	d.Approve()
	g.Arrived()
	return d, d.JobIn("apply", "running"), g.Open
}

// An aftermath is the expected result of a kill at a stage.
type aftermath struct {
	stage
	job    string   // final state of the active job, as "state" or "state reason"; "": no job
	did    []string // names of the offered commands that the person ran
	applys int      // number of apply attempts that created resources
}

const (
	approve = "deployment approve"
	retry   = "deployment retry"
)

var victims = []struct {
	name   string
	kill   func(*e2e.World, wire.Job)
	revive func(*e2e.World)
	after  []aftermath
}{
	{
		name: "control plane",
		kill: func(w *e2e.World, _ wire.Job) { w.Server.Kill() },
		revive: func(w *e2e.World) {
			w.StartServer()
			if w.Agent.Ended() {
				w.StartAgent()
			}
		},
		after: []aftermath{
			{stage: queued, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: claimed, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: waiting, did: []string{approve}, applys: 1},
			{stage: applying, job: "succeeded", applys: 1},
			{stage: halfway, job: "succeeded", applys: 1},
			{stage: finishing, job: "succeeded", applys: 1},
			{stage: reported, job: "succeeded", applys: 1},
		},
	},
	{
		name:   "agent",
		kill:   func(w *e2e.World, _ wire.Job) { w.Agent.Kill() },
		revive: func(w *e2e.World) { w.StartAgent() },
		after: []aftermath{
			{stage: claimed, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: waiting, did: []string{approve}, applys: 1},
			{stage: applying, job: "succeeded", applys: 1},
			{stage: halfway, job: "succeeded", applys: 1},
			{stage: finishing, job: "succeeded", applys: 1},
			{stage: reported, job: "succeeded", applys: 1},
		},
	},
	{
		name:   "step",
		kill:   func(w *e2e.World, j wire.Job) { w.KillStep(j) },
		revive: func(*e2e.World) {},
		after: []aftermath{
			{stage: claimed, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: applying, job: "lost step-killed", did: []string{approve}, applys: 1},
			{stage: halfway, job: "lost step-killed", did: []string{approve}, applys: 2},
			{stage: finishing, job: "lost step-killed", applys: 1},
			{stage: reported, job: "succeeded", applys: 1},
		},
	},
	{
		name:   "tool",
		kill:   func(w *e2e.World, j wire.Job) { w.KillTool(j) },
		revive: func(*e2e.World) {},
		after: []aftermath{
			{stage: planning, job: "failed tool-killed", did: []string{retry, approve}, applys: 1},
			{stage: applying, job: "failed tool-killed", did: []string{retry, approve}, applys: 1},
			{stage: halfway, job: "failed tool-killed", did: []string{retry, approve}, applys: 2},
		},
	},
	{
		name:   "runner's host",
		kill:   func(w *e2e.World, _ wire.Job) { w.KillHost() },
		revive: func(w *e2e.World) { w.StartAgent() },
		after: []aftermath{
			{stage: claimed, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: applying, job: "lost step-vanished", did: []string{approve}, applys: 1},
			{stage: halfway, job: "lost step-vanished", did: []string{approve}, applys: 2},
			{stage: finishing, job: "lost step-vanished", applys: 1},
			{stage: reported, job: "succeeded", applys: 1},
		},
	},
	{
		name: "control plane and agent",
		kill: func(w *e2e.World, _ wire.Job) { w.Server.Kill(); w.Agent.Kill() },
		revive: func(w *e2e.World) {
			w.StartServer()
			w.StartAgent()
		},
		after: []aftermath{
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: halfway, job: "succeeded", applys: 1},
			{stage: finishing, job: "succeeded", applys: 1},
		},
	},
	{
		name: "everything",
		kill: func(w *e2e.World, _ wire.Job) { w.Server.Kill(); w.KillHost() },
		revive: func(w *e2e.World) {
			w.StartServer()
			w.StartAgent()
		},
		after: []aftermath{
			{stage: planning, job: "succeeded", did: []string{approve}, applys: 1},
			{stage: halfway, job: "lost step-vanished", did: []string{approve}, applys: 2},
			{stage: reported, job: "succeeded", applys: 1},
		},
	},
}

// storages are the state storages. A short run tests a stage with only one storage, and
// with the other storage on the next day, and each third stage on other days.
var storages = []string{"local", "http"}

// TestKill kills each program with SIGKILL at each stage of a deployment, and restarts the
// program as a supervisor does. A person runs the offered commands, and the deployment
// succeeds. No resource is created twice without a plan between the two creations. The
// state and the log are complete, and no process or file remains.
func TestKill(t *testing.T) {
	programs := e2e.Build(t)
	t.Parallel()
	for _, victim := range victims {
		for _, storage := range storages {
			t.Run(victim.name+"/"+storage, func(t *testing.T) {
				t.Parallel()
				w := e2e.New(t, programs, e2e.Options{Storage: storage})
				for n, after := range victim.after {
					// Before an apply, the storage of the state makes no difference.
					if after.applies && !slices.Contains(shortrun.OneOf(t, n, storages...), storage) || !after.applies && storage != storages[0] {
						continue
					}
					if !slices.Contains(shortrun.OneOf(t, n, true, true, false), true) {
						continue
					}
					t.Run(after.name, func(t *testing.T) {
						w.In(t)
						i := w.Install("i"+string(rune('a'+n)), "")
						d, j, release := after.reach(t, w, i)
						killed := time.Now()
						victim.kill(w, j)
						victim.revive(w)
						if after.fatal() {
							// Release the stage only after the job has ended.
							// Otherwise, a process that is being killed could
							// continue.
							var ended *time.Time
							e2e.Until(t, "the job has ended", func() bool { ended = w.Job(j.ID).FinishedAt; return ended != nil })
							t.Logf("noticed after %s", ended.Sub(killed).Round(time.Millisecond))
						}
						release()
						after.check(t, w, i, d, j)
					})
				}
			})
		}
	}
}

// fatal reports whether the active job ended without success.
func (a aftermath) fatal() bool { return a.job != "" && a.job != "succeeded" }

func (a aftermath) check(t *testing.T, w *e2e.World, i *e2e.Install, d *e2e.Deployment, j wire.Job) {
	if j.ID != "" {
		var now wire.Job
		e2e.Until(t, "the job has ended", func() bool { now = w.Job(j.ID); return now.FinishedAt != nil })
		if got := strings.TrimSpace(now.State + " " + now.Reason); got != a.job {
			t.Errorf("the job is %q, want %q: %s", got, a.job, now.Message)
		}
	}
	if a.fatal() {
		shown := w.Must("job", "show", j.ID)
		w.CheckOffers(shown)
		if now := w.Job(j.ID); now.Message == "" || len(now.Log) != 1 || !now.Log[0].Ended {
			t.Errorf("the job has no message or no complete log:\n%s", shown)
		} else if whole := a.name == finishing.name; now.State == "lost" && now.Log[0].Truncated == whole {
			// The log of a lost job is complete only at the stage finishing: the tool has
			// ended, and its step has read all output of the tool.
			t.Errorf("the log is marked truncated: %v, want %v: %+v", !whole, !whole, now.Log)
		} else if now.State == "lost" && whole {
			i.CheckLog(now)
		}
	}
	if did := d.Finish(); !slices.Equal(did, a.did) {
		t.Errorf("the person ran %q, want %q", did, a.did)
	}
	applys := map[string]bool{}
	for _, c := range i.Created() {
		applys[c.Attempt] = true
	}
	if len(applys) != a.applys {
		t.Errorf("the tool created %v, want %d attempts that create resources", i.Created(), a.applys)
	}
	i.CheckOnce()
	i.CheckClean()
	if a.applies {
		i.CheckState()
	}
	for _, j := range d.Jobs() {
		if j.Operation == "apply" && j.State == "succeeded" {
			i.CheckLog(w.Job(j.ID))
		}
	}
}
