package control

import (
	"context"
	"errors"
	"maps"
	"strconv"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// Refresh holds the options of RefreshRunner.
type Refresh struct {
	DryRun     bool
	Migrate    bool // if the state must move to another storage, move it first
	AcceptLoss bool // leave the state in the old storage, and start with none
	// AcceptKeyLoss binds the install to a runner that lacks a seed of the old one.
	AcceptKeyLoss bool
}

// Refreshed is the result of a refresh, or of a dry run.
type Refreshed struct {
	Runner         string // name; "" if the install is not bound and no runner serves it
	Changed        bool
	StorageChanged bool
	Bound          bool // the install was bound to a runner before
	// Job is the job that copies the states. The install gets the runner when the job
	// succeeds. Job is empty if no state must be copied, and for a dry run.
	Job fairlead.JobID
}

// RefreshRunner decides again which runner serves the install, and binds the install to
// that runner. A dry run returns the same result or refusal, and changes nothing. The
// details of a refusal contain the result that was refused.
func (c *Control) RefreshRunner(ctx context.Context, org fairlead.OrgID, name string, o Refresh) (Refreshed, error) {
	var out Refreshed
	var wrote *store.Binding
	id := fairlead.JobID(c.IDs(fairlead.PrefixJob))
	err := c.Transact(ctx, "refresh runner of install "+name, func(tx *kernel.Tx) error {
		inst, err := c.Store.Install(ctx, org, name)
		if err != nil {
			return err
		}
		if b := inst.V.Bound; wrote != nil && b != nil && b.At.Equal(wrote.At) && b.Binding == wrote.Binding {
			return nil // our own earlier commit, whose outcome was unclear
		}
		if m := inst.V.Moving; m != nil && m.Job == id {
			return nil // our own earlier commit, which queued the job
		}
		wrote = nil
		in, err := runners.PlacedInstall(tx, inst.V)
		if err != nil {
			return err
		}
		from, err := runners.Candidates(tx, org)
		if err != nil {
			return err
		}
		res, err := placement.Refresh(in, from.Rules, from.Runners, placement.RefreshOptions{DryRun: o.DryRun, Deployment: inst.V.Active, Migrate: o.Migrate, AcceptLoss: o.AcceptLoss})
		out = Refreshed{Runner: from.Records[res.Runner].V.Name, Changed: res.Changed, StorageChanged: res.StorageChanged, Bound: in.Bound != nil}
		if b := inst.V.Bound; b != nil && b.Runner == res.Runner {
			out.Runner = b.Name // even if the runner was deleted
		}
		if err == nil {
			err = catalog.NotMoving(inst.V)
		}
		if err != nil {
			return withAnswer(err, out)
		}
		r := from.Records[res.Runner]
		if err := c.canServe(tx, inst.V, r.V, res, o); err != nil {
			return withAnswer(err, out)
		}
		if res.Write == nil {
			return nil
		}
		if res.Move {
			if _, err := moveStates(tx, &inst, id, r, *res.Write); err != nil {
				return withAnswer(err, out)
			}
			out.Job = id
			tx.PutInstall(inst)
			return nil
		}
		gone, err := runners.GiveRunner(tx, &inst, r, *res.Write)
		if gone && err == nil {
			err = runners.Leaving(r.V)
		}
		if err != nil {
			return withAnswer(err, out)
		}
		wrote = inst.V.Bound
		tx.PutInstall(inst)
		return nil
	})
	return out, err
}

// canServe refuses a runner that lacks a registry for the install's app, or a seed for what the install's present runner has encrypted.
func (c *Control) canServe(tx *kernel.Tx, in store.Install, r store.Runner, res placement.Refreshed, o Refresh) error {
	if res.Changed || res.Write != nil {
		if err := c.needRegistry(tx, in, r); err != nil {
			return err
		}
	}
	if res.Changed && !o.AcceptKeyLoss {
		return runners.NeedSeeds(tx, in, r)
	}
	return nil
}

// withAnswer adds the refused result to the details of a refusal. It returns an error
// that is not of KindConflict unchanged.
func withAnswer(err error, out Refreshed) error {
	e, ok := errors.AsType[*fairlead.Error](err)
	if !ok || e.Kind != fairlead.KindConflict {
		return err
	}
	copied := *e
	copied.Details = maps.Clone(e.Details)
	if copied.Details == nil {
		copied.Details = map[string]string{}
	}
	copied.Details["runner"] = out.Runner
	copied.Details["changed"] = strconv.FormatBool(out.Changed)
	return &copied
}

// needRegistry refuses a runner without a registry for the newest version of the install's app.
func (c *Control) needRegistry(tx *kernel.Tx, in store.Install, r store.Runner) error {
	app, err := catalog.ReadApp(tx, in.Org, in.App)
	if err != nil {
		return err
	}
	return catalog.NeedRegistryOf(r, in, app.Newest.Spec)
}
