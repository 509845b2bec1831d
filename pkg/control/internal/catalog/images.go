package catalog

import (
	"context"
	"fmt"
	"strings"

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

// builtImages returns the repository of the images that builds of a component make, in the control plane's own registry of
// images. It has the same form as that of an install: the app is in the place of the install.
func builtImages(org fairlead.OrgID, app fairlead.AppID, component string) string {
	return ImageRepositories(org) + string(app) + "/" + component
}

// builtImagesOf splits a name that builtImages returned.
func builtImagesOf(repository string) (app fairlead.AppID, component string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(repository, images), "/")
	if len(parts) != 3 || !strings.HasPrefix(repository, images) || !strings.HasPrefix(parts[1], fairlead.PrefixApp+"_") {
		return "", "", false
	}
	return fairlead.AppID(parts[1]), parts[2], true
}

// NamedImages returns a function that reports whether the image with the digest may not be deleted from the control plane's
// own registry: a version of an app refers to it, or the repository has images of an install, which only its jobs delete.
// The function reads all versions of an app at its first call for the app. Not safe for concurrent use.
func (cat *Catalog) NamedImages() func(ctx context.Context, repository, digest string) (bool, error) {
	named := map[fairlead.AppID]map[string]bool{}
	return func(ctx context.Context, repository, digest string) (bool, error) {
		app, component, ok := builtImagesOf(repository)
		if !ok {
			return true, nil
		}
		if named[app] == nil {
			all, err := artifactsOfVersions(cat.Reading(ctx), app)
			if err != nil {
				return false, fmt.Errorf("read the versions of app %s: %w", app, err)
			}
			named[app] = all
		}
		return named[app][component+"@"+digest], nil
	}
}

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
		ref.Variable, ref.CA = of.Credentials, of.CA
	case *runnerspec.RegistryECR:
		ref.Region = of.Region
	case *runnerspec.RegistryControlPlane:
		ref.Repository = ImageRepositories(in.Org) + ref.Repository
	}
	return ref, nil
}

// MirrorRef returns the repository of a module of a closed app in the registry of the runner, beside which the mirror has archives of
// providers. It is nil if the app is not closed, or if the runner has no registry with a mirror.
func MirrorRef(r store.Runner, in store.Install, spec *appspec.App, name, kind string) (*events.RegistryRef, error) {
	if t, _ := component.Of(kind); !t.Module || !spec.Closed() {
		return nil, nil
	}
	of, err := runners.RegistryOf(r)
	if err != nil || of == nil || of.Kind() == runnerspec.ControlPlaneRegistry {
		return nil, err
	}
	return RegistryRef(r, in, name, kind)
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

// ImageRepositories returns the repositories of images that the tool of the holder's job may use, in the control plane's own
// registry: that of its component on the install, that of the images of the install's closed app, which it may read, and that of
// the images which builds of its component make. There is none if the job's component has no images.
func (cat *Catalog) ImageRepositories(ctx context.Context, h kernel.Holder) (JobRepositories, error) {
	tx := cat.Reading(ctx)
	j, err := tx.Held(ctx, h)
	if err != nil {
		return JobRepositories{}, err
	}
	t, _ := component.Of(j.V.Plugin)
	if !t.NeedsRegistry {
		return JobRepositories{}, nil
	}
	of := func(name string) string {
		return ImageRepositories(j.V.Org) + (&runnerspec.RegistryControlPlane{}).Repository(string(j.V.Install), name)
	}
	own := of(j.V.Component)
	out := JobRepositories{Read: []string{own, of(component.Bundle)}}
	if j.V.Operation.Mutates() {
		out.Write = own
	}
	if !t.Dockerfile || tx.Artifacts != nil {
		return out, nil
	}
	v, err := ReadVersion(tx, j.V.Version)
	if err != nil {
		return JobRepositories{}, err
	}
	if c, ok := v.Spec.Component(j.V.Component); !ok || c.Build == nil {
		return out, nil
	}
	built, err := RepositoryOf(tx, v, j.V.Component)
	out.Read = append(out.Read, built)
	return out, err
}
