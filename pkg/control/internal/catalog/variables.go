package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/store"
)

// Limits of the variables of one scope. All of them are in the environment of a job's
// tool, where Linux by default allows 128 KiB for each variable and 2 MiB in total.
const (
	maxVariables     = 100
	maxVariableValue = 16 << 10 // bytes
)

// VariableScope is the target of variables. Exactly one field is set.
type VariableScope struct {
	Runner, Group, App, Install string
}

// Variable is an environment variable of jobs.
type Variable struct {
	Value     string
	Sensitive bool // Value is then empty when it is read
	// Encrypted is the value of a sensitive variable of an install, encrypted with the key of the install; nil: it is in Value. It is
	// nil when the variable is read.
	Encrypted *Encrypted
}

// VariablePattern is the pattern of an environment variable's name. Some matching names
// are reserved.
const VariablePattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`

var variablePattern = pattern.New(VariablePattern)

func checkVariable(name string, v *Variable) error {
	if !variablePattern.MatchString(name) {
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidVariable, Message: fmt.Sprintf("%q is not the name of an environment variable", fairlead.Clip(name, 100)),
			Hint: "Use letters, digits and underscores, up to 128; do not begin with a digit."}
	}
	if strings.HasPrefix(name, "FAIRLEAD_") || component.Reserved(name) { // a job with such a variable would fail
		return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidVariable, Message: fmt.Sprintf("the variable %s is reserved", name),
			Hint: "Names that begin with FAIRLEAD_ are set by Fairlead, those of Terraform by the runner; variables of a module are inputs of the app."}
	}
	if v != nil && v.Encrypted != nil && (!v.Sensitive || v.Value != "" || v.Encrypted.Type != string(appspec.String)) {
		return fairlead.Invalid(fairlead.CodeInvalidEncryptedValue, "the variable %s is encrypted, so it must be sensitive, a text, and have no other value", name)
	}
	if v != nil && (len(v.Value) > maxVariableValue || strings.ContainsRune(v.Value, 0)) {
		return fairlead.Invalid(fairlead.CodeInvalidVariable, "the value of the variable %s is longer than %d bytes, or holds a NUL", name, maxVariableValue)
	}
	return nil
}

// scopeIn finds the target of variables. Only an operator can use a shared runner as
// the target.
func scopeIn(tx *kernel.Tx, by kernel.User, of VariableScope) (fairlead.OrgID, store.Scope, error) {
	switch none := (VariableScope{}); none {
	case of:
	case VariableScope{Group: of.Group, App: of.App, Install: of.Install}:
		r, err := runners.OwnRunner(tx, by, of.Runner)
		return r.V.Org, store.Scope{Kind: store.ScopeRunner, Name: string(r.V.ID)}, err
	case VariableScope{Runner: of.Runner, App: of.App, Install: of.Install}:
		g, err := runners.ReadGroup(tx, by.Org, of.Group)
		return by.Org, store.Scope{Kind: store.ScopeGroup, Name: g.Path.String()}, err
	case VariableScope{Runner: of.Runner, Group: of.Group, Install: of.Install}:
		a, err := tx.Store.App(tx.Ctx, by.Org, of.App)
		if err == nil && a.V.Deleting {
			err = deleting(of.App)
		}
		tx.CheckApp(a) // a later app of this name must not get the variables
		return by.Org, store.Scope{Kind: store.ScopeApp, Name: a.V.Name}, err
	case VariableScope{Runner: of.Runner, Group: of.Group, App: of.App}:
		in, err := tx.Store.Install(tx.Ctx, by.Org, of.Install)
		return by.Org, store.Scope{Kind: store.ScopeInstall, Name: string(in.V.ID)}, err
	}
	return "", store.Scope{}, fairlead.Invalid(fairlead.CodeInvalidScope, "set variables on exactly one of: a runner, a group, an app, an install")
}

// Variables returns the variables of one target, without sensitive values.
func (cat *Catalog) Variables(ctx context.Context, by kernel.User, of VariableScope) (map[string]Variable, error) {
	org, scope, err := scopeIn(cat.Reading(ctx), by, of)
	if err != nil {
		return nil, err
	}
	r, err := cat.Store.Variables(ctx, org, scope)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Variable, len(r.V.Values))
	for name, v := range r.V.Values {
		if out[name] = (Variable{Sensitive: true}); !v.Secret() {
			if out[name], err = openVariable(cat.Reading(ctx), org, scope, name, v); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// openVariable returns a variable with its value, also if it is sensitive.
func openVariable(tx *kernel.Tx, org fairlead.OrgID, of store.Scope, name string, v store.Input) (Variable, error) {
	out := Variable{Sensitive: v.Sealed != nil}
	raw, err := openInput(tx, v, variableContext(org, of, name))
	if err != nil {
		return out, fmt.Errorf("open variable %s of %s: %w", name, of.Name, err)
	}
	if err := json.Unmarshal(raw, &out.Value); err != nil {
		return out, fmt.Errorf("decode variable %s of %s: %w", name, of.Name, err)
	}
	return out, nil
}

func variableContext(org fairlead.OrgID, of store.Scope, name string) string {
	return "variables/" + string(org) + "/" + of.Kind + "/" + of.Name + "/" + name
}

// SetVariables changes the given variables of one target; nil removes a variable. Jobs
// that start later get the new values.
func (cat *Catalog) SetVariables(ctx context.Context, by kernel.User, of VariableScope, change map[string]*Variable) (map[string]Variable, error) {
	for _, name := range slices.Sorted(maps.Keys(change)) {
		if err := checkVariable(name, change[name]); err != nil {
			return nil, err
		}
	}
	err := cat.Transact(ctx, "set variables", func(tx *kernel.Tx) error {
		org, scope, err := scopeIn(tx, by, of)
		if err != nil {
			return err
		}
		r, err := cat.Store.Variables(ctx, org, scope)
		if err != nil {
			return err
		}
		values := maps.Clone(r.V.Values)
		if values == nil {
			values = map[string]store.Input{}
		}
		for name, v := range change {
			delete(values, name)
			if v == nil {
				continue
			}
			encrypted, err := encryptedVariable(tx, by.Org, of, name, *v)
			if err != nil {
				return err
			}
			if encrypted != nil {
				values[name] = store.Input{Encrypted: encrypted.Bytes, Known: encrypted.known()}
				continue
			}
			if v.Sensitive && r.V.FingerprintKey == nil {
				if r.V.FingerprintKey, err = newFingerprintKey(tx, variablesKeyContext(org, scope)); err != nil {
					return fmt.Errorf("make the key of the fingerprints of variables: %w", err)
				}
			}
			key, err := openFingerprintKey(tx, r.V.FingerprintKey, variablesKeyContext(org, scope))
			if err != nil {
				return err
			}
			if values[name], err = sealVariable(tx, key, *v, variableContext(org, scope, name)); err != nil {
				return fmt.Errorf("seal variable %s: %w", name, err)
			}
		}
		if len(values) > maxVariables {
			return fairlead.Invalid(fairlead.CodeInvalidVariable, "the request would result in %d variables; one scope can have %d", len(values), maxVariables)
		}
		r.V.Values = values
		tx.PutVariables(r)
		return markVariables(tx, by, of, len(values) > 0)
	})
	if err != nil {
		return nil, err
	}
	return cat.Variables(ctx, by, of)
}

// encryptedVariable returns the value that a person encrypted; nil: the control plane seals it, or it is not sensitive. It refuses a
// sensitive value in the clear for an install whose secrets only the customer's side may read. A variable of a runner, a group or an
// app is for several installs, and so for several keys: the control plane seals it.
func encryptedVariable(tx *kernel.Tx, org fairlead.OrgID, of VariableScope, name string, v Variable) (*Encrypted, error) {
	if !v.Sensitive {
		return nil, nil
	}
	if of.Install == "" {
		if v.Encrypted != nil {
			return nil, fairlead.Invalid(fairlead.CodeInvalidEncryptedValue, "the variable %s is encrypted, and only variables of an install can be", name)
		}
		return nil, nil
	}
	in, app, err := installAndApp(tx, org, of.Install)
	if err != nil {
		return nil, err
	}
	if v.Encrypted != nil {
		_, err := keyOfValue(in.V, fmt.Sprintf("variable %q", name), *v.Encrypted)
		return v.Encrypted, err
	}
	encrypt, err := mustEncrypt(tx, in.V, app.Newest.Spec)
	if err == nil && encrypt {
		err = &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInputNotEncrypted,
			Message: fmt.Sprintf("the sensitive variable %s of install %s is not encrypted: only the customer's side may read it", name, in.V.Name),
			Hint:    "Set it with a client of this release, which encrypts it with the key of the install.", Args: fairlead.Args{Install: in.V.Name}}
	}
	return nil, err
}

// markVariables records on a runner or install whether it has variables. Each start of
// a job reads these records and so knows whether to read variables.
func markVariables(tx *kernel.Tx, by kernel.User, of VariableScope, has bool) error {
	switch {
	case of.Runner != "":
		r, err := runners.OwnRunner(tx, by, of.Runner)
		if err != nil || r.V.HasVars == has {
			return err
		}
		r.V.HasVars = has
		tx.PutRunner(r)
	case of.Install != "":
		in, err := tx.Store.Install(tx.Ctx, by.Org, of.Install)
		if err != nil || in.V.HasVars == has {
			return err
		}
		in.V.HasVars = has
		tx.PutInstall(in)
	}
	return nil
}

// variablesKeyContext is the place of the key of a scope. The key is not that of an install, because a scope can have many.
func variablesKeyContext(org fairlead.OrgID, of store.Scope) string {
	return "variables/" + string(org) + "/" + of.Kind + "/" + of.Name + "/fingerprints"
}

func sealVariable(tx *kernel.Tx, key fingerprintKey, v Variable, place string) (store.Input, error) {
	raw, err := json.Marshal(v.Value)
	if err != nil {
		return store.Input{}, err
	}
	return sealInput(tx, key, raw, v.Sensitive, place)
}

// setVariable is an environment variable in its stored form, and its target.
type setVariable struct {
	store.Input
	org  fairlead.OrgID
	from store.Scope
}

// secretBytes returns the sealed or encrypted bytes of a sensitive variable.
func (v setVariable) secretBytes() []byte {
	if v.Encrypted != nil {
		return v.Encrypted
	}
	return v.Sealed
}

func (v setVariable) sensitive() bool { return v.Secret() }

// open returns the variable with its value, also if it is sealed.
func (v setVariable) open(tx *kernel.Tx, name string) (Variable, error) {
	return openVariable(tx, v.org, v.from, name, v.Input)
}

// variablesFor returns the environment variables of an install's jobs on a runner. They
// come from the runner, the groups from the root to the install's group, the app, and
// the install; later ones override earlier ones.
func variablesFor(tx *kernel.Tx, in store.Install, r store.Runner) (map[string]setVariable, error) {
	onRunner := store.Scope{Kind: store.ScopeRunner, Name: string(r.ID)}
	out := make(map[string]setVariable, len(r.Env))
	for name, text := range r.Env {
		raw, err := kernel.EncodeJSON(text)
		if err != nil {
			return nil, fmt.Errorf("encode variable %s of runner %s: %w", name, r.Name, err)
		}
		out[name] = setVariable{store.Input{Value: raw}, r.Org, onRunner}
	}
	var scopes []store.Scope
	if r.HasVars {
		scopes = append(scopes, onRunner)
	}
	for _, g := range slices.Backward(in.Group.Lineage()) {
		scopes = append(scopes, store.Scope{Kind: store.ScopeGroup, Name: g.String()})
	}
	scopes = append(scopes, store.Scope{Kind: store.ScopeApp, Name: in.App})
	if in.HasVars {
		scopes = append(scopes, store.Scope{Kind: store.ScopeInstall, Name: string(in.ID)})
	}
	for _, scope := range scopes {
		org := in.Org
		if scope.Kind == store.ScopeRunner {
			org = r.Org
		}
		set, err := tx.Store.Variables(tx.Ctx, org, scope)
		if err != nil {
			return nil, err
		}
		for name, v := range set.V.Values {
			out[name] = setVariable{v, org, scope}
		}
	}
	return out, nil
}

// EncryptedEnvironment adds to values the variables of an install's jobs that only a step can open. The step fetches them: a signed
// spec has no bytes that another job could take.
func EncryptedEnvironment(tx *kernel.Tx, in store.Install, r store.Runner, values jobvalues.Values) error {
	set, err := variablesFor(tx, in, r)
	if err != nil {
		return err
	}
	for name, v := range set {
		if v.Encrypted != nil {
			values.Add(events.ValuesEnv, name, jobvalues.Encrypted(v.Encrypted))
		}
	}
	return nil
}

// Environment returns the environment variables of a job: those of variablesFor, and
// Fairlead's own, which override all others. Sensitive ones are returned separately. Those of EncryptedEnvironment are in neither.
func Environment(tx *kernel.Tx, in store.Install, r store.Runner, j store.Job) (plain, secret map[string]string, err error) {
	set, err := variablesFor(tx, in, r)
	if err != nil {
		return nil, nil, err
	}
	plain, secret = map[string]string{}, map[string]string{}
	for name, v := range set {
		if v.Encrypted != nil {
			continue
		}
		open, err := v.open(tx, name)
		if err != nil {
			return nil, nil, err
		}
		if open.Sensitive {
			secret[name] = open.Value
		} else {
			plain[name] = open.Value
		}
	}
	maps.Copy(plain, map[string]string{
		"FAIRLEAD_INSTALL": j.InstallName, "FAIRLEAD_GROUP": in.Group.String(), "FAIRLEAD_APP": in.App,
		"FAIRLEAD_DEPLOYMENT": string(j.Deployment), "FAIRLEAD_JOB": string(j.ID), "FAIRLEAD_RUNNER": j.RunnerName,
	})
	if j.Run != nil {
		plain["FAIRLEAD_ACTION"], plain["FAIRLEAD_TRIGGER"] = j.Run.Action, string(j.Run.Trigger)
	} else {
		plain["FAIRLEAD_COMPONENT"] = j.Component
	}
	if r.Endpoint != "" {
		plain["FAIRLEAD_ENDPOINT"] = r.Endpoint
	}
	return plain, secret, nil
}
