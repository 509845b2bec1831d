package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// DeclaredImage is an image, by digest, in which the jobs of a component or an action run.
type DeclaredImage struct {
	Component string
	Image     string
}

// DeclaredImages returns the images in which scripts of the newest version of an install's app run, sorted by component. A
// component that is switched off has none, and an image that another component copies is not known before that is deployed.
func (cat *Catalog) DeclaredImages(ctx context.Context, org fairlead.OrgID, install string) ([]DeclaredImage, error) {
	inst, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return nil, err
	}
	app, err := ReadApp(cat.Reading(ctx), org, inst.V.App)
	if err != nil {
		return nil, err
	}
	var out []DeclaredImage
	images, off := app.Newest.Spec.OwnImages(), switchedOff(app.Newest.Spec, inst.V)
	for _, name := range slices.Sorted(maps.Keys(images)) {
		if !off[name] {
			out = append(out, DeclaredImage{Component: name, Image: images[name]})
		}
	}
	return out, nil
}
