package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Rendered is what a deployment of an install would give to its components. It holds no secret.
type Rendered struct {
	Install    string
	Version    Version
	Components []RenderedComponent // by name
}

// RenderedComponent is what a deployment would give to the jobs of a component.
type RenderedComponent struct {
	appspec.Component
	Options     map[string]appspec.Shown
	Vars        map[string]appspec.Shown
	Image       *appspec.Shown // nil: the jobs run as the runner's other jobs do
	Off         bool           // an input switches the component off: a deployment does not have it
	Environment []string       // sorted: names of the environment variables of the tool, without those that the runner sets itself
}

// Render returns what a deployment of the install would give to each component of the version that ref selects, or only to
// the named component. With ref "" it is the newest version. Inputs that a deployment would refuse are refused here too.
func (cat *Catalog) Render(ctx context.Context, org fairlead.OrgID, install, ref, component string) (Rendered, error) {
	tx := cat.Reading(ctx)
	r, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return Rendered{}, err
	}
	in := r.V
	out := Rendered{Install: in.Name}
	if out.Version, err = versionToDeploy(tx, in, ref); err != nil {
		return out, err
	}
	comps := out.Version.Spec.Components
	if component != "" {
		comp, ok := out.Version.Spec.Component(component)
		if !ok {
			return out, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeComponentNotFound,
				Message: fmt.Sprintf("version %s of app %s has no component %q", out.Version.ID, in.App, component),
				Hint:    "{app.show} lists the components of the newest version."}
		}
		comps = []appspec.Component{comp}
	}
	off := switchedOff(out.Version.Spec, in)
	for _, comp := range comps {
		scope, err := scopeOf(tx, in, out.Version, comp, toCheck)
		if err != nil {
			return out, err
		}
		shown := RenderedComponent{Component: comp, Off: off[comp.Name]}
		if shown.Environment, err = environmentNames(tx, in, out.Version, comp); err != nil {
			return out, err
		}
		if shown.Options, err = scope.showAll(comp.Options); err != nil {
			return out, err
		}
		for name, option := range shown.Options {
			if option.Sensitive {
				option.Problem = appspec.SensitiveOption(comp.Name, name).Error()
				shown.Options[name] = option
			}
		}
		if shown.Vars, err = scope.showAll(comp.Vars); err != nil {
			return out, err
		}
		if shown.Image, err = shownImage(scope, comp); err != nil {
			return out, err
		}
		out.Components = append(out.Components, shown)
	}
	return out, nil
}

// shownImage returns the image in which the jobs of the component would run; nil if it has none of its own.
func shownImage(scope *varScope, comp appspec.Component) (*appspec.Shown, error) {
	if !comp.HasImage() {
		return nil, nil
	}
	shown, err := scope.showAll(map[string]appspec.Value{appspec.ImageValue: comp.Image})
	if err != nil {
		return nil, err
	}
	image := shown[appspec.ImageValue]
	if image.Problem == "" && len(image.After) == 0 {
		if err := checkImage(comp.Name, image.Value, image.Sensitive); err != nil {
			image.Problem = err.Error()
		}
	}
	return &image, nil
}

// versionToDeploy returns the version that a deployment of the install would use: the one that ref selects, or the newest. It
// has its names.
func versionToDeploy(tx *kernel.Tx, in store.Install, ref string) (v Version, err error) {
	if ref == "" {
		app, err := ReadApp(tx, in.Org, in.App)
		if err != nil {
			return v, err
		}
		v = app.Newest
	} else if v, err = FindVersion(tx, in.Org, in.App, ref); err != nil {
		return v, err
	}
	v.Names, err = VersionNames(tx, v.ID)
	return v, err
}

// environmentNames returns the names of the environment variables of the component's jobs, sorted, each once.
func environmentNames(tx *kernel.Tx, in store.Install, v Version, comp appspec.Component) ([]string, error) {
	sandbox, err := InSandbox(tx, in, v, comp.Name)
	if err != nil {
		return nil, err
	}
	env, err := kernel.Cached(tx, fmt.Sprintf("environment %s %t", in.ID, sandbox), func() (map[string]setVariable, error) {
		env, _, err := environment(tx, in.In(sandbox))
		return env, err
	})
	names := slices.AppendSeq(slices.Collect(maps.Keys(env)), maps.Keys(comp.Env))
	slices.Sort(names)
	return slices.Compact(names), err
}

// showAll returns the values as a person may see them.
func (s *varScope) showAll(values map[string]appspec.Value) (map[string]appspec.Shown, error) {
	out := make(map[string]appspec.Shown, len(values))
	for name, v := range values {
		shown, err := v.Show(s.Scope)
		if s.failed != nil {
			return nil, s.failed
		}
		if err != nil {
			return nil, err
		}
		out[name] = shown
	}
	return out, nil
}
