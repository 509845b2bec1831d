package clusters_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// On Fargate, the next agent has an empty disk. It watches the tasks of the one before: a job goes on, and its death is
// reported at once instead of at the end of its lease.
func TestNextAgentReportsTheDeathOfATask(t *testing.T) {
	type row struct {
		name string
		warm bool // the job's task was started ahead
		stop func(w *world)
	}
	for _, tc := range shortrun.OneOf(t, 0, []row{
		{"a killed agent, the job's own task", false, func(w *world) { w.kill() }},
		{"a killed agent, a task that was started ahead", true, func(w *world) { w.kill() }},
		{"an updated stack, whose agent stops before the job has ended", false, func(w *world) { w.stop(syscall.SIGTERM) }},
	}...) {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.warm {
				w.script = "echo working; while :; do sleep 0.05; done\n" // only an apply runs it
			} else {
				w.HoldRequests(proxy.Route(wire.FinishJob)) // the plan cannot end
			}
			w.start(1, "FAIRLEAD_DRAIN_FOR=1s")
			d := w.deploy("a")
			var job string
			w.Until("the job runs", func() bool {
				w.cloud.StartContainers()
				a := w.Deployment(d.ID).Components[0]
				if job = a.PlanJob; tc.warm {
					job = a.Job
				}
				return job != "" && w.shown(job).State == "running"
			})
			tasks := w.cloud.Running()
			if tc.warm {
				tasks = ahead(tasks)
			} else {
				tasks = slices.DeleteFunc(tasks, func(id string) bool { return id != job+"-1" })
			}
			if len(tasks) != 1 {
				t.Fatalf("the tasks %s run, want one of job %s", w.cloud.Running(), job)
			}
			tc.stop(w)
			w.data = t.TempDir()
			w.start(1)
			w.Until("the next agent watches the task", func() bool {
				_, err := os.Stat(filepath.Join(w.data, "steps", job+"-1"))
				return err == nil && slices.Equal(w.LastBeat().Running, []string{job})
			})
			if j := w.shown(job); j.State != "running" || j.Epoch != 1 || len(j.Deaths) > 0 || !slices.Contains(w.cloud.Running(), tasks[0]) {
				t.Errorf("after the agent was replaced, the job is %s at epoch %d with the deaths %+v; the tasks %s run", j.State, j.Epoch, j.Deaths, w.cloud.Running())
			}
			w.cloud.Kill(tasks[0])
			w.Until("the death is known", func() bool { return len(w.shown(job).Deaths) > 0 })
			// Only an agent sees the signal. The end of a lease has another reason.
			if died := w.shown(job).Deaths[0]; died.Epoch != 1 || died.Reason != "step-killed" {
				t.Errorf("the death is reported as %+v, want the end of epoch 1 by a signal", died)
			}
		})
	}
}

// shown returns a job as the API shows it.
func (w *world) shown(id string) wire.Job {
	w.t.Helper()
	j, err := w.API.GetJob(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// Two agents of one runner do not take each other's steps.
func TestStepsOfALiveAgentStayWithIt(t *testing.T) {
	w := newWorld(t)
	w.start(2)
	d := w.deploy("a")
	w.Until("a task of the job, and one that is started ahead", func() bool { return len(w.cloud.Pending()) == 2 })
	first, data := w.agent, w.data
	w.data = t.TempDir()
	w.start(2)
	asked := func() int { return w.Asked(wire.AdoptSteps) }
	w.Until("the other agent asks whose tasks these are", func() bool { return asked() >= 2 })
	left, err := os.ReadDir(filepath.Join(w.data, "steps"))
	if err != nil || len(left) > 0 || len(w.cloud.Pending()) != 2 {
		t.Errorf("the other agent watches %v, %v; %s wait for their start", left, err, w.cloud.Pending())
	}
	w.kill()
	w.agent, w.data = first, data
	w.cloud.StartContainers()
	w.succeeded(d)
	w.clean()
}
