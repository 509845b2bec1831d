package execution

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// MaxQueue is how many deployments of one install may wait.
const MaxQueue = 20

// NewDeployment says what to deploy.
type NewDeployment struct {
	Kind        deployment.Kind    `json:"kind"`
	PlanOnly    bool               `json:"plan_only"`
	AutoApprove bool               `json:"auto_approve"`       // the same as Ask never
	Ask         deployment.Ask     `json:"ask,omitempty"`      // "": as AutoApprove says
	Version     fairlead.VersionID `json:"version"`            // "": the newest
	NoQueue     bool               `json:"no_queue,omitempty"` // refuse it while another deployment has the install
}

// CreateDeployment starts a deployment of the install, or queues it behind the
// one that runs.
func (ex *Execution) CreateDeployment(ctx context.Context, org fairlead.OrgID, install string, in NewDeployment, key string) (Deployment, error) {
	if in.Kind != deployment.Deploy && in.Kind != deployment.Teardown {
		return Deployment{}, fairlead.Invalid(fairlead.CodeInvalidKind, "%q is no kind of deployment: deploy and teardown are", in.Kind)
	}
	if in.Ask != "" {
		in.AutoApprove = in.Ask == deployment.AskNever
	}
	id := fairlead.DeploymentID(ex.IDs(fairlead.PrefixDeployment))
	once := kernel.Once{Org: org, Route: "create-deployment " + install, Key: key, Body: in}
	var out Deployment
	err := ex.Transact(ctx, "deploy install "+install, func(tx *kernel.Tx) error {
		if made, err := tx.Seen(once, string(id)); err != nil || made != "" {
			return existing(tx, &out, made, err)
		}
		inst, err := ex.Store.Install(ctx, org, install)
		if err != nil {
			return err
		}
		d, err := prepare(tx, &inst, deployment.Deployment{ID: id, Kind: in.Kind, PlanOnly: in.PlanOnly, AutoApprove: in.AutoApprove, Ask: in.Ask, Version: in.Version})
		if err != nil {
			return err
		}
		if active := inst.V.Active; in.NoQueue && active != "" && active != id {
			return notQueued(tx, inst.V)
		}
		r, err := admit(tx, inst, d)
		out = deploymentOf(r)
		return err
	})
	return out, err
}

// notQueued refuses a deployment that would wait for the install's active one.
func notQueued(tx *kernel.Tx, inst store.Install) error {
	ahead, err := Ahead(tx, inst, "")
	if err != nil {
		return err
	}
	if ahead.State.Final() {
		return kernel.ErrTorn // it ended after its install was read
	}
	return diagnosis.NotQueued(inst.Name, *ahead)
}

// prepare completes a deployment that is asked for with what the install says, with its
// graph, and with its runner. Without a version it has the newest.
func prepare(tx *kernel.Tx, inst *store.Stored[store.Install], asked deployment.Deployment) (store.Deployment, error) {
	d := store.Deployment{Deployment: asked, InstallName: inst.V.Name}
	d.Org, d.Install, d.App = inst.V.Org, inst.V.ID, inst.V.App
	d.Parallelism, d.State, d.Created, d.By = tx.Parallelism, deployment.Queued, tx.Now, kernel.Actor(tx.Ctx)
	if err := fillNodes(tx, inst.V, &d.Deployment, asked.Version); err != nil {
		return d, err
	}
	return d, assignRunner(tx, inst, &d)
}

// assignRunner gives the deployment the runner of its install, which is bound by its
// first deployment that has anything to do.
func assignRunner(tx *kernel.Tx, inst *store.Stored[store.Install], d *store.Deployment) error {
	if err := catalog.NotMoving(inst.V); err != nil {
		return err
	}
	if len(d.Nodes) > 0 || inst.V.Active != "" {
		if err := runners.BindRunner(tx, inst); err != nil {
			return err
		}
	}
	d.RunnerName = runners.RunnerOf(inst.V)
	d.Shared = inst.V.Bound != nil && inst.V.Bound.Org == ""
	return nil
}

// existing loads the deployment that an earlier, equal request made.
func existing(tx *kernel.Tx, out *Deployment, made string, err error) error {
	if err != nil {
		return err
	}
	r, err := tx.Store.Deployment(tx.Ctx, fairlead.DeploymentID(made))
	*out = deploymentOf(r)
	return err
}

// fillNodes gives the deployment its graph: for a deploy every component of
// the version, and after those the ones that the version no longer has; for a
// teardown every component that is not known to be absent, in reverse.
func fillNodes(tx *kernel.Tx, inst store.Install, d *deployment.Deployment, version fairlead.VersionID) error {
	app, err := catalog.ReadApp(tx, inst.Org, inst.App)
	if err != nil {
		return err
	}
	v := app.Newest
	if version != "" && version != v.ID {
		if v, err = catalog.ReadVersion(tx, version); err != nil {
			return err
		}
		if v.Org != inst.Org {
			return fairlead.NotFound(fairlead.CodeVersionNotFound, string(version)) // another org's does not exist, whatever its app is called
		}
		if v.App != inst.App { // apps are one to a name within an org
			return fairlead.Invalid(fairlead.CodeVersionOfOtherApp, "version %s is of app %s, not %s", version, v.App, inst.App)
		}
	}
	d.Version = v.ID
	comps, err := tx.Components(inst.ID)
	if err != nil {
		return err
	}
	left, lost := map[string]store.Component{}, map[string]fairlead.JobID{}
	for _, k := range comps {
		lost[k.V.Name] = k.V.Lost
		if k.V.State != store.Absent {
			left[k.V.Name] = k.V
		}
	}
	defer func() {
		for i := range d.Nodes {
			n := &d.Nodes[i]
			n.LostJob = lost[n.Component]
			n.Lost = n.LostJob != ""
		}
	}()
	if d.Kind == deployment.Teardown {
		d.Nodes, err = removals(left)
		return err
	}
	if err := checkInputs(tx, inst, v.Spec); err != nil {
		return err
	}
	waves, err := graph.Order(v.Spec.Graph())
	if err != nil {
		return err
	}
	var names []string
	for _, wave := range waves {
		for _, name := range wave {
			k, _ := v.Spec.Component(name)
			if was, there := left[name]; there && was.TypeOf().Name != k.Type {
				return typeChanged(inst, was, k.Type, v.ID)
			}
			d.Nodes = append(d.Nodes, deployment.Node{Component: name, Type: k.Type, Needs: k.DependsOn, State: deployment.Pending})
			names = append(names, name)
			delete(left, name)
		}
	}
	gone, err := removals(left)
	if err != nil {
		return err
	}
	for _, n := range gone {
		// What the new version dropped may still be used by what it keeps, until
		// that has been applied.
		n.Needs = append(slices.Clone(names), n.Needs...)
		d.Nodes = append(d.Nodes, n)
	}
	return nil
}

// typeChanged refuses a version in which a component that is there is of another type:
// what made it is what can destroy it.
func typeChanged(inst store.Install, was store.Component, to string, v fairlead.VersionID) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeComponentTypeChanged,
		Message: fmt.Sprintf("component %s of install %s is of the type %s, and in version %s of the type %s", was.Name, inst.Name, was.TypeOf().Name, v, to),
		Hint:    "Give the new component another name: the old one is destroyed then, by what made it.",
		Details: map[string]string{"component": was.Name}}
}

// removals orders components for removal: a component goes after those that
// depend on it.
func removals(left map[string]store.Component) ([]deployment.Node, error) {
	var nodes []graph.Node
	for name, k := range left {
		var needs []string
		for _, n := range k.DependsOn {
			if _, ok := left[n]; ok {
				needs = append(needs, n)
			}
		}
		nodes = append(nodes, graph.Node{Name: name, Needs: needs})
	}
	reversed := graph.Reverse(acyclic(nodes, left))
	waves, err := graph.Order(reversed)
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for _, n := range reversed {
		needs[n.Name] = n.Needs
	}
	var out []deployment.Node
	for _, wave := range waves {
		for _, name := range wave {
			out = append(out, deployment.Node{Component: name, Type: left[name].Type, Destroy: true, Needs: needs[name], State: deployment.Pending})
		}
	}
	return out, nil
}

// acyclic leaves out needs until none is on a cycle. No version has one, so the
// records on it are of several, and one of them is behind what is there. Of each
// cycle the need goes that was written down first: what was written later has
// seen more. Were that wrong, a removal would fail at what still uses the
// component, and could be retried; refusing all of it would leave a person no way
// to remove any.
func acyclic(nodes []graph.Node, of map[string]store.Component) []graph.Node {
	for {
		cycle := graph.Cycle(nodes)
		if cycle == nil {
			return nodes
		}
		from := 0
		for i := range cycle[:len(cycle)-1] {
			if of[cycle[i]].Updated.Before(of[cycle[from]].Updated) {
				from = i
			}
		}
		for i := range nodes {
			if nodes[i].Name == cycle[from] {
				nodes[i].Needs = slices.DeleteFunc(nodes[i].Needs, func(need string) bool { return need == cycle[from+1] })
			}
		}
	}
}

// checkInputs holds the install's inputs to the version that is about to be
// deployed; it may have inputs that the version of the day it was made had not.
func checkInputs(tx *kernel.Tx, inst store.Install, spec *appspec.App) error {
	given, err := catalog.OpenInputs(tx, inst.ID, inst.Inputs)
	if err != nil {
		return err
	}
	_, err = spec.CheckInputs(given)
	return err
}

// admit begins the deployment if the install is free, and queues it otherwise.
func admit(tx *kernel.Tx, inst store.Stored[store.Install], d store.Deployment) (store.Stored[store.Deployment], error) {
	if inst.V.Active == d.ID || slices.Contains(inst.V.Queue, d.ID) {
		return tx.Store.Deployment(tx.Ctx, d.ID) // our own commit, whose answer was unclear
	}
	r := store.Stored[store.Deployment]{V: d}
	if inst.V.Active != "" {
		if len(inst.V.Queue) >= MaxQueue {
			return r, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeQueueFull,
				Message: fmt.Sprintf("%d deployments of install %s wait already", MaxQueue, inst.V.Name),
				Hint:    "Cancel some of them: each would deploy the same install."}
		}
		inst.V.Queue = append(slices.Clone(inst.V.Queue), d.ID)
		tx.PutInstall(inst)
		r.V.Changed = tx.Now
		tx.PutDeployment(r)
		return r, nil
	}
	inst.V.Active = d.ID
	tx.PutInstall(inst)
	return advance(tx, &inst, r, deployment.Begin{})
}

// Deployment is a deployment with its revision.
type Deployment struct {
	deployment.Deployment
	InstallName string // an install may be forgotten before its deployments
	RunnerName  string
	RunnerOrg   fairlead.OrgID // "": the runner is the operator's
	Revision    int64          // grows with each change
}

func deploymentOf(r store.Stored[store.Deployment]) Deployment {
	return Deployment{Deployment: r.V.Deployment, InstallName: r.V.InstallName, RunnerName: r.V.RunnerName, RunnerOrg: r.V.RunnerOrg(), Revision: r.Version}
}

// Deployment returns a deployment.
func (ex *Execution) Deployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) (Deployment, error) {
	r, err := orgsDeployment(ex.Reading(ctx), org, id)
	return deploymentOf(r), err
}

// orgsDeployment returns a deployment of the org; those of others do not exist.
func orgsDeployment(tx *kernel.Tx, org fairlead.OrgID, id fairlead.DeploymentID) (store.Stored[store.Deployment], error) {
	r, err := tx.Store.Deployment(tx.Ctx, id)
	if err == nil && r.V.Org != org {
		return store.Stored[store.Deployment]{}, fairlead.NotFound(fairlead.CodeDeploymentNotFound, string(id))
	}
	return r, err
}

// WaitDeployment returns the deployment once its revision is greater than
// after, or as it is when wait is over.
func (ex *Execution) WaitDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, after int64, wait time.Duration) (Deployment, error) {
	var d Deployment
	err := ex.Wait(ctx, string(id), wait, func(ctx context.Context) (bool, error) {
		var err error
		d, err = ex.Deployment(ctx, org, id)
		return d.Revision > after || d.State.Final(), err
	})
	return d, err
}

// DeploymentFilter selects deployments; the zero value selects all.
type DeploymentFilter struct {
	Install string // name; that of one that has been forgotten, too
	State   deployment.State
}

// Deployments lists the deployments that the filter selects, the newest first. A
// page may have fewer than asked for, even none, and yet not be the last.
func (ex *Execution) Deployments(ctx context.Context, org fairlead.OrgID, f DeploymentFilter, q fairlead.PageQuery) (found []Deployment, next string, _ error) {
	read := func(q fairlead.PageQuery) (store.Page[store.Deployment], error) {
		return ex.Store.Deployments(ctx, org, q)
	}
	byName := false
	if f.Install != "" {
		inst, err := ex.Store.Install(ctx, org, f.Install)
		switch byName = fairlead.KindOf(err) == fairlead.KindNotFound; {
		case byName: // it may have been forgotten; its deployments know its name
		case err != nil:
			return nil, "", err
		default:
			read = func(q fairlead.PageQuery) (store.Page[store.Deployment], error) {
				return ex.Store.InstallDeployments(ctx, inst.V.ID, q)
			}
		}
	}
	pages := maxFiltered
	if f.State == "" && !byName {
		pages = 1
	}
	first, limit := q.After == "", cmp.Or(q.Limit, engine.MaxPage)
	for range pages {
		q.Limit = limit - len(found)
		p, err := read(q)
		if err != nil {
			return nil, "", err
		}
		for _, d := range p.Items {
			if (f.State == "" || d.V.State == f.State) && (!byName || d.V.InstallName == f.Install) {
				found = append(found, deploymentOf(d))
			}
		}
		if q.After, next = p.Next, p.Next; next == "" || len(found) == limit {
			break
		}
	}
	if byName && first && next == "" && len(found) == 0 && f.State == "" {
		return nil, "", fairlead.NotFound(fairlead.CodeInstallNotFound, f.Install)
	}
	return found, next, nil
}

// maxFiltered is how many pages are read for one of a listing that is filtered.
const maxFiltered = 20

// ApproveDeployment lets plans that wait be carried out: those of the named
// components, or all. plans holds the digests of those that were looked at, by
// component; one that has changed since is refused.
func (ex *Execution) ApproveDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, components []string, plans map[string]string) (Deployment, error) {
	return ex.move(ctx, org, id, "approve", deployment.Approve{Components: components, Plans: plans, By: kernel.Actor(ctx)})
}

// CancelDeployment stops what runs and starts nothing more.
func (ex *Execution) CancelDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) (Deployment, error) {
	return ex.move(ctx, org, id, "cancel", deployment.Cancel{By: kernel.Actor(ctx)})
}

// move applies an event that a person caused.
func (ex *Execution) move(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, verb string, e deployment.Event) (Deployment, error) {
	err := ex.Transact(ctx, verb+" deployment "+string(id), func(tx *kernel.Tx) error {
		r, err := orgsDeployment(tx, org, id)
		if err != nil {
			return err
		}
		inst, err := ex.Store.Install(ctx, org, r.V.InstallName)
		if err != nil {
			return err
		}
		if _, ok := e.(deployment.Cancel); ok && (r.V.State == deployment.Canceled || r.V.State == deployment.Canceling) {
			return nil // asked twice, or our own commit
		}
		_, err = advance(tx, &inst, r, e)
		return err
	})
	if err != nil {
		return Deployment{}, err
	}
	return ex.Deployment(ctx, org, id)
}

// DeployedSince returns the newest of the deployments that came after the given
// one of an install and may have changed something; "" if there is none.
func DeployedSince(tx *kernel.Tx, install fairlead.InstallID, id fairlead.DeploymentID) (fairlead.DeploymentID, error) {
	newest := func(q fairlead.PageQuery) (store.Page[store.Deployment], error) {
		q.Limit = 50
		return tx.Store.InstallDeployments(tx.Ctx, install, q)
	}
	for d, err := range store.Pages(newest) {
		if err != nil || d.V.ID == id {
			return "", err
		}
		if d.V.MayChange() {
			return d.V.ID, nil
		}
	}
	return "", nil
}

// RetryDeployment makes a deployment of the same version that goes on where
// the given one ended: what it completed is not done again. It is refused when
// a later deployment may have changed the install, because what was completed
// may not be true any more.
func (ex *Execution) RetryDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, key string) (Deployment, error) {
	newID := fairlead.DeploymentID(ex.IDs(fairlead.PrefixDeployment))
	once := kernel.Once{Org: org, Route: "retry-deployment " + string(id), Key: key}
	var out Deployment
	err := ex.Transact(ctx, "retry deployment "+string(id), func(tx *kernel.Tx) error {
		if made, err := tx.Seen(once, string(newID)); err != nil || made != "" {
			return existing(tx, &out, made, err)
		}
		old, err := orgsDeployment(tx, org, id)
		if err != nil {
			return err
		}
		if !old.V.State.Final() || old.V.State == deployment.Succeeded {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeploymentState,
				Message: fmt.Sprintf("deployment %s is %s: only a failed or canceled one can be retried", id, old.V.State)}
		}
		inst, err := ex.Store.Install(ctx, org, old.V.InstallName)
		if err != nil {
			return err
		}
		if inst.V.ID != old.V.Install {
			// Forgotten, and made anew under its name: nothing that the
			// deployment completed is part of this one.
			return fairlead.NotFound(fairlead.CodeInstallNotFound, string(old.V.Install))
		}
		since, err := DeployedSince(tx, inst.V.ID, id)
		if err != nil {
			return err
		}
		if since != "" && since != newID {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeployedSince,
				Message: fmt.Sprintf("deployment %s came after deployment %s of install %s", since, id, inst.V.Name),
				Hint:    "Deploy it again with {install.deploy}.",
				Args:    fairlead.Args{Install: inst.V.Name}}
		}
		d, err := prepare(tx, &inst, deployment.Deployment{ID: newID, Kind: old.V.Kind, PlanOnly: old.V.PlanOnly, AutoApprove: old.V.AutoApprove, Ask: old.V.Ask,
			Version: old.V.Version, RetryOf: id})
		if err != nil {
			return err
		}
		for i := range d.Nodes {
			n := &d.Nodes[i]
			was := old.V.Node(n.Component)
			if was != nil && was.Destroy == n.Destroy && was.State.Done() && !d.PlanOnly {
				n.State, n.Message = deployment.Unchanged, "done in deployment "+string(id)
			}
		}
		r, err := admit(tx, inst, d)
		out = deploymentOf(r)
		return err
	})
	return out, err
}

// Ahead is what a queued deployment waits for.
func Ahead(tx *kernel.Tx, inst store.Install, id fairlead.DeploymentID) (*diagnosis.Ahead, error) {
	if inst.Active == "" || inst.Active == id {
		return nil, nil // it has just begun
	}
	r, err := tx.Store.Deployment(tx.Ctx, inst.Active)
	if err != nil {
		return nil, err
	}
	return &diagnosis.Ahead{ID: r.V.ID, State: r.V.State, Since: r.V.Changed, Between: max(0, slices.Index(inst.Queue, id))}, nil
}
