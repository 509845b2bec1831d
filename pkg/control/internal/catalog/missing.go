package catalog

import (
	"context"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// installAndApp reads an install and its app.
func installAndApp(tx *kernel.Tx, org fairlead.OrgID, install string) (store.Stored[store.Install], App, error) {
	in, err := tx.Store.Install(tx.Ctx, org, install)
	if err != nil {
		return in, App{}, err
	}
	app, err := ReadApp(tx, org, in.V.App)
	return in, app, err
}

// MissingInputs returns the inputs that the app's newest version requires and the install does not set, by name. A deployment is
// refused without them.
func (cat *Catalog) MissingInputs(ctx context.Context, org fairlead.OrgID, install string) ([]appspec.Input, error) {
	in, app, err := installAndApp(cat.Reading(ctx), org, install)
	if err != nil {
		return nil, err
	}
	var missing []appspec.Input
	for _, decl := range app.Newest.Spec.Inputs {
		if _, given := in.V.Inputs[decl.Name]; decl.Required && !given {
			missing = append(missing, decl)
		}
	}
	return missing, nil
}
