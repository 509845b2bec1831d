package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/schedule"
	"github.com/fairlead/fairlead/pkg/store"
)

// NewRun describes a requested run of an action.
type NewRun struct {
	Action    string                       `json:"action"`
	Params    map[string]json.RawMessage   `json:"params,omitempty"`
	Encrypted map[string]catalog.Encrypted `json:"encrypted,omitempty"` // sensitive params that a person encrypted; Params has the others
	Ask       deployment.Ask               `json:"ask,omitempty"`       // "": never
	NoQueue   bool                         `json:"no_queue,omitempty"`  // refuse the request if another deployment of the install has not ended
}

// RunAction starts a run of an action of the version that the install has deployed. A run is a deployment of the kind
// Action with one node. If another deployment of the install has not ended, RunAction queues the run behind it.
func (ex *Execution) RunAction(ctx context.Context, org fairlead.OrgID, install string, in NewRun, key string) (Deployment, error) {
	id := fairlead.DeploymentID(ex.IDs(fairlead.PrefixDeployment))
	once := kernel.Once{Org: org, Route: "run-action " + install, Key: key, Body: in}
	return ex.request(ctx, "run action "+in.Action+" of install "+install, once, id, install, in.NoQueue, func(tx *kernel.Tx, inst *store.Stored[store.Install]) (store.Deployment, error) {
		return newRun(tx, inst, id, deployment.Manual, in)
	})
}

// newRun returns the deployment of a requested run.
func newRun(tx *kernel.Tx, inst *store.Stored[store.Install], id fairlead.DeploymentID, by deployment.Trigger, in NewRun) (store.Deployment, error) {
	ask := in.Ask
	if ask == "" {
		ask = deployment.AskNever
	}
	d, err := prepare(tx, inst, deployment.Deployment{ID: id, Kind: deployment.Action, Action: in.Action, Trigger: by, Ask: ask, AutoApprove: ask == deployment.AskNever})
	if err != nil {
		return d, err
	}
	a, v, err := catalog.ActionOf(tx, inst.V, in.Action)
	if err != nil {
		return d, err
	}
	encrypted, err := catalog.EncryptedParams(tx, inst.V, v, a, in.Params, in.Encrypted)
	if err != nil {
		return d, err
	}
	d.Params, err = catalog.SealParams(tx, id, a, in.Params, encrypted)
	return d, err
}

// runNode computes the only node of a run. A queued run that begins uses the version that is deployed then.
func runNode(tx *kernel.Tx, inst store.Install, d *deployment.Deployment) error {
	a, v, err := catalog.ActionOf(tx, inst, d.Action)
	if err != nil {
		return err
	}
	if err := catalog.PresentFor(tx, inst, a); err != nil {
		return err
	}
	d.Version = v.ID
	d.Nodes = []deployment.Node{nodeOf(a, v, d.Trigger)}
	return nil
}

// nodeOf returns the node of a run of the version's action.
func nodeOf(a appspec.Action, v catalog.Version, by deployment.Trigger) deployment.Node {
	part := a.Part()
	return deployment.Node{Component: part.Name, Type: part.Type, Size: sizeOf(part), OwnImage: part.HasImage(), State: deployment.Pending,
		Run: &deployment.Run{Action: a.Name, Version: v.ID, Trigger: by, Role: a.Role}}
}

// teardownHooks adds to a teardown the actions of the version that is deployed. If this version was altered, the teardown
// runs without them: otherwise no person could remove the install.
func teardownHooks(tx *kernel.Tx, inst store.Install, d *deployment.Deployment, records map[string]store.Component) error {
	if inst.Deployed == "" {
		return nil
	}
	v, err := catalog.ReadVersion(tx, inst.Deployed)
	if fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
		return nil
	}
	if err != nil {
		return err
	}
	d.Nodes = withHooks(d.Nodes, v)
	afterHooksInSandbox(d.Nodes, records, v)
	return nil
}

// withHooks adds the version's actions that run before or after an operation of the nodes. Each follows the nodes that it
// needs or surrounds.
func withHooks(nodes []deployment.Node, v catalog.Version) []deployment.Node {
	for _, a := range v.Spec.Actions {
		by, items := deployment.Before, a.Before
		if len(a.After) > 0 {
			by, items = deployment.After, a.After
		}
		hook := nodeOf(a, v, by)
		last, destroys := -1, false
		for i, n := range nodes {
			around := slices.ContainsFunc(items, func(item string) bool {
				name, destroy := appspec.Hook(item)
				return n.Run == nil && n.Component == name && n.Destroy == destroy
			})
			if around {
				hook.Run.Around = append(hook.Run.Around, n.Component)
				last, destroys = i, destroys || n.Destroy
			}
		}
		if last < 0 {
			continue
		}
		if by == deployment.After {
			hook.Needs = slices.Clone(hook.Run.Around)
		}
		for i, n := range nodes {
			// A hook of a destroy reads outputs that exist now. It does not wait for the destroy of what it reads.
			if !destroys && n.Run == nil && !n.Destroy && slices.Contains(a.Part().DependsOn, n.Component) {
				if !slices.Contains(hook.Needs, n.Component) {
					hook.Needs = append(hook.Needs, n.Component)
				}
				last = max(last, i)
			}
		}
		for last+1 < len(nodes) && nodes[last+1].Run != nil { // hooks of one component in the order of their names
			last++
		}
		nodes = slices.Insert(nodes, last+1, hook)
	}
	return nodes
}

// continueHook makes a retry run a hook again that did not succeed in the old deployment. The components around it are
// done there, so in the retry they have no changes.
func continueHook(n *deployment.Node, old store.Deployment) {
	was := old.Node(n.Component)
	if n.Run == nil || n.Run.Trigger != deployment.After || n.State != deployment.Pending || was == nil || was.Run == nil {
		return
	}
	changed := slices.ContainsFunc(n.Run.Around, func(name string) bool {
		c := old.Node(name)
		return c != nil && c.State == deployment.Applied
	})
	if changed || was.PlanJob != "" {
		run := *n.Run
		run.Around = nil
		n.Run = &run
	}
}

// keepParams gives a retry of a run the params of the old deployment.
func keepParams(tx *kernel.Tx, inst store.Install, old store.Deployment, d *store.Deployment) error {
	if len(old.Params) == 0 {
		return nil
	}
	given, encrypted, err := catalog.OpenParams(tx, old)
	if err != nil {
		return err
	}
	a, _, err := catalog.ActionOf(tx, inst, old.Action)
	if err != nil {
		return err
	}
	d.Params, err = catalog.SealParams(tx, d.ID, a, given, encrypted)
	return err
}

// knownVars returns what is known of the variables for a command of a deployment. A destroy gets the variables of the last
// apply, because their references may no longer resolve; they need no check.
func knownVars(tx *kernel.Tx, inst store.Install, d store.Deployment, cmd deployment.Command) (map[string]appspec.Outline, error) {
	n := d.Node(cmd.Component)
	version := d.Version
	if n.Run != nil {
		version = n.Run.Version
	} else if n.Destroy {
		return catalog.LastPlain(tx, inst.ID, cmd.Component)
	}
	v, err := catalog.ReadVersion(tx, version)
	if err != nil {
		return nil, err
	}
	if n.Run != nil {
		return catalog.RunOutlines(tx, inst, v, d, *n.Run)
	}
	return catalog.Outlines(tx, inst, v, cmd.Component)
}

// ofRun sets the fields of a job that its action declares.
func ofRun(tx *kernel.Tx, j *store.Job, run *deployment.Run) error {
	v, err := catalog.ReadVersion(tx, run.Version)
	if err != nil {
		return err
	}
	a, ok := v.Spec.Action(run.Action)
	if !ok {
		return fmt.Errorf("version %s has no action %s", v.ID, run.Action)
	}
	j.Version, j.Run = v.ID, run
	if j.Operation == job.OpRun {
		j.Role, j.Terms.Timeout = a.Role, time.Duration(a.Timeout)
	}
	return nil
}

// settle records which version an install has after a deployment that succeeded as a whole, and sets the schedules of
// this version's actions. The caller writes the install.
func settle(tx *kernel.Tx, inst *store.Stored[store.Install], d store.Deployment) error {
	if d.State != deployment.Succeeded || d.PlanOnly || len(d.Targets) > 0 {
		return nil
	}
	switch d.Kind {
	case deployment.Teardown:
		inst.V.Deployed = ""
		return DropSchedules(tx, inst)
	case deployment.Deploy:
	default:
		return nil
	}
	inst.V.Deployed = d.Version
	v, err := catalog.ReadVersion(tx, d.Version)
	if fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
		return nil // the report of the last step must not fail; the next deployment sets the schedules
	}
	if err != nil {
		return err
	}
	return setSchedules(tx, inst, v)
}

// setSchedules makes the install's schedules those of the version. A schedule that stays equal keeps its next time.
func setSchedules(tx *kernel.Tx, inst *store.Stored[store.Install], v catalog.Version) error {
	scheduled := func(a appspec.Action) bool { return a.Schedule != nil }
	if !inst.V.Scheduled && !slices.ContainsFunc(v.Spec.Actions, scheduled) {
		return nil // nearly all installs, so they need no query
	}
	old, err := tx.Store.ActionSchedules(tx.Ctx, inst.V.ID)
	if err != nil {
		return err
	}
	inst.V.Scheduled = false
	for _, a := range v.Spec.Actions {
		if a.Schedule == nil {
			continue
		}
		inst.V.Scheduled = true
		r := store.Stored[store.ActionSchedule]{V: store.ActionSchedule{Org: inst.V.Org, Install: inst.V.ID, InstallName: inst.V.Name, Action: a.Name}}
		if i := slices.IndexFunc(old, func(r store.Stored[store.ActionSchedule]) bool { return r.V.Action == a.Name }); i >= 0 {
			r = old[i]
			old = slices.Delete(old, i, i+1)
			if r.V.Cron == a.Schedule.Cron && r.V.Timezone == a.Schedule.Timezone {
				continue
			}
		}
		r.V.Cron, r.V.Timezone = a.Schedule.Cron, a.Schedule.Timezone
		if r.V.Next, err = nextRun(r.V, tx.Now); err != nil {
			return err
		}
		tx.PutActionSchedule(r)
	}
	for _, r := range old {
		tx.DeleteActionSchedule(r)
	}
	return nil
}

// DropSchedules deletes the schedules of an install.
func DropSchedules(tx *kernel.Tx, inst *store.Stored[store.Install]) error {
	if !inst.V.Scheduled {
		return nil
	}
	old, err := tx.Store.ActionSchedules(tx.Ctx, inst.V.ID)
	for _, r := range old {
		tx.DeleteActionSchedule(r)
	}
	inst.V.Scheduled = false
	return err
}

// nextRun returns the first time of the schedule after the given time.
func nextRun(s store.ActionSchedule, after time.Time) (time.Time, error) {
	parsed, err := schedule.Parse(s.Cron, s.Timezone)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule of action %s of install %s: %w", s.Action, s.InstallName, err)
	}
	return parsed.Next(after), nil
}

// SweepSchedules starts the runs whose time has come, one commit each. Times that passed while the control plane was
// down count as one. If a run of the action has not ended, or the run is refused, the schedule records that it skipped
// the time.
func (ex *Execution) SweepSchedules(ctx context.Context, s *Swept) error {
	return sweepDue(ctx, ex, s, ex.Store.DueSchedules, func(a store.ActionSchedule) (bool, error) {
		return ex.sweepSchedule(ctx, a, s)
	}, func(a store.ActionSchedule) []any { return []any{"install", a.InstallName, "action", a.Action} })
}

// sweepSchedule handles one schedule, and reports whether it is no longer due. Of several sweeps at the same time only
// one starts the run: its commit moves the schedule, and the others then find that it is not due.
func (ex *Execution) sweepSchedule(ctx context.Context, found store.ActionSchedule, s *Swept) (moved bool, err error) {
	id := fairlead.DeploymentID(ex.IDs(fairlead.PrefixDeployment))
	started := false
	try := func(refused error) error {
		return ex.Transact(ctx, "run action "+found.Action+" of install "+found.InstallName+" by its schedule", func(tx *kernel.Tx) error {
			moved = true
			r, err := store.Optional(ex.Store.ActionSchedule(ctx, found.Install, found.Action))
			if err != nil || r.Version == 0 || r.V.Next.After(tx.Now) {
				return err // another sweep was earlier, or the install has another version now
			}
			inst, err := store.Optional(ex.Store.Install(ctx, found.Org, found.InstallName))
			if err != nil {
				return err
			}
			if inst.Version == 0 || inst.V.ID != found.Install {
				tx.DeleteActionSchedule(r) // the install was forgotten
				return nil
			}
			at := r.V.Next
			if r.V.Next, err = nextRun(r.V, tx.Now); err != nil {
				return err
			}
			started = false
			if refused == nil {
				if refused, err = running(tx, inst.V, found.Action); err != nil {
					return err
				}
			}
			if refused != nil {
				r.V.Skipped = &store.SkippedRun{At: at, Code: fairlead.CodeOf(refused), Message: refused.Error()}
				tx.PutActionSchedule(r)
				return nil
			}
			d, err := newRun(tx, &inst, id, deployment.Schedule, NewRun{Action: found.Action})
			if err != nil {
				return err
			}
			started = true
			r.V.Last, r.V.LastAt = id, at
			tx.PutActionSchedule(r)
			_, err = admit(tx, inst, d)
			return err
		})
	}
	err = try(nil)
	switch fairlead.KindOf(err) {
	case "", fairlead.KindInternal, fairlead.KindUnavailable:
	default:
		// The run is refused, for example because its components are not deployed. A separate commit records this, because
		// the refused one may have writes already.
		err = try(err)
	}
	switch {
	case err != nil:
		return false, err
	case started:
		s.Runs++
	default:
		s.Skipped++
	}
	return moved, nil
}

// running returns the error that a run of the action has not ended; nil if none runs or is queued.
func running(tx *kernel.Tx, inst store.Install, action string) (refused, err error) {
	for _, id := range append([]fairlead.DeploymentID{inst.Active}, inst.Queue...) {
		if id == "" {
			continue
		}
		d, err := tx.Store.Deployment(tx.Ctx, id)
		if err != nil {
			return nil, err
		}
		if d.V.Kind == deployment.Action && d.V.Action == action && !d.V.State.Final() {
			return fairlead.Conflict(fairlead.CodeActionRunning, "the run %s of action %s has not ended", id, action), nil
		}
	}
	return nil, nil
}

// ActionTiming is what the schedule of an action has done, and does next.
type ActionTiming struct {
	Next    time.Time
	Last    fairlead.DeploymentID // the last run that it started; "": none
	Skipped *SkippedRun           // the last time for which it started no run; nil: none
}

// SkippedRun is a time of a schedule for which no run was started.
type SkippedRun struct {
	At      time.Time
	Code    fairlead.Code
	Message string
}

// Action is an action of the version that an install has deployed, with its schedule.
type Action struct {
	appspec.Action
	Version fairlead.VersionID
	Timing  *ActionTiming // nil: it has no schedule
}

// Actions lists the actions of the version that the install has deployed, by name.
func (ex *Execution) Actions(ctx context.Context, org fairlead.OrgID, install string) ([]Action, error) {
	tx := ex.Reading(ctx)
	inst, err := ex.Store.Install(ctx, org, install)
	if err != nil || inst.V.Deployed == "" {
		return nil, err
	}
	v, err := catalog.ReadVersion(tx, inst.V.Deployed)
	if err != nil {
		return nil, err
	}
	var schedules []store.Stored[store.ActionSchedule]
	if inst.V.Scheduled {
		if schedules, err = ex.Store.ActionSchedules(ctx, inst.V.ID); err != nil {
			return nil, err
		}
	}
	out := make([]Action, len(v.Spec.Actions))
	for i, a := range v.Spec.Actions {
		out[i] = Action{Action: a, Version: v.ID}
		for _, s := range schedules {
			if s.V.Action == a.Name {
				out[i].Timing = &ActionTiming{Next: s.V.Next, Last: s.V.Last}
				if k := s.V.Skipped; k != nil {
					out[i].Timing.Skipped = (*SkippedRun)(k)
				}
			}
		}
	}
	return out, nil
}
