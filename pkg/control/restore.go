package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Restored reports what AfterRestore changed.
type Restored struct {
	Generation  int64 // of the table, now
	Installs    int   // all installs of the org
	Components  int   // components whose next plan must show what exists
	Deployments int   // deployments that were not finished in the backup, and are canceled now
}

// restorer is the actor of the cancellations of AfterRestore.
var restorer = fairlead.Actor{Name: "ops restore"}

// AfterRestore makes a table that was restored from a backup safe to use. Run it before
// the control plane serves the table. The table does not know the jobs after the backup,
// so AfterRestore does three things:
//
//   - It raises the generation, so that every session, launch token and lease from before
//     the restore is refused. The caller makes its Minter after AfterRestore.
//   - It cancels unfinished deployments: a plan of the backup can be outdated or applied.
//   - It marks each component that may exist as unknown, so that its next plan decides.
//     Auto-approval does not cover changes of that plan.
//
// It is safe to repeat after an error.
func (c *Control) AfterRestore(ctx context.Context, org fairlead.OrgID) (Restored, error) {
	var out Restored
	err := c.Transact(ctx, "raise the generation of the table", func(tx *kernel.Tx) error {
		g, err := c.Store.Generation(ctx)
		if err != nil {
			return err
		}
		// The time makes the number unique: two restores of one backup must not share a number.
		g.V = store.Generation{Number: max(g.V.Number+1, tx.Now.UnixMilli()), Restored: tx.Now}
		out.Generation = g.V.Number
		tx.PutGeneration(g)
		return nil
	})
	if err != nil {
		return out, err
	}
	installs := func(q fairlead.PageQuery) (store.Page[store.Install], error) { return c.Store.Installs(ctx, org, q) }
	for inst, err := range store.Pages(installs) {
		if err != nil {
			return out, fmt.Errorf("list the installs: %w", err)
		}
		out.Installs++
		for _, id := range slices.DeleteFunc(append([]fairlead.DeploymentID{inst.V.Active}, inst.V.Queue...), func(id fairlead.DeploymentID) bool { return id == "" }) {
			if _, err := c.EndDeployment(ctx, org, id, deployment.Cancel{By: restorer}); err != nil {
				return out, fmt.Errorf("cancel deployment %s of install %s: %w", id, inst.V.Name, err)
			}
			out.Deployments++
		}
		n, err := c.doubt(ctx, inst.V)
		out.Components += n
		if err != nil {
			return out, fmt.Errorf("mark the components of install %s: %w", inst.V.Name, err)
		}
	}
	return out, nil
}

// doubt marks each component of the install that may exist as unknown. It returns their
// number. Each component has its own commit, because an install has more components than
// one commit may change.
func (c *Control) doubt(ctx context.Context, inst store.Install) (int, error) {
	all, err := c.Store.Components(ctx, inst.ID)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, k := range all {
		marked := false
		err := c.Transact(ctx, "mark component "+k.V.Name, func(tx *kernel.Tx) error {
			now, err := tx.Component(inst.ID, k.V.Name)
			if marked = err == nil && now.V.State != store.Absent; !marked {
				return err
			}
			now.V.State, now.V.Restored = store.Unknown, tx.Now
			tx.PutComponent(now)
			return nil
		})
		if err != nil {
			return n, err
		}
		if marked {
			n++
		}
	}
	return n, nil
}
