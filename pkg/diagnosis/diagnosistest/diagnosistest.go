// Package diagnosistest has at least one case for each kind of situation that package
// diagnosis reports. The tests of package diagnosis compare the texts with a golden file.
// The tests of the CLI check that every advised command exists.
package diagnosistest

import (
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// T0 is the start time of every case.
func T0() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// Now is the time of the diagnosis: one hour after T0.
func Now() time.Time { return T0().Add(time.Hour) }

// Case is a diagnosis with a name.
type Case struct {
	Name       string
	Situations []diagnosis.Situation
}

// Cases returns all cases.
func Cases() []Case {
	var all []Case
	for _, group := range [][]Case{lostCases(), failedCases(), workingCases(), runnerCases(), waitingCases(), installCases(), jobCases()} {
		all = append(all, group...)
	}
	return all
}

// sec returns the time n seconds after T0.
func sec(n int) time.Time { return T0().Add(time.Duration(n) * time.Second) }

// aJob returns a job of component web after the given events. Without events, the job is
// queued. With events, session ses_1 claimed the job 59 s after T0, its step started 60 s
// after T0, and the given events follow.
func aJob(id fairlead.JobID, op job.Operation, events ...job.Event) job.Job {
	j := job.New(id, op, sec(50))
	j.Component, j.Deployment, j.Install = "web", "dep_1", "ins_1"
	if events == nil {
		return j
	}
	run := []job.Event{{Kind: job.Claim, At: sec(59), Session: "ses_1"}, {Kind: job.Start, At: sec(60), Epoch: 1, Step: "step-1"}}
	for _, e := range append(run, events...) {
		next, err := job.Apply(j, e)
		if err != nil {
			panic(err) // the case describes an event that the job does not accept
		}
		j = next
	}
	return j
}

func die(at int, epoch int64, reason fairlead.Reason, message string) job.Event {
	code := 137
	return job.Event{Kind: job.Die, At: sec(at), Epoch: epoch, Reason: reason, Message: message, ExitCode: &code}
}

func failed(reason fairlead.Reason, message string) job.Event {
	return job.Event{Kind: job.Fail, At: sec(90), Epoch: 1, Reason: reason, Message: message}
}

// unsaved returns the event of an apply whose tool could not save its state. The runner
// salvaged the whole state if whole is true, and a part of the state otherwise.
func unsaved(whole bool) job.Event {
	e := failed(fairlead.ReasonStateUnsaved, "the tool could not save its state; the runner keeps it in /data/salvage/job_a-1/errored.tfstate")
	if !whole {
		e = failed(fairlead.ReasonStateIncomplete, "the tool could not save its state; what there is of it is kept in /data/salvage/job_a-1/errored.tfstate")
	}
	e.Salvaged = &job.Salvaged{Path: "salvage/job_a-1/errored.tfstate", Whole: whole}
	return e
}

// full adds to the event the fact that the runner's disk was full.
func full(e job.Event) job.Event {
	e.DiskFull = true
	return e
}

func stopped() job.Event {
	return job.Event{Kind: job.Stopped, At: sec(92), Epoch: 1, Message: "apply was interrupted and stopped cleanly"}
}

func cancel() job.Event { return job.Event{Kind: job.Cancel, At: sec(91)} }

// runner returns a runner with one agent. The agent is online and has a free slot.
func runner(change ...func(*diagnosis.Runner)) *diagnosis.Runner {
	r := &diagnosis.Runner{Name: "local", Agents: []diagnosis.Agent{{Session: "ses_1", Name: "host-1", Online: true, Capacity: 2, Running: 1, Seen: sec(3590)}}}
	for _, f := range change {
		f(r)
	}
	return r
}

func silent(r *diagnosis.Runner) { r.Agents[0].Online, r.Agents[0].Seen = false, sec(95) }

func waits(n int) func(*diagnosis.Runner) {
	return func(r *diagnosis.Runner) { r.Waiting, r.Oldest = n, sec(50) }
}

// dep returns the diagnosis of a deployment with one component.
func dep(n deployment.Node, jobs []job.Job, change ...func(*diagnosis.Deployment)) []diagnosis.Situation {
	n.Component = "web"
	f := diagnosis.Deployment{Install: "acme", Jobs: map[fairlead.JobID]job.Job{}, Runner: runner(), Parts: map[string]diagnosis.Component{"web": component()}}
	f.ID, f.Deployment.Install, f.Kind, f.State, f.Nodes = "dep_1", "ins_1", deployment.Deploy, deployment.Running, []deployment.Node{n}
	switch n.State {
	case deployment.Awaiting:
		f.State = deployment.Waiting
	case deployment.NodeFailed, deployment.NodeLost, deployment.NodeStopped:
		f.State = deployment.Failed
	}
	for _, j := range jobs {
		f.Jobs[j.ID] = j
	}
	for _, c := range change {
		c(&f)
	}
	return diagnosis.OfDeployment(f, Now())
}

// component returns a component whose condition is unknown since its apply job was created.
// Its state is at the control plane and was saved an hour before T0.
func component(change ...func(*diagnosis.Component)) diagnosis.Component {
	c := diagnosis.Component{Name: "web", Unknown: true, Since: sec(50), Deployment: "dep_1", State: &diagnosis.State{Saved: sec(-3600), Serial: 4}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func with(change ...func(*diagnosis.Component)) func(*diagnosis.Deployment) {
	return func(d *diagnosis.Deployment) { d.Parts["web"] = component(change...) }
}

func savedDuring(c *diagnosis.Component) { c.State = &diagnosis.State{Saved: sec(80), Serial: 6} }
func neverSaved(c *diagnosis.Component)  { c.State = &diagnosis.State{} }
func onRunner(c *diagnosis.Component) {
	c.State = &diagnosis.State{OnRunner: "state/ins_1/web/terraform.tfstate"}
}
func outside(c *diagnosis.Component) { c.State = &diagnosis.State{Outside: "s3"} }

func lock(held bool) func(*diagnosis.Component) {
	return func(c *diagnosis.Component) {
		c.Lock = &diagnosis.Lock{ID: "5f0c-1", Job: "job_a", Epoch: 1, Who: "fairlead@host-1", Operation: "OperationTypeApply", Since: sec(61), Held: held}
	}
}

func lostApply() job.Job {
	return aJob("job_a", job.OpApply, job.Event{Kind: job.Renew, At: sec(75), Epoch: 1}, die(90, 1, fairlead.CauseKilled.Reason(), "the step was killed (killed)"))
}
