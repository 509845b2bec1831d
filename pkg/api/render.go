package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
)

// moment returns t in UTC, or nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func renderVersion(v control.Version) wire.AppVersion {
	out := wire.AppVersion{Actors: renderActors(v.Actors), ID: string(v.ID), Names: v.Names, App: v.App, CreatedAt: v.Created.UTC(), New: v.New,
		Inputs: []wire.AppInput{}, Components: []wire.AppComponent{}}
	if v.Spec == nil {
		return out
	}
	out.RunnerKinds = v.Spec.RunnerKinds()
	if s := v.Spec.Sandbox; s != nil {
		out.Sandbox = &wire.AppSandbox{Kind: s.Kind, CreatedBy: s.Component}
		if s.Runner != nil {
			out.Sandbox.RunnerDeployedBy = s.Runner.DeployedBy
		}
	}
	for _, g := range v.Spec.GroupsInOrder() {
		out.InputGroups = append(out.InputGroups, wire.InputGroup{Name: g.Name, Title: g.Title, Description: g.Description})
	}
	out.Inputs = append(out.Inputs, renderDeclared(v.Spec.Inputs)...)
	for _, a := range v.Spec.Actions {
		w := renderAction(a)
		w.Artifact = v.Artifacts[appspec.ActionPrefix+a.Name]
		out.Actions = append(out.Actions, w)
	}
	for _, c := range v.Spec.Components {
		w := wire.AppComponent{Name: c.Name, Type: c.Type, DependsOn: append([]string{}, c.DependsOn...), Artifact: v.Artifacts[c.Name], Switch: c.Switch()}
		if c.Built() {
			from, by := c.From(), v.Builds[c.Name]
			w.Built = &wire.BuiltSource{Kind: from.Kind, URL: from.URL, Chart: from.Chart, Ref: from.Ref, Revision: by.Revision, BuildJob: string(by.Job)}
		}
		out.Components = append(out.Components, w)
	}
	return out
}

// renderDeclared renders inputs of an app, or params of an action.
func renderDeclared(declared []appspec.Input) []wire.AppInput {
	out := make([]wire.AppInput, 0, len(declared))
	for _, in := range declared {
		w := wire.AppInput{Name: in.Name, Type: string(in.Type), Description: in.Description, Required: in.Required, Sensitive: in.Sensitive, Group: in.Group, From: in.From, Generated: in.Generate > 0, GeneratedLength: in.Generate}
		if in.HasDefault && !in.Sensitive {
			// The default was read from JSON, so Marshal cannot fail.
			w.Default, _ = json.Marshal(in.Default)
		}
		out = append(out, w)
	}
	return out
}

func renderAction(a appspec.Action) wire.AppAction {
	out := wire.AppAction{Name: a.Name, Description: a.Description, Type: a.Type, Params: renderDeclared(a.Params), Role: a.Role,
		TimeoutSeconds: int64(time.Duration(a.Timeout) / time.Second), Before: a.Before, After: a.After}
	if a.Schedule != nil {
		out.Schedule = &wire.ActionSchedule{Cron: a.Schedule.Cron, Timezone: a.Schedule.Timezone}
	}
	return out
}

func renderInstallAction(a control.Action) wire.InstallAction {
	out := wire.InstallAction{AppAction: renderAction(a.Action), Version: string(a.Version)}
	if t := a.Timing; t != nil {
		out.NextRun, out.LastRun = moment(t.Next), string(t.Last)
		if t.Skipped != nil {
			out.Skipped = &wire.SkippedRun{At: t.Skipped.At.UTC(), Code: string(t.Skipped.Code), Message: t.Skipped.Message}
		}
	}
	return out
}

func renderApp(a control.App) wire.App {
	return wire.App{Actors: renderActors(a.Actors), ID: string(a.ID), Name: a.Name, Description: a.Description,
		Version: renderVersion(a.Newest), CreatedAt: a.Created.UTC()}
}

// masked replaces a sensitive value.
var masked = json.RawMessage(`"(sensitive)"`)

func renderInstall(in control.Install) wire.Install {
	out := wire.Install{Actors: renderActors(in.Actors), ID: string(in.ID), Name: in.Name, App: in.App, Runner: in.Runner, Bound: in.Bound != nil,
		Group: in.Group.String(), Labels: in.Labels, State: in.State,
		Inputs: map[string]json.RawMessage{}, Components: []wire.InstallComponent{}, Queued: []string{},
		Deployment: string(in.Active), Moving: string(in.Moving), CreatedAt: in.Created.UTC()}
	out.Key = renderKey(in.Key)
	for name, v := range in.Inputs {
		out.Inputs[name] = v.Value
		if v.Sensitive {
			out.Inputs[name] = masked
		}
	}
	for _, c := range in.Components {
		w := wire.InstallComponent{Name: c.Name, State: c.State, Version: string(c.Version), Names: c.Names, Deployment: string(c.Deployment), UpdatedAt: c.Updated.UTC()}
		for _, p := range in.Parts {
			if l := p.Lock; p.Name == c.Name && l != nil {
				if l.Held { // the next job breaks a lock whose job is over
					w.LockedBy = string(l.Job)
				}
				w.Lock = &wire.Lock{ID: l.ID, Job: string(l.Job), Epoch: l.Epoch, Who: l.Who, Operation: l.Operation, Since: l.Since.UTC(), Held: l.Held}
			}
		}
		out.Components = append(out.Components, w)
	}
	for _, d := range in.Queue {
		out.Queued = append(out.Queued, string(d))
	}
	return out
}

func renderMissing(missing []appspec.Input) (out []wire.MissingInput) {
	for _, in := range missing {
		out = append(out, wire.MissingInput{Name: in.Name, From: cmp.Or(in.From, "vendor"), Group: in.Group, Description: in.Description})
	}
	return out
}

func renderSecrets(all []control.DeclaredSecret) (out []wire.CustomerSecret) {
	for _, s := range all {
		out = append(out, wire.CustomerSecret{Component: s.Component, Name: s.Name, Entry: s.Component + "/" + s.Name, New: s.New, RunnerKind: string(s.Kind)})
	}
	return out
}

func renderImages(all []control.DeclaredImage) (out []wire.ScriptImage) {
	for _, i := range all {
		out = append(out, wire.ScriptImage(i))
	}
	return out
}

func renderEffective(e control.Effective) *wire.Effective {
	out := &wire.Effective{Version: string(e.Version), Names: e.Names, Inputs: renderValues(e.Inputs), Environment: renderValues(e.Environment),
		Components: map[string]map[string]wire.EffectiveValue{}, Off: e.Off, Undeployed: []wire.Undeployed{}}
	for component, vars := range e.Vars {
		out.Components[component] = renderValues(vars)
	}
	for _, d := range e.Undeployed {
		out.Undeployed = append(out.Undeployed, wire.Undeployed{Component: d.Component, Kind: string(d.What), Name: d.Name})
	}
	return out
}

func renderValues(values map[string]control.EffectiveValue) map[string]wire.EffectiveValue {
	out := make(map[string]wire.EffectiveValue, len(values))
	for name, v := range values {
		out[name] = wire.EffectiveValue{Value: v.Value, Sensitive: v.Sensitive, From: append([]string{}, v.From...)}
	}
	return out
}

func renderRendered(r control.Rendered) (wire.Rendered, error) {
	out := wire.Rendered{Install: r.Install, App: r.Version.App, Version: string(r.Version.ID), Names: r.Version.Names, Components: []wire.RenderedComponent{}}
	for _, c := range r.Components {
		w := wire.RenderedComponent{Name: c.Name, Type: c.Type, Source: c.Source, Artifact: r.Version.Artifacts[c.Name], Off: c.Off,
			DependsOn: append([]string{}, c.DependsOn...), Secrets: c.Secrets, Environment: append([]string{}, c.Environment...)}
		var err error
		if w.Options, err = renderShown(c.Options); err != nil {
			return out, err
		}
		if w.Vars, err = renderShown(c.Vars); err != nil {
			return out, err
		}
		if c.Image != nil {
			image, err := renderShown(map[string]appspec.Shown{appspec.ImageValue: *c.Image})
			if err != nil {
				return out, err
			}
			value := image[appspec.ImageValue]
			w.Image = &value
		}
		out.Components = append(out.Components, w)
	}
	return out, nil
}

func renderShown(values map[string]appspec.Shown) (map[string]wire.RenderedValue, error) {
	out := make(map[string]wire.RenderedValue, len(values))
	for name, v := range values {
		w := wire.RenderedValue{Sensitive: v.Sensitive, After: v.After, Problem: v.Problem}
		if v.Problem == "" {
			raw, err := json.Marshal(v.Value)
			if err != nil {
				return nil, fmt.Errorf("encode the value of %s: %w", name, err)
			}
			w.Value = raw
		}
		out[name] = w
	}
	return out, nil
}

func renderOutputs(v map[string]map[string]control.Output) wire.Outputs {
	out := wire.Outputs{Components: map[string]map[string]wire.Output{}}
	for component, outputs := range v {
		m := map[string]wire.Output{}
		for name, o := range outputs {
			m[name] = wire.Output{Value: o.Value, Sensitive: o.Sensitive, Encrypted: renderEncrypted(o.Encrypted)}
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

func renderDeployment(d control.Deployment) wire.Deployment {
	out := wire.Deployment{ID: string(d.ID), Revision: d.Revision, Install: d.InstallName, App: d.App, Version: string(d.Version), Names: d.Names,
		Kind: string(d.Kind), Action: d.Action, Trigger: string(d.Trigger), State: string(d.State), PlanOnly: d.PlanOnly, AutoApprove: d.AutoApprove, Ask: string(d.Asks()), PlansExpire: int64(cmp.Or(d.PlansExpire, deployment.PlansExpire).Seconds()), Refresh: d.Refresh, Targets: d.Targets, RetryOf: string(d.RetryOf),
		Components: []wire.DeploymentComponent{}, CreatedAt: d.Created.UTC(), CreatedBy: renderActor(d.By), CanceledBy: renderActor(d.StopBy), FinishedAt: moment(d.Finished)}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		var run deployment.Run
		if n.Run != nil {
			run = *n.Run
		}
		out.Components = append(out.Components, wire.DeploymentComponent{Name: n.Component, Action: run.Action, Trigger: string(run.Trigger), State: string(n.State),
			Needs: append([]string{}, n.Needs...), PlanJob: string(n.PlanJob), Job: string(n.ApplyJob),
			Plan: n.Digest, PlanExpiresAt: moment(d.PlanExpires(n)), Changes: renderChanges(n.Changes), Reason: string(n.Reason), Message: n.Message, ApprovedBy: renderActor(n.Approved), NeedsSignature: n.NeedsSignature})
	}
	advise(&out, diagnosis.OfDeployment(diagnosis.Deployment{Deployment: d.Deployment, Install: d.InstallName}, time.Time{}))
	return out
}

// advise copies the advice of situations into the deployment. Advice about a component
// goes to the component, and all other advice to the deployment itself.
func advise(out *wire.Deployment, situations []diagnosis.Situation) {
	out.Message, out.Next = "", nil
	byName := map[string]*wire.DeploymentComponent{}
	for i := range out.Components {
		out.Components[i].Next = nil
		byName[out.Components[i].Name] = &out.Components[i]
	}
	for _, s := range situations {
		c := byName[s.Component]
		switch {
		case s.Kind == diagnosis.Queued || s.Kind == diagnosis.NotGranted || s.Kind == diagnosis.StatesApart || s.Kind == diagnosis.Approval:
			if a := s.Ahead; a != nil {
				out.Ahead = &wire.DeploymentAhead{ID: string(a.ID), State: string(a.State), Since: a.Since.UTC(), Between: a.Between}
			}
			out.Message, out.Next = strings.TrimSuffix(s.What, "."), renderSteps(s.Next)
		case c == nil:
			out.Next = renderSteps(s.Next)
		case c.Next == nil:
			c.Next = renderSteps(s.Next)
		}
	}
}

func renderSituations(situations []diagnosis.Situation) []wire.Situation {
	var out []wire.Situation
	for _, s := range situations {
		out = append(out, wire.Situation{Kind: string(s.Kind), Component: s.Component, Job: string(s.Job), What: s.What,
			Known: append([]string{}, s.Known...), Next: renderSteps(s.Next)})
	}
	return out
}

func renderSteps(steps []diagnosis.Step) []wire.NextStep {
	out := []wire.NextStep{}
	for _, s := range steps {
		next := wire.NextStep{Effect: s.Effect}
		if a := s.Action; a.Verb != "" {
			next.Action = &wire.Action{Verb: string(a.Verb), Args: wire.ActionArgs(a.Args)}
		}
		out = append(out, next)
	}
	return out
}

func renderJob(j control.Job) wire.Job {
	out := wire.Job{Actors: renderActors(j.Actors), ID: string(j.ID), State: string(j.State), Operation: string(j.Operation), Runner: j.RunnerName,
		Install: j.InstallName, Deployment: string(j.Deployment), Component: j.Component, Epoch: j.Lease.Epoch,
		Reason: string(j.Reason), Message: j.Message, ExitCode: j.ExitCode, Salvaged: (*wire.Salvaged)(j.Salvaged), DiskFull: j.DiskFull, CreatedAt: j.Created.UTC(),
		ClaimedAt: moment(j.Claimed), StartedAt: moment(j.Started), FinishedAt: moment(j.Finished), CanceledBy: renderActor(j.StopBy)}
	if j.Plan != nil {
		out.Plan = &wire.Plan{Digest: j.Plan.Digest, NoOp: j.Plan.NoOp, Changes: wire.Changes(j.Plan.Changes), NeedsSignature: j.Plan.NeedsSignature, Artifact: j.Plan.Artifact}
	}
	if b := j.Build; b != nil {
		out.Build = &wire.JobBuild{App: b.App, Component: b.Component, URL: b.From.URL, Chart: b.From.Chart, Ref: b.From.Ref, Revision: b.Revision, Artifact: b.Artifact}
	}
	for _, d := range j.Deaths {
		out.Deaths = append(out.Deaths, wire.JobDeath{Epoch: d.Epoch, Reason: string(d.Reason), Message: d.Message, ExitCode: d.ExitCode, DiskFull: d.DiskFull,
			StartedAt: moment(d.Started), LastSeenAt: moment(d.LastSeen), At: d.At.UTC()})
	}
	if j.State == job.Lost || j.State == job.Failed {
		for _, s := range diagnosis.OfJob(diagnosis.Job{Job: j.Job, Install: j.InstallName}, time.Time{}) {
			out.Next = renderSteps(s.Next)
		}
	}
	return out
}

// foreign reports whether the runner is shared and the user by is not an operator. A
// tenant must not see what other orgs run on a shared runner.
func foreign(r control.Runner, by control.User) bool { return r.Shared && !by.Operator }

func renderRunner(r control.Runner, by control.User) wire.Runner {
	out := wire.Runner{Actors: renderActors(r.Actors), ID: string(r.ID), Name: r.Name, Description: r.Description, Kind: cmp.Or(r.Kind, "local"), Storage: r.Storage,
		Shared: r.Shared, State: r.State, Mode: string(r.Mode), Sessions: []wire.RunnerSession{}, Warnings: r.Warnings, CreatedAt: r.Created.UTC()}
	if !r.Shared && r.Install == "" {
		out.Group = r.Group.String()
	}
	if foreign(r, by) {
		out.Actors = wire.Actors{} // of the operator's org
		return out
	}
	if t := r.Trust; t != nil {
		out.AWS = &wire.RunnerAWSRole{RoleARN: t.RoleARN(), RoleID: t.RoleID}
		if t.RoleID == "" {
			until := t.PinBefore.UTC()
			out.AWS.WaitsUntil = &until
		}
	}
	out.Customer, out.Wanted = renderCustomer(r.Customer), renderWanted(r.Wanted)
	out.ServiceAccounts, out.Trusts = r.ServiceAccounts, r.Trusts
	for _, s := range r.Sessions {
		out.Sessions = append(out.Sessions, renderSession(s))
	}
	return out
}

func renderSession(s control.Session) wire.RunnerSession {
	return wire.RunnerSession{ID: string(s.ID), Instance: s.Instance, ServiceAccount: s.ServiceAccount, Trust: s.Trust, Subject: s.Subject, Version: s.Version, Protocol: s.Protocol,
		Capacity: s.Capacity, Running: append([]string{}, s.Running...), Draining: s.Draining, Unhealthy: s.Unhealthy, WarmSteps: s.WarmSteps, Isolation: s.Isolation,
		Customer: renderCustomer(s.Customer), State: s.State, LastSeen: s.LastSeen.UTC()}
}

func renderCustomer(w *fairlead.CustomerMode) *wire.CustomerMode {
	if w == nil {
		return nil
	}
	out := &wire.CustomerMode{Mode: string(w.Mode), Reason: w.Reason}
	if !w.Since.IsZero() {
		since := w.Since.UTC()
		out.Since = &since
	}
	return out
}
