package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/store"
)

func varsContext(id fairlead.InstallID, component string) string {
	return "install/" + string(id) + "/vars/" + component
}

// varRecord is the stored form of a variable of a component's last apply, sealed in the component's record. A variable that
// uses an encrypted value has Refs in place of its value.
type varRecord struct {
	Value     any             `json:"value"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Refs      json.RawMessage `json:"refs,omitempty"` // as in events.SpecVar
	// Targets are the values to which Refs lead, by the names of jobvalues.Values.
	Targets map[string]map[string]target `json:"targets,omitempty"`
}

// target is a value to which a variable referred when it was used: encrypted, or one that an earlier release sealed.
type target struct {
	Value     any                 `json:"value,omitempty"`
	Encrypted jobvalues.Encrypted `json:"encrypted,omitempty"`
}

// made returns the variables that a plan or apply of the component uses now. A sensitive one is resolved, unless it uses an
// encrypted value: then the record has copies of all values that it uses, because they may be replaced before a destroy.
func made(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component) (map[string]varRecord, error) {
	scope, err := scopeOf(tx, inst, v, comp, toOpen)
	if err != nil {
		return nil, err
	}
	known, err := outlinesIn(scope, comp)
	if err != nil {
		return nil, err
	}
	out := make(map[string]varRecord, len(known))
	var spec JobVars
	for name, o := range known {
		if !o.Withheld {
			out[name] = varRecord{Value: o.Value, Sensitive: o.Sensitive}
			continue
		}
		if spec.Vars == nil {
			if spec, err = PlanJobVars(tx, inst, v, comp.Name); err != nil {
				return nil, err
			}
		}
		r := varRecord{Sensitive: true, Refs: spec.Vars[name].Refs, Targets: map[string]map[string]target{}}
		var tree appspec.Value
		if err := json.Unmarshal(r.Refs, &tree); err != nil {
			return nil, fmt.Errorf("read the references of variable %s of %s: %w", name, comp.Name, err)
		}
		for _, ref := range tree.References() {
			record, of := jobvalues.NameOf(ref)
			if r.Targets[record] == nil {
				r.Targets[record] = map[string]target{}
			}
			if e, ok := spec.Values[record][of].(jobvalues.Encrypted); ok {
				r.Targets[record][of] = target{Encrypted: e}
			} else {
				r.Targets[record][of] = target{Value: spec.Values[record][of]}
			}
		}
		out[name] = r
	}
	return out, nil
}

// Outlines returns what is known of the variables of a plan or apply of the component. It opens no secret. If a value does
// not exist yet, the error is an *appspec.UnresolvedError.
func Outlines(tx *kernel.Tx, inst store.Install, v Version, component string) (map[string]appspec.Outline, error) {
	comp, ok := v.Spec.Component(component)
	if !ok {
		return nil, fmt.Errorf("version %s has no component %s", v.ID, component)
	}
	scope, err := scopeOf(tx, inst, v, comp, toCheck)
	if err != nil {
		return nil, err
	}
	return outlinesIn(scope, comp)
}

// outlinesIn returns what is known of the variables of the component, and checks them.
func outlinesIn(scope *varScope, comp appspec.Component) (map[string]appspec.Outline, error) {
	out := make(map[string]appspec.Outline, len(comp.Values()))
	for name, value := range comp.Values() {
		known, err := scope.outline(value)
		if err != nil {
			return nil, err
		}
		if option, ok := strings.CutPrefix(name, appspec.OptionPrefix); ok && known.Sensitive {
			return nil, appspec.SensitiveOption(comp.Name, option)
		}
		if variable, ok := strings.CutPrefix(name, appspec.EnvPrefix); ok {
			if known, err = known.EnvOutline(); err != nil {
				return nil, fairlead.Invalid(fairlead.CodeInvalidVariable, "the environment variable %s of component %s %v", variable, comp.Name, err)
			}
		}
		if name == appspec.ImageValue {
			if err := checkImage(comp.Name, known.Value, known.Sensitive); err != nil {
				return nil, err
			}
		}
		out[name] = known
	}
	return out, nil
}

// varDigests returns a digest of each variable of the component. It opens nothing. With each, only the variables that have a
// value now; otherwise a variable without a value is an error.
func varDigests(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component, each bool) (map[string]string, error) {
	scope, err := scopeOf(tx, inst, v, comp, toCompare)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(comp.Values()))
	for name, value := range comp.Values() {
		known, err := scope.outline(value)
		if each && noValue(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = known.Digest
	}
	return out, nil
}

// SameVars reports for each variable of the component's last apply whether it has the same value in the version. It opens
// nothing.
func SameVars(tx *kernel.Tx, inst store.Install, v Version, k store.Component) (map[string]bool, error) {
	comp, ok := v.Spec.Component(k.Name)
	if !ok {
		return nil, fmt.Errorf("version %s has no component %s", v.ID, k.Name)
	}
	now, err := varDigests(tx, inst, v, comp, false)
	if err != nil {
		return nil, err
	}
	same := make(map[string]bool, len(k.VarDigests))
	for name, was := range k.VarDigests {
		same[name] = now[name] == was
	}
	return same, nil
}

// noValue reports whether err is the reason why a variable has no value: it does not exist yet, or a deployment would refuse it.
func noValue(err error) bool {
	_, missing := errors.AsType[*appspec.UnresolvedError](err)
	return missing || fairlead.KindOf(err) == fairlead.KindInvalid
}

// lastVars returns the variables of the component's last apply.
func lastVars(tx *kernel.Tx, id fairlead.InstallID, component string) (map[string]varRecord, error) {
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
	var out map[string]varRecord
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a float64 would lose digits
	if err := dec.Decode(&out); err != nil {
		return nil, fmt.Errorf("decode vars of component %s: %w", component, err)
	}
	return out, nil
}

// LastPlain returns the variables of the component's last apply that are not sensitive.
func LastPlain(tx *kernel.Tx, id fairlead.InstallID, component string) (map[string]appspec.Outline, error) {
	last, err := lastVars(tx, id, component)
	out := make(map[string]appspec.Outline, len(last))
	for name, v := range last {
		if !v.Sensitive {
			out[name] = appspec.Outline{Value: v.Value}
		}
	}
	return out, err
}

// varScope holds the values that a component's variables can refer to.
type varScope struct {
	appspec.Scope
	failed error // the error of reading an output
}

// scopeOf reads the values that the component's variables can refer to, as the view shows them. Inputs that the
// version refuses are an error of KindInvalid.
func scopeOf(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component, as view) (*varScope, error) {
	inputs, err := kernel.Cached(tx, fmt.Sprintf("inputs %s %s %t", inst.ID, v.ID, as == toOpen), func() (map[string]appspec.Resolved, error) {
		given, err := givenInputs(tx, inst, v.Spec, as)
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
			r, ok, err := outputOf(tx, inst.ID, component, output, as)
			s.failed = errors.Join(s.failed, err)
			return r, ok && err == nil
		},
	}
	return s, nil
}

// outline returns what is known of v. If a value does not exist yet, the error is an
// *appspec.UnresolvedError.
func (s *varScope) outline(v appspec.Value) (appspec.Outline, error) {
	out, err := v.Outline(s.Scope)
	if s.failed != nil {
		return appspec.Outline{}, s.failed
	}
	return out, err
}

// installFacts returns the values of the install by the names of appspec.InstallNames.
// It reads the role path and boundary of the customer's stack only for a component that
// refers to them.
func installFacts(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component) (map[string]string, error) {
	// Outside of such a stack, a role can have any path and needs no boundary.
	out := map[string]string{"name": inst.Name, "id": string(inst.ID), "app": inst.App, "version": string(v.ID), "boundary": "", "role_path": "/"}
	agents, err := tx.Facts(tx.Ctx)
	if err != nil {
		return nil, err
	}
	if inst.Agents != nil {
		agents = kernel.AgentFacts(*inst.Agents)
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

// outputOf returns an output of a component, if the component and the output exist. A view that opens nothing does not know
// which outputs a blob has, and takes each one for existing.
func outputOf(tx *kernel.Tx, id fairlead.InstallID, component, name string, as view) (appspec.Resolved, bool, error) {
	k, err := tx.Component(id, component)
	if err != nil || k.V.State != store.Present {
		return appspec.Resolved{}, false, err
	}
	if as == toCompare && k.V.OutputsBlob != "" {
		return appspec.Resolved{Value: withheld([]byte(k.V.OutputsBlob), store.Known{Fingerprint: k.V.OutputsFingerprint})}, true, nil
	}
	all, err := outputsOf(tx, k.V)
	if err != nil {
		return appspec.Resolved{}, false, err
	}
	o, ok := all[name]
	if !ok {
		return appspec.Resolved{}, false, nil
	}
	if o.Encrypted != nil {
		return appspec.Resolved{Value: encrypted(o.Encrypted, o.Known), Sensitive: true}, true, nil
	}
	if as != toOpen && o.Sealed != nil {
		return appspec.Resolved{Value: withheld(o.Sealed, o.Known), Sensitive: true}, true, nil
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
