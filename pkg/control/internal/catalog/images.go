package catalog

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// images is the begin of the names of repositories that hold images of installs, in the control plane's own registry.
const images = "images/"

// ImageRepositories returns the begin of the names of the org's repositories for images.
func ImageRepositories(org fairlead.OrgID) string { return images + string(org) + "/" }

// RegistryRef returns the repository of a component in the registry of the runner. It refuses a runner without one.
func RegistryRef(r store.Runner, in store.Install, component, kind string) (*events.RegistryRef, error) {
	if err := NeedRegistry(r, in, component, kind); err != nil {
		return nil, err
	}
	of, err := runners.RegistryOf(r)
	if err != nil {
		return nil, err
	}
	ref := &events.RegistryRef{Kind: string(of.Kind()), URL: of.URL(), Repository: of.Repository(string(in.ID), component)}
	switch of := of.(type) {
	case *runnerspec.RegistryOCI:
		ref.Variable = of.Credentials
	case *runnerspec.RegistryECR:
		ref.Region = of.Region
	case *runnerspec.RegistryControlPlane:
		ref.Repository = ImageRepositories(in.Org) + ref.Repository
	}
	return ref, nil
}

// NeedRegistry refuses a runner without a registry for a component of a type that needs one.
func NeedRegistry(r store.Runner, in store.Install, name, kind string) error {
	if t, _ := component.Of(kind); !t.NeedsRegistry {
		return nil
	}
	of, err := runners.RegistryOf(r)
	if err != nil || of != nil {
		return err
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRegistryMissing,
		Message: fmt.Sprintf("the component %s of install %s is of type %s, and runner %s has no registry for it", name, in.Name, kind, r.Name),
		Hint:    "Set registry in the runner's configuration: {runner.configure}.",
		Args:    fairlead.Args{Install: in.Name, Runner: r.Name},
		Details: map[string]string{"component": name, "runner": r.Name}}
}

// NeedRegistryOf is NeedRegistry for all components of an app whose jobs run on the runner of a new install. Those in its
// sandbox have another runner, which its first deployment makes.
func NeedRegistryOf(r store.Runner, in store.Install, spec *appspec.App) error {
	for _, k := range spec.Components {
		if spec.InSandbox(k.Name) {
			continue
		}
		if err := NeedRegistry(r, in, k.Name, k.Type); err != nil {
			return err
		}
	}
	return nil
}

// needsRegistry reports whether a component of an app is of a type that needs a registry.
func needsRegistry(spec *appspec.App) bool {
	for _, k := range spec.Components {
		if t, _ := component.Of(k.Type); t.NeedsRegistry {
			return true
		}
	}
	return false
}

// checkRegistry refuses an install whose runner has no registry for the app. If no runner serves the install yet, its first
// deployment is checked.
func checkRegistry(tx *kernel.Tx, in store.Install, spec *appspec.App) error {
	if !needsRegistry(spec) {
		return nil
	}
	r, ok, err := runners.WouldServe(tx, in)
	if err != nil || !ok {
		return err
	}
	return NeedRegistryOf(r, in, spec)
}

// ImageAccess is what a job may do with images in the control plane's own registry.
type ImageAccess struct {
	Own     string // the repository in which the job keeps images; "": the job's component has none
	Changes bool   // whether the job may change it
	Bundle  string // the repository with the images of the install's closed app, which the job may read
}

// ImageAccess returns what the holder's job may do with images.
func (cat *Catalog) ImageAccess(ctx context.Context, h kernel.Holder) (ImageAccess, error) {
	tx := cat.Reading(ctx)
	j, err := tx.Held(ctx, h)
	if err != nil {
		return ImageAccess{}, err
	}
	if t, _ := component.Of(j.V.Plugin); !t.NeedsRegistry {
		return ImageAccess{}, nil
	}
	of := func(name string) string {
		return ImageRepositories(j.V.Org) + (&runnerspec.RegistryControlPlane{}).Repository(string(j.V.Install), name)
	}
	return ImageAccess{Own: of(j.V.Component), Changes: j.V.Operation.Mutates(), Bundle: of(component.Bundle)}, nil
}
