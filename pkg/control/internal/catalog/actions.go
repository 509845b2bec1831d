package catalog

import (
	"context"

	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// DeclaredActions returns the IAM action patterns that the customer's stack of an install
// must grant: those of the app's newest version, and those of the versions that made the
// install's components, which a removal of such a component needs. It returns none if the
// newest version declares none: the stack then keeps the template's default.
func (cat *Catalog) DeclaredActions(ctx context.Context, org fairlead.OrgID, install string) (awsaction.Grants, error) {
	none := awsaction.Grants{}
	tx := cat.Reading(ctx)
	inst, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return none, err
	}
	app, err := ReadApp(tx, org, inst.V.App)
	if err != nil {
		return none, err
	}
	actions := app.Newest.Spec.AWSActions()
	if len(actions.All) == 0 {
		return none, nil
	}
	return withInstalled(tx, inst.V, actions)
}

// MissingActions returns the IAM action patterns that the version declares and the
// customer's stack s of the install does not grant. It returns none if the install's runner
// is in no stack, or did not report what the stack grants.
func MissingActions(tx *kernel.Tx, s store.Stack, version fairlead.VersionID) ([]string, error) {
	if s.Report == nil || len(s.Report.AppActions) == 0 {
		return nil, nil
	}
	v, err := ReadVersion(tx, version)
	if err != nil {
		return nil, err
	}
	return v.Spec.AWSActions().Missing(awsaction.Grants{All: s.Report.AppActions, Of: s.Report.OperationActions}), nil
}

// withInstalled adds the actions of the versions that made the install's components.
func withInstalled(tx *kernel.Tx, inst store.Install, actions awsaction.Grants) (awsaction.Grants, error) {
	comps, err := tx.Components(inst.ID)
	if err != nil {
		return actions, err
	}
	seen := map[fairlead.VersionID]bool{"": true}
	for _, k := range comps {
		if k.V.State == store.Absent || seen[k.V.Version] {
			continue
		}
		seen[k.V.Version] = true
		v, err := ReadVersion(tx, k.V.Version)
		if err != nil {
			return actions, err
		}
		actions = actions.Merge(v.Spec.AWSActions())
	}
	return actions, nil
}
