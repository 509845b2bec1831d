package plane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/test/proxy"
)

// Job is the progress of a job from Queue: the requests that the control plane accepted.
type Job struct {
	ID       string
	Epoch    int64 // of the last claim
	Spec     events.JobSpec
	Claimed  bool
	ByName   bool // the agent claimed it after its wake-up
	Log      []byte
	Finish   *wire.FinishRequest // of the last attempt
	Finishes int                 // number of reports, with repeated ones
	Died     *wire.DiedRequest   // of the last attempt
	Renewals int                 // number of renewals of its lease
	Appends  int                 // number of appends to its log through the API
	// LogRenewals is the number of renewals of the access to its log.
	LogRenewals int
}

type record struct{ Job }

// Queue queues a job with a spec and returns the job's ID. If Job, Epoch, Runner or the
// times of the spec are zero, the control plane's values replace them. If the operation does
// not exist, the control plane's record of the job has the operation check.
func (p *Plane) Queue(spec events.JobSpec) string {
	p.t.Helper()
	id := fairlead.JobID(p.Control.IDs(fairlead.PrefixJob))
	op := job.Operation(spec.Operation)
	if !slices.Contains(job.Operations(), op) {
		op = job.OpCheck
	}
	j := store.Job{Job: job.New(id, op, time.Now()), InstallName: spec.InstallName, RunnerName: Runner}
	j.Org, j.Runner, j.Install, j.Component, j.Plugin, j.Image = org, RunnerID, spec.Install, spec.Component, spec.Plugin, spec.Image
	j.Terms = job.Terms{LeaseTTL: p.opt.LeaseTTL, Grace: spec.Grace.Duration(), Timeout: spec.Timeout.Duration()}
	if spec.Plan != nil {
		j.PlanJob, j.PlanDigest = spec.Plan.Job, spec.Plan.Digest
	}
	if spec.Install != "" {
		p.install(spec.Install, spec.InstallName)
	}
	if spec.Component != "" {
		j.Version, j.Deployment = p.version(spec.Component), planned
	}
	if op == job.OpMigrateState {
		p.move(j)
	}
	p.change(func() { p.jobs[string(id)] = &record{Job{ID: string(id), Spec: spec}} })
	p.commit(func(tx *store.Tx) { tx.PutJob(store.Stored[store.Job]{V: j}) })
	if err := p.Control.Queue.Send(p.context(), "runner-"+string(RunnerID), events.Wake{Job: id}.Encode(), 0); err != nil {
		p.t.Fatal(err)
	}
	return string(id)
}

// planned is the finished deployment of the jobs from Queue. It is plan-only, so the ends of
// its jobs have no effect on other records.
const planned fairlead.DeploymentID = "dep_planned"

// install creates an install with the ID, unless it created one with the name before.
func (p *Plane) install(id fairlead.InstallID, name string) {
	p.t.Helper()
	p.mu.Lock()
	made, first := p.installs[name], len(p.installs) == 0
	p.installs[name] = true
	p.mu.Unlock()
	if made {
		return
	}
	if p.Control.Access != nil {
		p.version("web") // the access of an attempt is limited to its app, which must exist
	}
	p.commit(func(tx *store.Tx) {
		tx.PutInstall(store.Stored[store.Install]{V: store.Install{ID: id, Org: org, Name: name, App: app, Runner: Runner, RunnerID: RunnerID, Created: time.Now()}})
		if first {
			d := store.Deployment{InstallName: name, RunnerName: Runner}
			d.ID, d.Org, d.Install, d.App, d.Kind, d.PlanOnly, d.State, d.Created = planned, org, id, app, deployment.Deploy, true, deployment.Succeeded, time.Now()
			tx.PutDeployment(store.Stored[store.Deployment]{V: d})
		}
	})
}

// version publishes a version of the app that has only the component. It publishes one
// version per component.
func (p *Plane) version(component string) fairlead.VersionID {
	p.t.Helper()
	p.mu.Lock()
	id := p.versions[component]
	p.mu.Unlock()
	if id != "" {
		return id
	}
	v := p.Publish(fmt.Sprintf("fairlead: v1\nname: %s\ncomponents:\n  %s: {type: terraform, source: ./%[2]s}\n", app, component))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[component] = v.ID
	return v.ID
}

// Publish publishes a version of an app without its artifacts.
func (p *Plane) Publish(config string) control.Version {
	p.t.Helper()
	return p.PublishOf(config, nil)
}

// PublishOf publishes a version of an app. digests maps components to their artifacts;
// the others have none.
func (p *Plane) PublishOf(config string, digests map[string]string) control.Version {
	p.t.Helper()
	spec, problems := appspec.Parse("app.yaml", []byte(config))
	if spec == nil {
		p.t.Fatal(problems.Err())
	}
	canonical, err := spec.Canonical()
	if err != nil {
		p.t.Fatal(err)
	}
	artifacts := map[string]string{}
	for _, c := range spec.Parts() {
		artifacts[c.Name] = cmp.Or(digests[c.Name], "sha256:"+strings.Repeat("0", 64))
	}
	v, err := p.Control.PublishVersion(p.context(), org, spec.Name, canonical, artifacts)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// move records on the job's install that the job migrates its states.
func (p *Plane) move(j store.Job) {
	p.t.Helper()
	runner, err := p.Control.Store.Runner(p.context(), org, Runner)
	if err != nil {
		p.t.Fatal(err)
	}
	inst, err := p.Control.Store.Install(p.context(), org, j.InstallName)
	if err != nil {
		p.t.Fatal(err)
	}
	// The target is not the control plane's own storage, because the control plane would
	// then drop its copy.
	here := store.Binding{Binding: placement.Binding{Runner: RunnerID, Storage: placement.Storage{Kind: runner.V.Storage, Place: runner.V.Place}}, Org: org, Name: Runner, At: time.Now()}
	inst.V.Bound, inst.V.Moving = &here, &store.Moving{Job: j.ID, To: here}
	p.commit(func(tx *store.Tx) { tx.PutInstall(inst) })
}

// Job returns the progress of a job from Queue.
func (p *Plane) Job(id string) Job {
	p.mu.Lock()
	j := p.jobs[id].Job
	p.mu.Unlock()
	j.Log = p.log(id)
	return j
}

// log returns the log of the job's last attempt.
func (p *Plane) log(id string) (all []byte) {
	streams, err := p.Control.Log.Streams(p.context(), id)
	if err != nil {
		p.t.Error(err)
	}
	if len(streams) == 0 {
		return nil
	}
	last := streams[len(streams)-1].Stream
	for {
		c, err := p.Control.Log.Read(p.context(), last, int64(len(all)), joblog.MaxRead)
		if err != nil {
			p.t.Error(err)
		}
		if len(c.Data) == 0 {
			return all
		}
		all = append(all, c.Data...)
	}
}

// Cancel cancels the job.
func (p *Plane) Cancel(job string) {
	p.t.Helper()
	if _, err := p.Control.CancelJob(p.context(), org, fairlead.JobID(job)); err != nil {
		p.t.Fatal(err)
	}
}

// Expire lets the job's lease expire.
func (p *Plane) Expire(id string) {
	p.t.Helper()
	p.Until("the lease of "+id+" expires", func() bool {
		r, err := p.Control.Store.Job(p.context(), fairlead.JobID(id))
		if err != nil {
			p.t.Fatal(err)
		}
		// Not further ahead: a renewal at the same moment would find that the job's own timeout has passed, and cancel the job.
		p.ahead.Store(int64(time.Until(r.V.Lease.Expires) + 30*time.Second))
		_, err = p.Control.Sweep(p.context())
		p.ahead.Store(0)
		if err != nil {
			p.t.Fatal(err)
		}
		if r, err = p.Control.Store.Job(p.context(), fairlead.JobID(id)); err != nil {
			p.t.Fatal(err)
		}
		return r.V.Lease.Epoch > 0 && !r.V.State.Leased()
	})
}

// LoseFinishAnswers makes the control plane accept the next n reports of a job's end without
// an answer, or all reports if n is below 0.
func (p *Plane) LoseFinishAnswers(n int) (stop func()) {
	return p.Fail(proxy.Route(wire.FinishJob), n, proxy.Lose)
}

// LoseLogAnswers makes the control plane accept the next n appends to the job's log without
// an answer.
func (p *Plane) LoseLogAnswers(job string, n int) (stop func()) {
	return p.Fail(proxy.RouteOf(wire.AppendJobLog, job), n, proxy.Lose)
}

// TruncateLog truncates the job's log to size bytes, as a restore from a backup can.
func (p *Plane) TruncateLog(id string, size int) {
	p.t.Helper()
	s := joblog.Stream{Job: id, Epoch: p.Job(id).Epoch}
	left := p.log(id)
	ctx, log := p.context(), p.Control.Log
	err := log.Drop(ctx, id)
	if err == nil {
		err = log.Open(ctx, s)
	}
	if err == nil {
		_, err = log.Append(ctx, s, 0, left[:min(size, len(left))])
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// LockState locks the state for another running job. holder is the Who of the lock info.
func (p *Plane) LockState(install fairlead.InstallID, component, holder string) {
	p.t.Helper()
	id := fairlead.JobID(p.Control.IDs(fairlead.PrefixJob))
	j := store.Job{Job: job.New(id, job.OpPlan, time.Now()), RunnerName: Runner}
	j.Org, j.Runner, j.Install, j.Component = org, RunnerID, install, component
	j.State, j.Lease = job.Running, job.Lease{Epoch: 1, Expires: time.Now().Add(time.Hour)}
	p.commit(func(tx *store.Tx) { tx.PutJob(store.Stored[store.Job]{V: j}) })
	info, err := json.Marshal(map[string]string{"ID": string(id), "Who": holder, "Operation": "OperationTypeApply"})
	if err == nil {
		err = p.Control.LockState(p.context(), control.Holder{Job: id, Epoch: 1}, string(install), component, string(id), info)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// RefuseState makes the control plane refuse every write of a state until accept is
// called.
func (p *Plane) RefuseState() (accept func()) {
	return p.Fail(proxy.Route(wire.PutState), -1, Refuse("other-state"))
}

// UntilFinished waits for the job's report and returns the job.
func (p *Plane) UntilFinished(job string) Job {
	p.t.Helper()
	j := p.untilOver(job)
	if j.Finish == nil {
		p.t.Fatalf("the step of job %s died: %+v", job, *j.Died)
	}
	return j
}

// UntilDied waits until the agent reports the death of the job's step, cancels the job so
// that it has no further attempt, and returns the job.
func (p *Plane) UntilDied(job string) Job {
	p.t.Helper()
	j := p.untilOver(job)
	if j.Died == nil {
		p.t.Fatalf("the step of job %s reported %+v, and did not die", job, *j.Finish)
	}
	r, err := p.Control.Store.Job(p.context(), fairlead.JobID(job))
	if err != nil {
		p.t.Fatal(err)
	}
	if !r.V.State.Final() {
		p.Cancel(job)
	}
	return j
}

func (p *Plane) untilOver(job string) Job {
	p.t.Helper()
	p.Until("a report of "+job, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		j := p.jobs[job]
		return j.Finish != nil || j.Died != nil
	})
	return p.Job(job)
}

// UntilLog waits until the job's log contains text.
func (p *Plane) UntilLog(job, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("%q in the log of %s", text, job), func() bool {
		j := p.Job(job)
		if j.Finish != nil && !strings.Contains(string(j.Log), text) {
			p.t.Fatalf("job %s ended with %+v, and its log does not contain %q:\n%s", job, *j.Finish, text, j.Log)
		}
		return strings.Contains(string(j.Log), text)
	})
}
