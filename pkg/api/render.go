package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
)

// moment returns t for the wire, or nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func renderVersion(v control.Version) wire.AppVersion {
	out := wire.AppVersion{ID: string(v.ID), App: v.App, CreatedAt: v.Created.UTC(), New: v.New,
		Inputs: []wire.AppInput{}, Components: []wire.AppComponent{}}
	if v.Spec == nil {
		return out
	}
	for _, in := range v.Spec.Inputs {
		w := wire.AppInput{Name: in.Name, Type: string(in.Type), Description: in.Description, Required: in.Required, Sensitive: in.Sensitive}
		if in.HasDefault && !in.Sensitive {
			// It was read from JSON, so it can be written as JSON.
			w.Default, _ = json.Marshal(in.Default)
		}
		out.Inputs = append(out.Inputs, w)
	}
	for _, c := range v.Spec.Components {
		out.Components = append(out.Components, wire.AppComponent{Name: c.Name, Type: c.Type,
			DependsOn: append([]string{}, c.DependsOn...), Artifact: v.Artifacts[c.Name]})
	}
	return out
}

func renderApp(a control.App) wire.App {
	return wire.App{ID: string(a.ID), Name: a.Name, Description: a.Description,
		Version: renderVersion(a.Newest), CreatedAt: a.Created.UTC()}
}

// masked stands for a sensitive value.
var masked = json.RawMessage(`"(sensitive)"`)

func renderInstall(in control.Install) wire.Install {
	out := wire.Install{ID: string(in.ID), Name: in.Name, App: in.App, Runner: in.Runner, State: in.State,
		Inputs: map[string]json.RawMessage{}, Components: []wire.InstallComponent{}, Queued: []string{},
		Deployment: string(in.Active), CreatedAt: in.Created.UTC()}
	for name, v := range in.Inputs {
		out.Inputs[name] = v.Value
		if v.Sealed != nil {
			out.Inputs[name] = masked
		}
	}
	for _, c := range in.Components {
		out.Components = append(out.Components, wire.InstallComponent{Name: c.Name, State: string(c.State),
			Version: string(c.Version), Deployment: string(c.Deployment), UpdatedAt: c.Updated.UTC(), LockedBy: string(in.Locks[c.Name])})
	}
	for _, d := range in.Queue {
		out.Queued = append(out.Queued, string(d))
	}
	return out
}

func renderOutputs(v map[string]map[string]control.Output) wire.Outputs {
	out := wire.Outputs{Components: map[string]map[string]wire.Output{}}
	for component, outputs := range v {
		m := map[string]wire.Output{}
		for name, o := range outputs {
			m[name] = wire.Output{Value: o.Value, Sensitive: o.Sensitive}
		}
		out.Components[component] = m
	}
	return out
}

func renderChanges(c *deployment.Changes) *wire.Changes {
	if c == nil {
		return nil
	}
	w := wire.Changes(*c)
	return &w
}

func renderDeployment(r control.StoredDeployment) wire.Deployment {
	d := r.V
	out := wire.Deployment{ID: string(d.ID), Revision: r.Version, Install: d.InstallName, App: d.App, Version: string(d.Version),
		Kind: string(d.Kind), State: string(d.State), PlanOnly: d.PlanOnly, AutoApprove: d.AutoApprove, RetryOf: string(d.RetryOf),
		Components: []wire.DeploymentComponent{}, CreatedAt: d.Created.UTC(), FinishedAt: moment(d.Finished)}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		out.Components = append(out.Components, wire.DeploymentComponent{Name: n.Component, State: string(n.State),
			Needs: append([]string{}, n.Needs...), PlanJob: string(n.PlanJob), Job: string(n.ApplyJob),
			Plan: n.Digest, Changes: renderChanges(n.Changes), Reason: n.Reason, Message: n.Message, Hint: nodeHint(d, n)})
	}
	out.Message, out.Hint = deploymentHint(d)
	return out
}

// nodeHint says what a person can do about a component.
func nodeHint(d control.DeploymentRecord, n *deployment.Node) string {
	switch {
	case n.State == deployment.Awaiting && n.Lost:
		return fmt.Sprintf("Read the new plan with `fairlead job show %s`, beside what was made before: `fairlead job logs %s`. "+
			"A tool that was killed may have made things that its state does not have: import those first. "+
			"Then approve it with `fairlead deployment approve %s %s`, or cancel.", n.PlanJob, n.ApplyJob, d.ID, n.Component)
	case n.State == deployment.NodeLost:
		return fmt.Sprintf("Nobody knows how far it came. `fairlead deployment retry %s` plans it anew and shows what is missing before anything is changed.", d.ID)
	case n.State == deployment.NodeFailed && n.Reason == job.ReasonPoison:
		return fmt.Sprintf("It ended its runner %d times. Look at `fairlead job logs` and at the runner's memory before `fairlead deployment retry %s`.", job.MaxAttempts, d.ID)
	case n.State == deployment.NodeFailed && n.ApplyJob != "" && n.Reason == "tool-killed":
		return fmt.Sprintf("`fairlead job logs %s` says what it made. A tool that was killed may have made things that its state does not have: import those before a new plan is approved.", n.ApplyJob)
	case n.State == deployment.NodeFailed && n.ApplyJob != "":
		return fmt.Sprintf("See `fairlead job logs %s`.", n.ApplyJob)
	case n.State == deployment.NodeFailed && n.PlanJob != "":
		return fmt.Sprintf("See `fairlead job logs %s`.", n.PlanJob)
	}
	return ""
}

// deploymentHint says what a person can do about a deployment.
func deploymentHint(d control.DeploymentRecord) (message, hint string) {
	switch d.State {
	case deployment.Queued:
		return fmt.Sprintf("another deployment of install %s is not over", d.InstallName), ""
	case deployment.Waiting:
		return "plans wait for approval", fmt.Sprintf("`fairlead deployment approve %s` carries them out; `fairlead deployment cancel %s` does not.", d.ID, d.ID)
	case deployment.Failed, deployment.Canceled:
		return "", fmt.Sprintf("`fairlead deployment retry %s` goes on where it stopped; `fairlead install deploy %s` starts anew.", d.ID, d.InstallName)
	}
	return "", ""
}

func renderJob(j control.JobRecord) wire.Job {
	out := wire.Job{ID: string(j.ID), State: string(j.State), Operation: string(j.Operation), Runner: j.RunnerName,
		Install: j.InstallName, Deployment: string(j.Deployment), Component: j.Component, Epoch: j.Lease.Epoch,
		Reason: j.Reason, Message: j.Message, ExitCode: j.ExitCode, CreatedAt: j.Created.UTC(),
		ClaimedAt: moment(j.Claimed), StartedAt: moment(j.Started), FinishedAt: moment(j.Finished)}
	if j.Plan != nil {
		out.Plan = &wire.Plan{Digest: j.Plan.Digest, NoOp: j.Plan.NoOp, Changes: wire.Changes(j.Plan.Changes)}
	}
	if j.State == job.Lost {
		out.Hint = fmt.Sprintf("It may have changed something before it vanished. `fairlead deployment show %s` says what runs next.", j.Deployment)
	}
	return out
}

func renderRunner(r control.Runner) wire.Runner {
	out := wire.Runner{ID: string(r.ID), Name: r.Name, Description: r.Description, Storage: r.Storage, State: r.State,
		Sessions: []wire.RunnerSession{}, CreatedAt: r.Created.UTC()}
	for _, s := range r.Sessions {
		out.Sessions = append(out.Sessions, wire.RunnerSession{ID: string(s.ID), Instance: s.Instance, Version: s.Version,
			Capacity: s.Capacity, Running: append([]string{}, s.Running...), Draining: s.Draining, State: s.State, LastSeen: s.LastSeen.UTC()})
	}
	return out
}
