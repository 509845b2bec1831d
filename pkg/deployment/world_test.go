package deployment_test

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

var t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world is a caller of Apply that executes every command: it creates a job for each, applies JobStarted, and records
// which jobs are active.
type world struct {
	tb      testing.TB
	d       deployment.Deployment
	now     time.Time
	jobs    int
	open    map[string]fairlead.JobID             // "plan network" → active job
	made    map[fairlead.JobID]deployment.Command // every job that was created
	cancels []string                              // all cancel commands
	digest  int
}

func newWorld(tb testing.TB, d deployment.Deployment) *world {
	d.ID, d.State, d.Created = "dep_1", deployment.Queued, t0
	for i := range d.Nodes {
		if d.Nodes[i].State == "" {
			d.Nodes[i].State = deployment.Pending
		}
	}
	return &world{tb: tb, d: d, now: t0, open: map[string]fairlead.JobID{}, made: map[fairlead.JobID]deployment.Command{}}
}

// diamond is network ← cache, database ← web.
func diamond() []deployment.Node {
	return []deployment.Node{
		{Component: "network"},
		{Component: "cache", Needs: []string{"network"}},
		{Component: "database", Needs: []string{"network"}},
		{Component: "web", Needs: []string{"cache", "database"}},
	}
}

func one() []deployment.Node { return []deployment.Node{{Component: "web"}} }

// do applies the event and executes the commands.
func (w *world) do(e deployment.Event) *world {
	w.tb.Helper()
	if err := w.try(e); err != nil {
		w.tb.Fatalf("%T of a %s deployment: %v", e, w.d.State, err)
	}
	return w
}

func (w *world) try(e deployment.Event) error {
	w.tb.Helper()
	w.now = w.now.Add(time.Second)
	d, cmds, err := deployment.Apply(w.d, e, w.now)
	if err != nil {
		if len(cmds) > 0 {
			w.tb.Fatalf("%T was refused, but returned commands %v", e, cmds)
		}
		return err
	}
	w.d = d
	for _, c := range cmds {
		if c.Cancel != "" {
			w.cancels = append(w.cancels, "cancel "+w.name(c.Cancel))
			continue
		}
		w.jobs++
		id := fairlead.JobID(fmt.Sprintf("job_%d", w.jobs))
		d, more, err := deployment.Apply(w.d, deployment.JobStarted{Component: c.Component, Operation: c.Operation, Job: id}, w.now)
		if err != nil || len(more) > 0 {
			w.tb.Fatalf("JobStarted for %s %s: commands %v, error %v", c.Operation, c.Component, more, err)
		}
		w.d, w.made[id] = d, c
		w.open[string(c.Operation)+" "+c.Component] = id
	}
	return nil
}

func (w *world) name(id fairlead.JobID) string {
	for name, open := range w.open {
		if open == id {
			return name
		}
	}
	return string(id) + ", which is not active"
}

// ends applies the JobEnded e for the named active job, such as "plan network". It sets e.Job.
func (w *world) ends(name string, e deployment.JobEnded) *world {
	w.tb.Helper()
	id, ok := w.open[name]
	if !ok {
		w.tb.Fatalf("no job %q is active, only %s", name, w.active())
	}
	delete(w.open, name)
	e.Job = id
	return w.do(e)
}

// plans ends the named plan jobs with changes.
func (w *world) plans(names ...string) *world {
	w.tb.Helper()
	for _, name := range names {
		w.digest++
		w.ends(name, deployment.JobEnded{State: job.Succeeded, Digest: fmt.Sprintf("sha256:%d", w.digest), Changes: &deployment.Changes{Add: w.digest}})
	}
	return w
}

// noops ends the named plan jobs without changes.
func (w *world) noops(names ...string) *world {
	w.tb.Helper()
	for _, name := range names {
		w.ends(name, deployment.JobEnded{State: job.Succeeded, NoOp: true, Changes: &deployment.Changes{}})
	}
	return w
}

// succeed ends the named jobs successfully.
func (w *world) succeed(names ...string) *world {
	w.tb.Helper()
	for _, name := range names {
		w.ends(name, deployment.JobEnded{State: job.Succeeded})
	}
	return w
}

// fail ends the named job in the given state.
func (w *world) fail(name string, s job.State) *world {
	w.tb.Helper()
	return w.ends(name, deployment.JobEnded{State: s, Reason: "why", Message: "how"})
}

// active lists the active jobs, sorted by name.
func (w *world) active() string {
	names := make([]string, 0, len(w.open))
	for name := range w.open {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// nodes renders the deployment and its nodes: "running: network applied, …".
func (w *world) nodes() string {
	parts := make([]string, len(w.d.Nodes))
	for i, n := range w.d.Nodes {
		parts[i] = n.Component + " " + string(n.State)
	}
	return string(w.d.State) + ": " + strings.Join(parts, ", ")
}

// is checks the state of the deployment and its nodes, and the active jobs.
func (w *world) is(nodes, active string) *world {
	w.tb.Helper()
	if got := w.nodes(); got != nodes {
		w.tb.Errorf("the deployment is\n     %s\nwant %s", got, nodes)
	}
	if got := w.active(); got != active {
		w.tb.Errorf("the active jobs are %q, want %q", got, active)
	}
	return w
}
