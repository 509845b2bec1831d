package execution

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// MaxQueue is the largest number of queued deployments of one install.
const MaxQueue = 20

// NewDeployment describes a requested deployment.
type NewDeployment struct {
	Kind        deployment.Kind    `json:"kind"`
	PlanOnly    bool               `json:"plan_only"`
	AutoApprove bool               `json:"auto_approve"`           // the same as Ask never
	Ask         deployment.Ask     `json:"ask,omitempty"`          // "": derived from AutoApprove
	Version     fairlead.VersionID `json:"version"`                // an identifier or a name; "": the newest version
	PlansExpire time.Duration      `json:"plans_expire,omitempty"` // the age at which a plan expires; 0: the default
	Refresh     bool               `json:"refresh,omitempty"`      // plan also components whose inputs have not changed
	Targets     []string           `json:"targets,omitempty"`      // only these components and those that they need; empty: all
	NoQueue     bool               `json:"no_queue,omitempty"`     // refuse the request if another deployment of the install has not ended
}

// CreateDeployment starts a deployment of the install. If another deployment of the install has not ended,
// CreateDeployment queues the new deployment behind it.
func (ex *Execution) CreateDeployment(ctx context.Context, org fairlead.OrgID, install string, in NewDeployment, key string) (Deployment, error) {
	if in.Kind != deployment.Deploy && in.Kind != deployment.Teardown {
		return Deployment{}, fairlead.Invalid(fairlead.CodeInvalidKind, "%q is not a kind of deployment: use deploy or teardown", in.Kind)
	}
	if in.Ask != "" {
		in.AutoApprove = in.Ask == deployment.AskNever
	}
	id := fairlead.DeploymentID(ex.IDs(fairlead.PrefixDeployment))
	once := kernel.Once{Org: org, Route: "create-deployment " + install, Key: key, Body: in}
	return ex.request(ctx, "deploy install "+install, once, id, install, in.NoQueue, func(tx *kernel.Tx, inst *store.Stored[store.Install]) (store.Deployment, error) {
		return prepare(tx, inst, deployment.Deployment{ID: id, Kind: in.Kind, PlanOnly: in.PlanOnly, AutoApprove: in.AutoApprove, Ask: in.Ask, PlansExpire: in.PlansExpire, Refresh: in.Refresh, Targets: in.Targets, Version: in.Version})
	})
}

// request admits the deployment that create returns, or returns the deployment of an earlier request with the same key.
// If noQueue is true, it refuses a deployment that would have to wait for another one.
func (ex *Execution) request(ctx context.Context, op string, once kernel.Once, id fairlead.DeploymentID, install string, noQueue bool,
	create func(*kernel.Tx, *store.Stored[store.Install]) (store.Deployment, error),
) (Deployment, error) {
	var out Deployment
	err := ex.Transact(ctx, op, func(tx *kernel.Tx) error {
		if made, err := tx.Seen(once, string(id)); err != nil || made != "" {
			return existing(tx, &out, made, err)
		}
		inst, err := ex.Store.Install(ctx, once.Org, install)
		if err != nil {
			return err
		}
		d, err := create(tx, &inst)
		if err != nil {
			return err
		}
		if active := inst.V.Active; noQueue && active != "" && active != id {
			return notQueued(tx, inst.V)
		}
		r, err := admit(tx, inst, d)
		out = deploymentOf(r)
		return err
	})
	return out, err
}

// notQueued returns the error for a deployment that would have to wait for the install's active deployment.
func notQueued(tx *kernel.Tx, inst store.Install) error {
	ahead, err := Ahead(tx, inst, "")
	if err != nil {
		return err
	}
	if ahead.State.Final() {
		return kernel.ErrTorn // the active deployment ended after the install was read
	}
	return diagnosis.NotQueued(inst.Name, *ahead)
}

// prepare adds the fields of the install, the graph and the runner to a requested deployment. If the request names no
// version, prepare uses the app's newest version.
func prepare(tx *kernel.Tx, inst *store.Stored[store.Install], asked deployment.Deployment) (store.Deployment, error) {
	d := store.Deployment{Deployment: asked, InstallName: inst.V.Name}
	d.Org, d.Install, d.App = inst.V.Org, inst.V.ID, inst.V.App
	d.Parallelism, d.State, d.Created, d.By = tx.Parallelism, deployment.Queued, tx.Now, kernel.Actor(tx.Ctx)
	if err := fillNodes(tx, inst.V, &d.Deployment, asked.Version); err != nil {
		return d, err
	}
	if err := assignRunner(tx, inst, &d); err != nil || d.Kind == deployment.Teardown {
		return d, err
	}
	v, err := catalog.ReadVersion(tx, d.Version)
	if err != nil {
		return d, err
	}
	if err := catalog.RecordAgents(tx, &inst.V, v); err != nil {
		return d, err
	}
	if err := catalog.KeepFingerprintKey(tx, &inst.V); err != nil {
		return d, err
	}
	if err := catalog.GenerateInputs(tx, &inst.V, v); err != nil {
		return d, err
	}
	return d, catalog.CheckRunnerKind(tx, inst.V, v, false)
}

// assignRunner gives the deployment the runner of its install. The first deployment with at least one component binds
// the runner to the install.
func assignRunner(tx *kernel.Tx, inst *store.Stored[store.Install], d *store.Deployment) error {
	if err := catalog.NotMoving(inst.V); err != nil {
		return err
	}
	if len(d.Nodes) > 0 || inst.V.Active != "" {
		if err := runners.BindRunner(tx, inst); err != nil {
			return err
		}
	}
	if err := needRegistries(tx, inst.V, d.Deployment); err != nil {
		return err
	}
	d.RunnerName = runners.RunnerOf(inst.V)
	d.Shared = inst.V.Bound != nil && inst.V.Bound.Org == ""
	return nil
}

// needRegistries refuses the deployment if the runner of an image has no registry.
func needRegistries(tx *kernel.Tx, inst store.Install, d deployment.Deployment) error {
	for _, n := range d.Nodes {
		if t, _ := component.Of(n.Type); !t.NeedsRegistry {
			continue
		}
		r, ok, err := runnerOf(tx, inst, d, n)
		if err == nil && ok {
			err = catalog.NeedRegistry(r.V, inst, n.Component, n.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// existing loads into out the deployment that an earlier, equal request created.
func existing(tx *kernel.Tx, out *Deployment, made string, err error) error {
	if err != nil {
		return err
	}
	r, err := tx.Store.Deployment(tx.Ctx, fairlead.DeploymentID(made))
	*out = deploymentOf(r)
	return err
}

// admit begins the deployment if the install has no active one, and queues it otherwise. A deployment that the
// customer's stack does not allow yet becomes active and stays queued.
func admit(tx *kernel.Tx, inst store.Stored[store.Install], d store.Deployment) (store.Stored[store.Deployment], error) {
	if inst.V.Active == d.ID || slices.Contains(inst.V.Queue, d.ID) {
		return tx.Store.Deployment(tx.Ctx, d.ID) // our own earlier commit, whose outcome was unclear
	}
	r := store.Stored[store.Deployment]{V: d}
	if inst.V.Active != "" {
		if len(inst.V.Queue) >= MaxQueue {
			return r, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeQueueFull,
				Message: fmt.Sprintf("install %[2]s already has %[1]d queued deployments", MaxQueue, inst.V.Name),
				Hint:    "Cancel some of them."}
		}
		inst.V.Queue = append(slices.Clone(inst.V.Queue), d.ID)
		tx.PutInstall(inst)
		r.V.Changed = tx.Now
		tx.PutDeployment(r)
		return r, nil
	}
	inst.V.Active = d.ID
	tx.PutInstall(inst)
	if lacks, err := stackLacks(tx, inst.V, d.Deployment); err != nil {
		return r, err
	} else if lacks.any() {
		r.V.Changed = tx.Now
		tx.PutDeployment(r)
		return r, nil
	}
	return advance(tx, &inst, r, deployment.Begin{})
}

// Deployment is a deployment with its revision.
type Deployment struct {
	deployment.Deployment
	InstallName string // the install may be deleted before its deployments
	RunnerName  string
	RunnerOrg   fairlead.OrgID // "": a shared runner
	Revision    int64          // increases with each change
	Names       []string       // of its version; only Deployment, WaitDeployment and Deployments fill it
}

func deploymentOf(r store.Stored[store.Deployment]) Deployment {
	return Deployment{Deployment: r.V.Deployment, InstallName: r.V.InstallName, RunnerName: r.V.RunnerName, RunnerOrg: r.V.RunnerOrg(), Revision: r.Version}
}

// Deployment returns a deployment.
func (ex *Execution) Deployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) (Deployment, error) {
	tx := ex.Reading(ctx)
	r, err := orgsDeployment(tx, org, id)
	if err != nil {
		return deploymentOf(r), err
	}
	return namedDeployment(tx, r)
}

// namedDeployment returns the deployment with the names of its version.
func namedDeployment(tx *kernel.Tx, r store.Stored[store.Deployment]) (Deployment, error) {
	d := deploymentOf(r)
	var err error
	d.Names, err = catalog.VersionNames(tx, d.Version)
	return d, err
}

// orgsDeployment returns a deployment of the org. A deployment of another org is not found.
func orgsDeployment(tx *kernel.Tx, org fairlead.OrgID, id fairlead.DeploymentID) (store.Stored[store.Deployment], error) {
	r, err := tx.Store.Deployment(tx.Ctx, id)
	if err == nil && r.V.Org != org {
		return store.Stored[store.Deployment]{}, fairlead.NotFound(fairlead.CodeDeploymentNotFound, string(id))
	}
	return r, err
}

// WaitDeployment waits until the deployment's revision is greater than the parameter after, or until the deployment has
// ended, and returns it. After the duration wait it returns the deployment as it is.
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
	Install string // name, also of an install that was forgotten
	State   deployment.State
	Action  string // only runs of this action
}

func (f DeploymentFilter) check() error {
	if f.Action == "" {
		return nil
	}
	return fairlead.CheckName("action", f.Action)
}

// all reports whether the filter selects all deployments of its install.
func (f DeploymentFilter) all() bool { return f.State == "" && f.Action == "" }

// selects reports whether the filter selects a deployment of its install.
func (f DeploymentFilter) selects(d store.Deployment) bool {
	return (f.State == "" || d.State == f.State) && (f.Action == "" || d.Action == f.Action)
}

// Deployments lists the deployments that the filter selects, newest first. A page may have fewer deployments than the
// limit, even none, and not be the last page.
func (ex *Execution) Deployments(ctx context.Context, org fairlead.OrgID, f DeploymentFilter, q fairlead.PageQuery) (found []Deployment, next string, _ error) {
	read := func(q fairlead.PageQuery) (store.Page[store.Deployment], error) {
		return ex.Store.Deployments(ctx, org, q)
	}
	if err := f.check(); err != nil {
		return nil, "", err
	}
	byName := false
	if f.Install != "" {
		inst, err := ex.Store.Install(ctx, org, f.Install)
		switch byName = fairlead.KindOf(err) == fairlead.KindNotFound; {
		case byName: // the install may have been forgotten; its deployments still have its name
		case err != nil:
			return nil, "", err
		default:
			read = func(q fairlead.PageQuery) (store.Page[store.Deployment], error) {
				return ex.Store.InstallDeployments(ctx, inst.V.ID, q)
			}
		}
	}
	pages := maxFiltered
	if f.all() && !byName {
		pages = 1
	}
	first, limit := q.After == "", cmp.Or(q.Limit, engine.MaxPage)
	tx := ex.Reading(ctx)
	for range pages {
		q.Limit = limit - len(found)
		p, err := read(q)
		if err != nil {
			return nil, "", err
		}
		for _, d := range p.Items {
			if f.selects(d.V) && (!byName || d.V.InstallName == f.Install) {
				named, err := namedDeployment(tx, d)
				if err != nil {
					return nil, "", err
				}
				found = append(found, named)
			}
		}
		if q.After, next = p.Next, p.Next; next == "" || len(found) == limit {
			break
		}
	}
	if byName && first && next == "" && len(found) == 0 && f.all() {
		return nil, "", fairlead.NotFound(fairlead.CodeInstallNotFound, f.Install)
	}
	return found, next, nil
}

// maxFiltered is how many stored pages are read for one page of a filtered listing.
const maxFiltered = 20

// ApproveDeployment approves waiting plans: those of the named components, or all. plans maps components to the
// digests of the plans that the person read. The approval is refused if one of these plans has changed since.
func (ex *Execution) ApproveDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, components []string, plans map[string]string) (Deployment, error) {
	return ex.ApproveSigned(ctx, org, id, components, plans, nil)
}

// ApproveSigned is ApproveDeployment with approvals that the customer signed, by component. Only the runner verifies them.
func (ex *Execution) ApproveSigned(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, components []string, plans map[string]string, signatures map[string][]byte) (Deployment, error) {
	return ex.move(ctx, org, id, "approve", deployment.Approve{Components: components, Plans: plans, Signatures: signatures, By: kernel.Actor(ctx)})
}

// CancelDeployment cancels the deployment's queued and running jobs, and starts no more jobs.
func (ex *Execution) CancelDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) (Deployment, error) {
	return ex.EndDeployment(ctx, org, id, deployment.Cancel{By: kernel.Actor(ctx)})
}

// EndDeployment is CancelDeployment for another actor or reason than a person's request.
func (ex *Execution) EndDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID, how deployment.Cancel) (Deployment, error) {
	return ex.move(ctx, org, id, "cancel", how)
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
			return nil // a repeated request, or our own earlier commit
		}
		_, err = advance(tx, &inst, r, e)
		return err
	})
	if err != nil {
		return Deployment{}, err
	}
	return ex.Deployment(ctx, org, id)
}

// DeployedSince returns the newest deployment of the install that was created after the given one and may have
// changed something; "" if there is none.
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

// RetryDeployment creates a deployment of the same version that continues where the given deployment ended. It does not
// repeat completed components. The retry is refused if a later deployment may have changed the install, because
// completed components may have changed since.
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
				Message: fmt.Sprintf("deployment %s is %s: only a failed or canceled deployment can be retried", id, old.V.State)}
		}
		inst, err := ex.Store.Install(ctx, org, old.V.InstallName)
		if err != nil {
			return err
		}
		if inst.V.ID != old.V.Install {
			// The install was forgotten, and another one was created under its name. The results of the deployment
			// are not part of the new install.
			return fairlead.NotFound(fairlead.CodeInstallNotFound, string(old.V.Install))
		}
		since, err := DeployedSince(tx, inst.V.ID, id)
		if err != nil {
			return err
		}
		if since != "" && since != newID && old.V.Kind != deployment.Action {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeDeployedSince,
				Message: fmt.Sprintf("deployment %s was created after deployment %s of install %s", since, id, inst.V.Name),
				Hint:    "Deploy it again with {install.deploy}.",
				Args:    fairlead.Args{Install: inst.V.Name}}
		}
		d, err := prepare(tx, &inst, deployment.Deployment{ID: newID, Kind: old.V.Kind, Action: old.V.Action, Trigger: old.V.Trigger, PlanOnly: old.V.PlanOnly, AutoApprove: old.V.AutoApprove, Ask: old.V.Ask, PlansExpire: old.V.PlansExpire, Refresh: old.V.Refresh, Targets: old.V.Targets,
			Version: old.V.Version, RetryOf: id})
		if err != nil {
			return err
		}
		for i := range d.Nodes {
			n := &d.Nodes[i]
			was := old.V.Node(n.Component)
			if was != nil && was.Destroy == n.Destroy && was.State.Done() && !d.PlanOnly && !n.Restored {
				n.State, n.Message = deployment.Unchanged, "done in deployment "+string(id)
			}
			continueHook(n, old.V)
		}
		if err := keepParams(tx, inst.V, old.V, &d); err != nil {
			return err
		}
		r, err := admit(tx, inst, d)
		out = deploymentOf(r)
		return err
	})
	return out, err
}

// Ahead returns the deployment that a queued deployment waits for, or nil if it waits for no deployment.
func Ahead(tx *kernel.Tx, inst store.Install, id fairlead.DeploymentID) (*diagnosis.Ahead, error) {
	if inst.Active == "" || inst.Active == id {
		return nil, nil // it began after it was read
	}
	r, err := tx.Store.Deployment(tx.Ctx, inst.Active)
	if err != nil {
		return nil, err
	}
	return &diagnosis.Ahead{ID: r.V.ID, State: r.V.State, Since: r.V.Changed, Between: max(0, slices.Index(inst.Queue, id))}, nil
}
