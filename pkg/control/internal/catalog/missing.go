package catalog

import (
	"context"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// MissingInputs returns the inputs that the app's newest version requires and the install does not set, by name. A deployment is
// refused without them.
func (cat *Catalog) MissingInputs(ctx context.Context, org fairlead.OrgID, install string) ([]appspec.Input, error) {
	tx := cat.Reading(ctx)
	in, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return nil, err
	}
	app, err := ReadApp(tx, org, in.V.App)
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
