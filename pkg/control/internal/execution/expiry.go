package execution

import (
	"context"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/store"
)

// SweepPlans ends the components whose plans expired, one commit for each deployment. Without it a deployment whose plan
// no person reads would hold its install for ever. It adds its results to s.
func (ex *Execution) SweepPlans(ctx context.Context, s *Swept) error {
	return sweepDue(ctx, ex, s, ex.Store.DueDeployments, func(d store.Deployment) (bool, error) {
		moved, err := ex.sweepPlans(ctx, d)
		if moved {
			s.Plans++
		}
		return moved, err
	}, func(d store.Deployment) []any { return []any{"deployment", d.ID} })
}

// sweepPlans ends the expired plans of one deployment, and reports whether there were any. Of several sweeps at the same
// time only one does: the others find a deployment that is not due.
func (ex *Execution) sweepPlans(ctx context.Context, found store.Deployment) (moved bool, err error) {
	err = ex.Transact(ctx, "end the expired plans of deployment "+string(found.ID), func(tx *kernel.Tx) error {
		moved = false
		r, err := ex.Store.Deployment(ctx, found.ID)
		if err != nil {
			return err
		}
		if due := r.V.Due(); due.IsZero() || due.After(tx.Now) {
			return nil // the index is older than the deployment
		}
		inst, err := ex.Store.Install(ctx, r.V.Org, r.V.InstallName)
		if err != nil {
			return err
		}
		moved = true
		_, err = advance(tx, &inst, r, deployment.Expire{})
		return err
	})
	return moved && err == nil, err
}
