package catalog

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// DeclaredSecret is a secret that an app needs from the customer of an install. The
// control plane does not know whether the customer gives it.
type DeclaredSecret struct {
	Component string
	Name      string // var.NAME for a variable of the component, otherwise an environment variable
	// New is true if no deployed version of the component needs the secret, so that the
	// customer may not have given it yet.
	New bool
	// Kind is the kind of the runner of the component's jobs, which decides how the customer gives the secret; "": none serves
	// the install.
	Kind runnerspec.Kind
}

// DeclaredSecrets returns the secrets that the newest version of an install's app needs
// from the customer, sorted by component and name. A component that is switched off needs none.
func (cat *Catalog) DeclaredSecrets(ctx context.Context, org fairlead.OrgID, install string) ([]DeclaredSecret, error) {
	tx := cat.Reading(ctx)
	inst, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return nil, err
	}
	app, err := ReadApp(tx, org, inst.V.App)
	if err != nil {
		return nil, err
	}
	var out []DeclaredSecret
	off := switchedOff(app.Newest.Spec, inst.V)
	for _, c := range app.Newest.Spec.Components { // sorted, and so are their secrets
		if off[c.Name] {
			continue
		}
		if len(c.Secrets) == 0 {
			continue
		}
		kind, err := servingKind(tx, inst.V, app.Newest, c.Name)
		if err != nil {
			return nil, err
		}
		for _, name := range c.Secrets {
			out = append(out, DeclaredSecret{Component: c.Name, Name: name, New: true, Kind: kind})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	comps, err := tx.Components(inst.V.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range comps {
		if k.V.State == store.Absent || k.V.Version == "" {
			continue
		}
		v, err := ReadVersion(tx, k.V.Version)
		if err != nil {
			return nil, err
		}
		deployed, _ := v.Spec.Component(k.V.Name)
		for i, s := range out {
			if s.Component == k.V.Name && slices.Contains(deployed.Secrets, s.Name) {
				out[i].New = false
			}
		}
	}
	return out, nil
}

// servingKind returns the kind of the runner that would run the component's jobs now; "" if none serves the install. The runner in
// the sandbox has its kind before it exists.
func servingKind(tx *kernel.Tx, inst store.Install, v Version, component string) (runnerspec.Kind, error) {
	inside, err := InSandbox(tx, inst, v, component)
	if err != nil {
		return "", err
	}
	if inside && inst.SandboxRunner == nil {
		return v.Spec.Sandbox.Runner.Kind(), nil
	}
	r, ok, err := runners.WouldServe(tx, inst.In(inside))
	if err != nil || !ok {
		return "", err
	}
	return runnerspec.Kind(cmp.Or(r.Kind, string(runnerspec.Local))), nil
}
