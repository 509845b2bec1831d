package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
)

func varsContext(id fairlead.InstallID, component string) string {
	return "install/" + string(id) + "/vars/" + component
}

// varRecord is the stored form of a resolved variable, sealed in the component's
// record.
type varRecord struct {
	Value     any  `json:"value"`
	Sensitive bool `json:"sensitive,omitempty"`
}

func VarsRecord(vars map[string]appspec.Resolved) map[string]varRecord {
	out := make(map[string]varRecord, len(vars))
	for name, v := range vars {
		out[name] = varRecord(v)
	}
	return out
}

// VarsFor resolves the variables for a command on a component. A destroy gets the
// variables of the last apply, because their references may no longer resolve.
func VarsFor(tx *kernel.Tx, inst store.Install, d deployment.Deployment, cmd deployment.Command) (map[string]appspec.Resolved, error) {
	if d.Node(cmd.Component).Destroy {
		return LastVars(tx, inst.ID, cmd.Component)
	}
	v, err := ReadVersion(tx, d.Version)
	if err != nil {
		return nil, err
	}
	return ResolveVars(tx, inst, v, cmd.Component)
}

// LastVars returns the variables of the component's last apply.
func LastVars(tx *kernel.Tx, id fairlead.InstallID, component string) (map[string]appspec.Resolved, error) {
	k, err := tx.Component(id, component)
	if err != nil {
		return nil, err
	}
	raw, err := varsOf(tx, k.V)
	if err == nil && raw == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open vars of component %s: %w", component, err)
	}
	var rec map[string]struct {
		Value     json.RawMessage `json:"value"`
		Sensitive bool            `json:"sensitive"`
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return nil, fmt.Errorf("decode vars of component %s: %w", component, err)
	}
	out := make(map[string]appspec.Resolved, len(rec))
	for name, v := range rec {
		value, err := kernel.DecodeJSON(v.Value)
		if err != nil {
			return nil, fmt.Errorf("decode variable %s of component %s: %w", name, component, err)
		}
		out[name] = appspec.Resolved{Value: value, Sensitive: v.Sensitive}
	}
	return out, nil
}

// ResolveVars computes the variables of a component from the install's inputs and the
// outputs of deployed components. If a value does not exist yet, the error is an
// *appspec.UnresolvedError.
func ResolveVars(tx *kernel.Tx, inst store.Install, v Version, component string) (map[string]appspec.Resolved, error) {
	comp, ok := v.Spec.Component(component)
	if !ok {
		return nil, fmt.Errorf("version %s has no component %s", v.ID, component)
	}
	out, _, err := resolveIn(tx, inst, v, comp)
	return out, err
}

// varScope holds the values that a component's variables can refer to.
type varScope struct {
	appspec.Scope
	failed error // the error of reading an output
}

// scopeOf reads the values that the component's variables can refer to. Inputs that the
// version refuses are an error of KindInvalid.
func scopeOf(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component) (*varScope, error) {
	inputs, err := kernel.Cached(tx, "inputs "+string(inst.ID)+" "+string(v.ID), func() (map[string]appspec.Resolved, error) {
		given, err := OpenInputs(tx, inst.ID, inst.Inputs)
		if err != nil {
			return nil, err
		}
		return v.Spec.CheckInputs(given)
	})
	if err != nil {
		return nil, err
	}
	facts, err := installFacts(tx, inst, v, comp)
	if err != nil {
		return nil, err
	}
	s := &varScope{}
	s.Scope = appspec.Scope{
		Inputs:  inputs,
		Install: facts,
		Outputs: func(component, output string) (appspec.Resolved, bool) {
			r, ok, err := outputOf(tx, inst.ID, component, output)
			s.failed = errors.Join(s.failed, err)
			return r, ok && err == nil
		},
	}
	return s, nil
}

// value resolves v. If a value does not exist yet, the error is an
// *appspec.UnresolvedError.
func (s *varScope) value(v appspec.Value) (appspec.Resolved, error) {
	val, sensitive, err := v.Resolve(s.Scope)
	if s.failed != nil {
		return appspec.Resolved{}, s.failed
	}
	return appspec.Resolved{Value: val, Sensitive: sensitive}, err
}

// installFacts returns the values of the install by the names of appspec.InstallNames.
// It reads the role path and boundary of the customer's stack only for a component that
// refers to them.
func installFacts(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component) (map[string]string, error) {
	// Outside of such a stack, a role can have any path and needs no boundary.
	out := map[string]string{"name": inst.Name, "id": string(inst.ID), "app": inst.App, "version": string(v.ID), "boundary": "", "role_path": "/"}
	agents := store.AgentFacts(tx.AgentFacts)
	if inst.Agents != nil {
		agents = *inst.Agents
	}
	out["control_plane"], out["trusted_keys"] = agents.URL, strings.Join(agents.TrustedKeys, ",")
	if b := inst.SandboxRunner; b != nil {
		out["runner_id"] = string(b.Runner)
	}
	asks := func(value appspec.Value) bool {
		return slices.ContainsFunc(value.References(), func(r appspec.Reference) bool {
			return r.Namespace == appspec.Install && (r.Name == "boundary" || r.Name == "role_path")
		})
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(comp.Values())), asks) {
		return out, nil
	}
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, inst.ID))
	if err != nil || ref.Version == 0 {
		return out, err
	}
	s, err := tx.Store.Stack(tx.Ctx, ref.V.Runner)
	if err != nil {
		return nil, err
	}
	if s.V.Report != nil && s.V.Report.Boundary != "" {
		out["boundary"], out["role_path"] = s.V.Report.Boundary, awsiam.AppRolePath(inst.ID)
	}
	return out, nil
}

// outputOf returns an output of a component, if the component and the output exist.
func outputOf(tx *kernel.Tx, id fairlead.InstallID, component, name string) (appspec.Resolved, bool, error) {
	k, err := tx.Component(id, component)
	if err != nil || k.V.State != store.Present {
		return appspec.Resolved{}, false, err
	}
	all, err := outputsOf(tx, k.V)
	if err != nil {
		return appspec.Resolved{}, false, err
	}
	o, ok := all[name]
	if !ok {
		return appspec.Resolved{}, false, nil
	}
	raw, err := openOutput(tx, k.V, name, o)
	if err != nil {
		return appspec.Resolved{}, false, err
	}
	v, err := kernel.DecodeJSON(raw)
	if err != nil {
		return appspec.Resolved{}, false, fmt.Errorf("decode output %s of component %s: %w", name, component, err)
	}
	return appspec.Resolved{Value: v, Sensitive: o.Sensitive}, true, nil
}
