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

// Refresh says how to refresh the runner of an install.
type Refresh struct {
	DryRun     bool
	Migrate    bool // where the state would be in another place: move it there first
	AcceptLoss bool // leave the state where it is, and begin with none
}

// Refreshed is what a refresh came to, or would come to.
type Refreshed struct {
	Runner         string // name; "" if the install is bound to none and none serves it
	Changed        bool
	StorageChanged bool
	Bound          bool // the install had a runner before
	// Job copies the states; the install has the runner once it has succeeded. ""
	// if there is nothing to copy.
	Job fairlead.JobID
}

// RefreshRunner decides anew which runner serves the install, and gives it that
// one. A dry run has the same answer and the same refusal, and changes nothing;
// a refusal says in its details what there would be.
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
			return nil // our own commit, whose answer was unclear
		}
		if m := inst.V.Moving; m != nil && m.Job == id {
			return nil // the same
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
			out.Runner = b.Name // also one that is gone
		}
		if err == nil {
			err = catalog.NotMoving(inst.V)
		}
		if err != nil {
			return withAnswer(err, out)
		}
		if res.Write == nil {
			return nil
		}
		r := from.Records[res.Runner]
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

// withAnswer puts what a refused refresh would have come to into the refusal.
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
