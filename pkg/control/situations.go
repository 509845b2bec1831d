package control

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/execution"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// Package diagnosis decides which situations a person sees. This file reads only the facts
// that a situation needs.

// DeploymentSituations returns the conditions of a deployment with the actions that a
// person can take.
func (c *Control) DeploymentSituations(ctx context.Context, d Deployment) ([]diagnosis.Situation, error) {
	if d.State == deployment.Succeeded {
		return nil, nil
	}
	f := diagnosis.Deployment{Deployment: d.Deployment, Install: d.InstallName, Jobs: map[fairlead.JobID]job.Job{}, Parts: map[string]diagnosis.Component{}}
	inst, err := c.Store.Install(ctx, d.Org, d.InstallName)
	switch {
	case fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && inst.V.ID != d.Install:
		f.Gone = true // the install was forgotten; another install may have its name
	case err != nil:
		return nil, err
	case d.State == deployment.Queued:
		if f.Ahead, err = execution.Ahead(c.Reading(ctx), inst.V, d.ID); err != nil {
			return nil, err
		}
		lacks, err := execution.LacksInStack(c.Reading(ctx), inst.V, d.Deployment)
		if err != nil {
			return nil, err
		}
		if f.Missing = lacks.Actions; lacks.States != nil {
			f.StatesIn, f.StackHas = lacks.States.In, lacks.States.Has
		}
	case d.State.Final() && d.Kind != deployment.Action: // a run of an action can be repeated at any time
		if f.Since, err = execution.DeployedSince(c.Reading(ctx), d.Install, d.ID); err != nil {
			return nil, err
		}
	}
	if err := c.nodeFacts(ctx, &f, d, inst.V); err != nil {
		return nil, err
	}
	return diagnosis.OfDeployment(f, c.Now()), nil
}

// nodeFacts reads the jobs of running and failed components, the records of the failed
// components, and the runner of these jobs. The parameter in is the deployment's install.
// It is not used if f.Gone is set.
func (c *Control) nodeFacts(ctx context.Context, f *diagnosis.Deployment, d Deployment, in store.Install) error {
	wantRunner := false
	var of store.Job // the last of these jobs
	var trouble []string
	for _, n := range d.Nodes {
		ids := []fairlead.JobID{n.PlanJob, n.ApplyJob}
		switch n.State {
		case deployment.Planning, deployment.Applying:
		case deployment.Reconciling, deployment.NodeLost, deployment.NodeFailed, deployment.NodeStopped:
			trouble = append(trouble, n.Component)
		case deployment.Awaiting:
			if !n.Lost {
				continue
			}
			trouble = append(trouble, n.Component)
		default:
			continue
		}
		if n.Lost {
			ids = append(append(ids, n.Past...), n.LostJob)
		}
		for _, id := range ids {
			if id == "" {
				continue
			}
			r, err := c.Store.Job(ctx, id)
			if err != nil {
				return err
			}
			f.Jobs[id], of = r.V.Job, r.V
			wantRunner = wantRunner || r.V.State == job.Queued || r.V.State == job.Claimed || len(r.V.Deaths) > 0 || r.V.State == job.Running || r.V.Reason == fairlead.ReasonQueueTimeout
		}
	}
	if wantRunner {
		var err error
		if f.Runner, err = c.runnerFacts(ctx, of.RunnerOrg(), of.RunnerName, of.Runner); err != nil {
			return err
		}
	}
	if f.Gone || len(trouble) == 0 {
		return nil
	}
	for _, name := range trouble {
		var err error
		if f.Parts[name], err = c.componentFacts(ctx, in, name); err != nil {
			return err
		}
	}
	return nil
}

// componentFacts reads one component for package diagnosis.
func (c *Control) componentFacts(ctx context.Context, in store.Install, name string) (diagnosis.Component, error) {
	k, err := c.Store.Component(ctx, in.ID, name)
	if err != nil {
		return diagnosis.Component{}, err
	}
	storage, err := runners.StorageKind(c.Reading(ctx), in.In(k.V.InSandbox))
	if err != nil {
		return diagnosis.Component{}, err
	}
	head, err := c.Store.State(ctx, in.ID, name)
	if err != nil {
		return diagnosis.Component{}, err
	}
	return catalog.Part(c.Reading(ctx), k.V, head.V, storage)
}

// JobSituations returns the conditions of a job.
func (c *Control) JobSituations(ctx context.Context, j Job) ([]diagnosis.Situation, error) {
	f := diagnosis.Job{Job: j.Job, Install: j.InstallName}
	if !j.State.Final() || len(j.Deaths) > 0 {
		var err error
		if f.Runner, err = c.runnerFacts(ctx, j.RunnerOrg, j.RunnerName, j.Runner); err != nil {
			return nil, err
		}
	}
	return diagnosis.OfJob(f, c.Now()), nil
}

// RunnerSituations returns the conditions that keep a runner from taking jobs.
func (c *Control) RunnerSituations(ctx context.Context, r runners.Runner) ([]diagnosis.Situation, error) {
	f, err := c.factsOf(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, s := range r.Sessions {
		if s.State == "online" && (s.Isolation == "landlock" && f.Beside == "" || s.Isolation == "none") {
			f.Beside = s.Isolation
		}
	}
	if f.Several, err = c.mixes(ctx, r.ID, f.Beside); err != nil {
		return nil, err
	}
	return diagnosis.OfRunner(*f), nil
}

// mixes reports whether an agent of the runner runs jobs of several installs without
// containers. The parameter beside is as in diagnosis.Runner: if it is empty, each job
// has a container, and mixes returns false.
func (c *Control) mixes(ctx context.Context, id fairlead.RunnerID, beside string) (bool, error) {
	installs := 0
	if beside == "" {
		return false, nil
	}
	err := runners.EachUse(c.Reading(ctx), id, func(store.RunnerUse, store.Install) bool {
		installs++
		return installs < 2 // two are enough; a runner may have thousands
	})
	return installs > 1, err
}

// AgentSituations returns the conditions for the operator of an agent. They depend on
// how the agent isolates its jobs, which its first heartbeat reports.
func (c *Control) AgentSituations(ctx context.Context, s Session, h runners.Heartbeat) ([]diagnosis.Situation, error) {
	if h.Ending || s.Isolation == h.Isolation || h.Isolation != "landlock" && h.Isolation != "none" {
		return nil, nil
	}
	several, err := c.mixes(ctx, s.Runner, h.Isolation)
	if err != nil || !several {
		return nil, err
	}
	r, err := runners.RunnerByID(c.Reading(ctx), s.Runner)
	if err != nil {
		return nil, err
	}
	return diagnosis.Mixed(diagnosis.Runner{Name: r.Name, Beside: h.Isolation, Several: several}), nil
}

// InstallSituations returns the conditions of an install: of its components in the
// cloud, the locks of its states, and the mode of its runner.
func (c *Control) InstallSituations(ctx context.Context, in catalog.Install) ([]diagnosis.Situation, error) {
	f := diagnosis.Install{Name: in.Name, Active: in.Active, Parts: in.Parts}
	if b := in.Bound; b != nil {
		var err error
		if f.Runner, err = c.runnerFacts(ctx, b.Org, b.Name, b.Runner); err != nil {
			return nil, err
		}
	}
	return diagnosis.OfInstall(f), nil
}

// runnerFacts reads the facts of the runner with this name and id. If the runner was
// deleted, the result has only the runner's name and Gone, even if another runner has the
// name now.
func (c *Control) runnerFacts(ctx context.Context, owner fairlead.OrgID, name string, id fairlead.RunnerID) (*diagnosis.Runner, error) {
	r, err := c.Store.Runner(ctx, owner, name)
	if fairlead.KindOf(err) == fairlead.KindNotFound || err == nil && r.V.ID != id {
		return &diagnosis.Runner{Name: name, Gone: true}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := runners.WithSessions(c.Reading(ctx), r.V)
	if err != nil {
		return nil, err
	}
	return c.factsOf(ctx, v)
}

// maxWaiting is how many due jobs are read to count the jobs that wait for one runner.
const maxWaiting = 200

// forever is later than the due time of any job.
const forever = 10 * 365 * 24 * time.Hour

// aDay is how long a session is stored after it expires. If a runner is older than aDay
// and has no stored sessions, it may have had sessions that are deleted by now.
const aDay = 24 * time.Hour

// factsOf reads the facts of a runner. It counts the waiting jobs only if the runner
// has no free slot. If it has a free slot, waiting jobs start soon.
func (c *Control) factsOf(ctx context.Context, r runners.Runner) (*diagnosis.Runner, error) {
	out := &diagnosis.Runner{Name: r.Name, New: c.Now().Sub(r.Created) < aDay, Kind: r.Kind, Mode: r.Mode, Customer: r.Customer, Speaks: runners.Protocol}
	if w := r.Wanted; w != nil {
		out.Wanted = &diagnosis.Wanted{Version: w.Version, Image: w.Image, Channel: w.Channel}
	}
	free := false
	for _, s := range r.Sessions {
		online := s.State == "online"
		out.Agents = append(out.Agents, diagnosis.Agent{Session: s.ID, Name: s.Instance, Online: online, Draining: s.Draining, Mode: s.Customer.OrEnabled(),
			Version: s.Version, Protocol: s.Protocol, Outdated: !r.Wanted.Runs(s.Version),
			Capacity: s.Capacity, Running: len(s.Running), Seen: s.LastSeen})
		refused := out.Refuses(out.Agents[len(out.Agents)-1])
		free = free || online && !refused && !s.Draining && fairlead.EffectiveMode(r.Mode, s.Customer.OrEnabled()).TakesJobs() && len(s.Running) < s.Capacity
	}
	if free {
		return out, nil
	}
	due, err := c.Store.DueJobs(ctx, c.Now().Add(forever), maxWaiting)
	if err != nil {
		return nil, err
	}
	for _, d := range due {
		if d.V.Runner != r.ID || d.V.State != job.Queued {
			continue
		}
		if out.Waiting++; out.Oldest.IsZero() || d.V.Created.Before(out.Oldest) {
			out.Oldest = d.V.Created
		}
	}
	out.More = len(due) == maxWaiting
	return out, nil
}
