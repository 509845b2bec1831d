package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// ActionOf returns an action of the version that the install has deployed, and this version. The error has the code
// "action-not-found" if the version declares no such action, or if the install has deployed no version.
func ActionOf(tx *kernel.Tx, inst store.Install, name string) (appspec.Action, Version, error) {
	if inst.Deployed == "" {
		return appspec.Action{}, Version{}, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeActionNotFound,
			Message: fmt.Sprintf("install %s has no action %q, because no whole deployment of it has succeeded", inst.Name, name),
			Hint:    "Deploy it with {install.deploy}.", Args: fairlead.Args{Install: inst.Name}}
	}
	v, err := ReadVersion(tx, inst.Deployed)
	if err != nil {
		return appspec.Action{}, v, err
	}
	a, ok := v.Spec.Action(name)
	if ok {
		return a, v, nil
	}
	names := make([]string, len(v.Spec.Actions))
	for i, a := range v.Spec.Actions {
		names[i] = a.Name
	}
	hint := "The version that is deployed has no actions. {install.deploy} deploys the newest one."
	if len(names) > 0 {
		hint = fmt.Sprintf("The version that is deployed has %s. {install.deploy} deploys the newest one.", strings.Join(names, ", "))
	}
	return a, v, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeActionNotFound,
		Message: fmt.Sprintf("version %s of install %s has no action %q", v.ID, inst.Name, name), Hint: hint, Args: fairlead.Args{Install: inst.Name}}
}

// PresentFor returns an error of the code "action-components" if the action's variables refer to a component that is
// not deployed.
func PresentFor(tx *kernel.Tx, inst store.Install, a appspec.Action) error {
	var absent []string
	for _, name := range a.Part().DependsOn {
		k, err := tx.Component(inst.ID, name)
		if err != nil {
			return err
		}
		if k.V.State != store.Present {
			absent = append(absent, fmt.Sprintf("%s (%s)", name, k.V.State))
		}
	}
	if len(absent) == 0 {
		return nil
	}
	slices.Sort(absent)
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeActionComponents,
		Message: fmt.Sprintf("the action %s of install %s uses outputs of %s", a.Name, inst.Name, strings.Join(absent, ", ")),
		Hint:    "Deploy the install with {install.deploy}. Then run the action again.", Args: fairlead.Args{Install: inst.Name}}
}

func paramContext(id fairlead.DeploymentID, name string) string {
	return "deployment/" + string(id) + "/param/" + name
}

// EncryptedParams returns the params of a run that a person encrypted, in their stored form. If the install has a key, or its runner
// has a seed, a sensitive param must be encrypted.
func EncryptedParams(tx *kernel.Tx, inst store.Install, v Version, a appspec.Action, given map[string]json.RawMessage, secrets map[string]Encrypted) (map[string]store.Input, error) {
	encrypt, err := mustEncrypt(tx, inst, v.Spec)
	if err != nil {
		return nil, err
	}
	out := map[string]store.Input{}
	sensitive := map[string]bool{}
	for _, p := range a.Params {
		sensitive[p.Name] = p.Sensitive
		if raw, ok := given[p.Name]; ok && p.Sensitive && encrypt && string(bytes.TrimSpace(raw)) != "null" {
			return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInputNotEncrypted,
				Message: fmt.Sprintf("the sensitive param %q of action %s is not encrypted: only the customer's side may read it", p.Name, a.Name),
				Hint:    "Run the action with a client of this release, which encrypts it with the key of the install.", Args: fairlead.Args{Install: inst.Name}}
		}
	}
	for name, e := range secrets {
		if _, both := given[name]; both || !sensitive[name] {
			return nil, refuseEncrypted(inst, "the param %q of action %s is not sensitive, or is given twice", fairlead.Clip(name, 100), a.Name)
		}
		if _, err := keyOfValue(inst, fmt.Sprintf("param %q", name), e); err != nil {
			return nil, err
		}
		out[name] = store.Input{Encrypted: e.Bytes, Known: e.known()}
	}
	return out, nil
}

// SealParams checks the params of a run against its action, and seals sensitive ones that are not encrypted. A param with the value
// null counts as not given.
func SealParams(tx *kernel.Tx, id fairlead.DeploymentID, a appspec.Action, given map[string]json.RawMessage, secrets map[string]store.Input) (map[string]store.Input, error) {
	values := map[string]any{}
	for name, in := range secrets {
		values[name] = encrypted(in.Encrypted, in.Known)
	}
	for name, raw := range given {
		v, err := kernel.DecodeJSON(raw)
		if err != nil {
			return nil, fairlead.Invalid(fairlead.CodeInvalidParams, "param %q is not JSON", fairlead.Clip(name, 100))
		}
		if v != nil {
			values[name] = v
		}
	}
	if _, err := a.CheckParams(values); err != nil {
		return nil, err
	}
	out := map[string]store.Input{}
	for _, p := range a.Params {
		v, ok := values[p.Name]
		if !ok {
			continue
		}
		if in, ok := secrets[p.Name]; ok {
			out[p.Name] = in
			continue
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode param %s: %w", p.Name, err)
		}
		// The params of two runs are never compared, so they need no fingerprints.
		if out[p.Name], err = sealInput(tx, nil, raw, p.Sensitive, paramContext(id, p.Name)); err != nil {
			return nil, fmt.Errorf("seal param %s: %w", p.Name, err)
		}
	}
	return out, nil
}

// OpenParams returns the params that were given to a run, and those that a person encrypted.
func OpenParams(tx *kernel.Tx, d store.Deployment) (map[string]json.RawMessage, map[string]store.Input, error) {
	out, secrets := make(map[string]json.RawMessage, len(d.Params)), map[string]store.Input{}
	for name, in := range d.Params {
		if in.Encrypted != nil {
			secrets[name] = in
			continue
		}
		raw, err := openInput(tx, in, paramContext(d.ID, name))
		if err != nil {
			return nil, nil, fmt.Errorf("open param %s of deployment %s: %w", name, d.ID, err)
		}
		out[name] = raw
	}
	return out, secrets, nil
}

// RunOutlines returns what is known of the variables of a run: its params, the install's inputs and the outputs of deployed
// components. It opens no secret. If a value does not exist yet, the error is an *appspec.UnresolvedError.
func RunOutlines(tx *kernel.Tx, inst store.Install, v Version, d store.Deployment, run deployment.Run) (map[string]appspec.Outline, error) {
	out, _, err := runOutlines(tx, inst, v, d, run, toCheck)
	return out, err
}

// runOutlines is RunOutlines in a view, and also returns the scope.
func runOutlines(tx *kernel.Tx, inst store.Install, v Version, d store.Deployment, run deployment.Run, as view) (map[string]appspec.Outline, *varScope, error) {
	scope, err := runScope(tx, inst, v, d, run, as)
	if err != nil {
		return nil, nil, err
	}
	a, _ := v.Spec.Action(run.Action) // runScope has found it
	out, err := outlinesIn(scope, a.Part())
	return out, scope, err
}

// runScope returns the scope of the variables of a run.
func runScope(tx *kernel.Tx, inst store.Install, v Version, d store.Deployment, run deployment.Run, as view) (*varScope, error) {
	a, ok := v.Spec.Action(run.Action)
	if !ok {
		return nil, fmt.Errorf("version %s has no action %s", v.ID, run.Action)
	}
	given := map[string]any{}
	if run.Trigger == deployment.Manual { // the other triggers give no params
		for name, in := range d.Params {
			if in.Encrypted != nil {
				given[name] = encrypted(in.Encrypted, in.Known)
				continue
			}
			if in.Sealed != nil && as != toOpen {
				given[name] = withheld(in.Sealed, in.Known)
				continue
			}
			raw, err := openInput(tx, in, paramContext(d.ID, name))
			if err != nil {
				return nil, fmt.Errorf("open param %s of deployment %s: %w", name, d.ID, err)
			}
			if given[name], err = kernel.DecodeJSON(raw); err != nil {
				return nil, fmt.Errorf("decode param %s of deployment %s: %w", name, d.ID, err)
			}
		}
	}
	scope, err := scopeOf(tx, inst, v, a.Part(), as)
	if err != nil {
		return nil, err
	}
	scope.Params, err = a.CheckParams(given)
	return scope, err
}
