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
	for range sweepPages {
		due, err := ex.Store.DueDeployments(ctx, ex.Now(), sweepPage)
		if err != nil {
			return err
		}
		moved := 0
		for _, r := range due {
			did, err := ex.sweepPlans(ctx, r.V)
			if err != nil {
				s.Failed++
				ex.Logger.Warn("the sweep cannot end expired plans; the next sweep tries again", "deployment", r.V.ID, "error", err)
			}
			if did {
				s.Plans++
				moved++
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(due) < sweepPage || moved == 0 {
			return nil
		}
	}
	return nil
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
