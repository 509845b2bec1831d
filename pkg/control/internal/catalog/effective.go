package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Effective lists the values that a deployment of the app's newest version would use
// now, and the differences from the last deployments.
type Effective struct {
	Version     fairlead.VersionID // that a deployment would use
	Names       []string           // of the version
	Inputs      map[string]EffectiveValue
	Environment map[string]EffectiveValue            // of the jobs' tools, without the variables that Fairlead sets
	Vars        map[string]map[string]EffectiveValue // by component of that version
	Off         []string                             // components of that version that the inputs switch off; they have no Vars
	Undeployed  []Undeployed                         // by component; empty while no component exists
}

// EffectiveValue is one value that a deployment would use.
type EffectiveValue struct {
	Value     json.RawMessage // nil: sensitive, or unknown before another component is deployed
	Sensitive bool
	From      []string // its sources, in a person's terms
}

// show sets the value, unless it is sensitive.
func (e *EffectiveValue) show(value any) (err error) {
	if !e.Sensitive {
		e.Value, err = json.Marshal(value)
	}
	return err
}

// Sources of an input's value, and of a variable without references.
const (
	fromInstall = "install" // the install sets it
	fromDefault = "default" // the default of the app
	fromApp     = "app"     // a constant in the app
)

// Undeployed is one difference between a component now and the component after a
// deployment.
type Undeployed struct {
	Component string
	What      UndeployedKind
	Name      string // of the variable; "" otherwise
}

// UndeployedKind is the kind of a difference.
type UndeployedKind string

// The kinds of differences.
const (
	UndeployedNew         UndeployedKind = "new"         // the component does not exist yet
	UndeployedRemoved     UndeployedKind = "removed"     // the version no longer has this component
	UndeployedOff         UndeployedKind = "off"         // an input switches the component off, and it still exists
	UndeployedVersion     UndeployedKind = "version"     // another version created it
	UndeployedVariable    UndeployedKind = "variable"    // one of its variables had another value
	UndeployedEnvironment UndeployedKind = "environment" // its tool had other environment variables
)

// Effective resolves the values that a deployment of the install would use now. It
// compares these values with the values of each component's last successful deployment.
// It does not compare a component whose last apply or destroy failed, because the
// component's state reports the failure.
func (cat *Catalog) Effective(ctx context.Context, org fairlead.OrgID, install string) (Effective, error) {
	tx := cat.Reading(ctx)
	r, err := cat.Store.Install(ctx, org, install)
	if err != nil {
		return Effective{}, err
	}
	in := r.V
	app, err := ReadApp(tx, in.Org, in.App)
	if err != nil {
		return Effective{}, err
	}
	v := app.Newest
	out := Effective{Version: v.ID, Vars: map[string]map[string]EffectiveValue{}}
	if out.Names, err = VersionNames(tx, v.ID); err != nil {
		return Effective{}, err
	}
	given, err := givenInputs(tx, in, v.Spec, toCheck)
	if err != nil {
		return Effective{}, err
	}
	if out.Inputs, err = effectiveInputs(v.Spec, given); err != nil {
		return Effective{}, err
	}
	env, runner, err := environment(tx, in)
	if err != nil {
		return Effective{}, err
	}
	if out.Environment, err = effectiveEnvironment(tx, in, runner, env); err != nil {
		return Effective{}, err
	}
	inSandbox, _, err := environment(tx, in.In(in.SandboxRunner != nil))
	if err != nil {
		return Effective{}, err
	}
	return out, out.compare(tx, in, v, map[bool]map[string]setVariable{false: env, true: inSandbox})
}

// environment returns the environment variables of the jobs of the install's runner. Without a runner it returns those of the
// install.
func environment(tx *kernel.Tx, in store.Install) (map[string]setVariable, store.Runner, error) {
	runner, err := runners.ServingRunner(tx, in)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound && fairlead.CodeOf(err) != fairlead.CodeNoRunner {
		return nil, runner.V, err
	}
	env, err := variablesFor(tx, in, runner.V)
	return env, runner.V, err
}

// compare adds the variables of each component of the version, and the differences from what is deployed. env has the environment
// variables of jobs, by whether they run in the sandbox.
func (out *Effective) compare(tx *kernel.Tx, in store.Install, v Version, env map[bool]map[string]setVariable) error {
	kept, err := tx.Store.Components(tx.Ctx, in.ID)
	if err != nil {
		return err
	}
	there := map[string]store.Component{}
	for _, k := range kept {
		if k.V.State != store.Absent {
			there[k.V.Name] = k.V
		}
	}
	off := switchedOff(v.Spec, in)
	for _, comp := range v.Spec.Components {
		if off[comp.Name] {
			out.Off = append(out.Off, comp.Name)
			if _, ok := there[comp.Name]; ok {
				out.Undeployed = append(out.Undeployed, Undeployed{Component: comp.Name, What: UndeployedOff})
			}
			continue
		}
		vars, err := effectiveVars(tx, in, v, comp, out.Inputs)
		if err != nil {
			return err
		}
		out.Vars[comp.Name] = vars
		k, ok := there[comp.Name]
		switch {
		case !ok && len(there) > 0:
			out.Undeployed = append(out.Undeployed, Undeployed{Component: comp.Name, What: UndeployedNew})
		case ok && k.State == store.Present:
			differ, err := undeployedOf(tx, in, k, v, comp, env[k.InSandbox])
			if err != nil {
				return err
			}
			out.Undeployed = append(out.Undeployed, differ...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, ok := v.Spec.Component(name); !ok {
			out.Undeployed = append(out.Undeployed, Undeployed{Component: name, What: UndeployedRemoved})
		}
	}
	slices.SortStableFunc(out.Undeployed, func(a, b Undeployed) int { return cmp.Compare(a.Component, b.Component) })
	return nil
}

// effectiveInputs returns the inputs that the app declares. If the newest version
// requires an input that the install does not set, the input has no value and no source.
// A deployment would be refused with an exact error.
func effectiveInputs(spec *appspec.App, given map[string]any) (map[string]EffectiveValue, error) {
	out := make(map[string]EffectiveValue, len(spec.Inputs))
	for _, decl := range spec.Inputs {
		e := EffectiveValue{Sensitive: decl.Sensitive}
		value := given[decl.Name]
		switch {
		case value != nil:
			e.From = []string{fromInstall}
		case decl.HasDefault:
			value, e.From = decl.Default, []string{fromDefault}
		}
		if err := e.show(value); err != nil {
			return nil, fmt.Errorf("encode input %s: %w", decl.Name, err)
		}
		out[decl.Name] = e
	}
	return out, nil
}

// effectiveEnvironment returns each environment variable with its source.
func effectiveEnvironment(tx *kernel.Tx, in store.Install, r store.Runner, env map[string]setVariable) (map[string]EffectiveValue, error) {
	out := make(map[string]EffectiveValue, len(env))
	for name, v := range env {
		open, err := Variable{Sensitive: true}, error(nil)
		if !v.sensitive() {
			if open, err = v.open(tx, name); err != nil {
				return nil, err
			}
		}
		e := EffectiveValue{Sensitive: open.Sensitive}
		switch v.from.Kind {
		case store.ScopeRunner:
			e.From = []string{"runner " + r.Name}
		case store.ScopeGroup:
			e.From = []string{"group " + v.from.Name}
		case store.ScopeApp:
			e.From = []string{"app " + v.from.Name}
		case store.ScopeInstall:
			e.From = []string{"install " + in.Name}
		}
		if err := e.show(open.Value); err != nil {
			return nil, fmt.Errorf("encode variable %s: %w", name, err)
		}
		out[name] = e
	}
	return out, nil
}

// effectiveVars returns the variables of a component. A sensitive variable, and one whose reference cannot be resolved, has
// no value.
func effectiveVars(tx *kernel.Tx, in store.Install, v Version, comp appspec.Component, inputs map[string]EffectiveValue) (map[string]EffectiveValue, error) {
	out := make(map[string]EffectiveValue, len(comp.Values()))
	for name, value := range comp.Values() {
		e := EffectiveValue{}
		for _, r := range value.References() {
			from := r.Namespace + "." + r.Name
			if r.Output != "" {
				from += ".outputs." + r.Output
			}
			if !slices.Contains(e.From, from) {
				e.From = append(e.From, from)
			}
			e.Sensitive = e.Sensitive || r.Namespace == appspec.Inputs && inputs[r.Name].Sensitive
		}
		if e.From == nil {
			e.From = []string{fromApp}
		}
		out[name] = e
	}
	all, err := outlineEach(tx, in, v, comp)
	if err != nil {
		return nil, err
	}
	for name, val := range all {
		e := out[name]
		if e.Sensitive = e.Sensitive || val.Sensitive; !e.Sensitive {
			if e.Value, err = json.Marshal(val.Value); err != nil {
				return nil, fmt.Errorf("encode variable %s of component %s: %w", name, comp.Name, err)
			}
		}
		out[name] = e
	}
	return out, nil
}

// outlineEach is like Outlines, but leaves out the variables that have no value now, and checks nothing.
func outlineEach(tx *kernel.Tx, in store.Install, v Version, comp appspec.Component) (map[string]appspec.Outline, error) {
	scope, err := scopeOf(tx, in, v, comp, toCheck)
	if fairlead.KindOf(err) == fairlead.KindInvalid { // a deployment would refuse the inputs
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]appspec.Outline{}
	for name, value := range comp.Values() {
		known, err := scope.outline(value)
		if noValue(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = known
	}
	return out, nil
}

// undeployedOf compares a component with what a deployment would use. It opens no sealed value.
func undeployedOf(tx *kernel.Tx, in store.Install, k store.Component, v Version, comp appspec.Component, env map[string]setVariable) ([]Undeployed, error) {
	var out []Undeployed
	if k.Version != v.ID {
		out = append(out, Undeployed{Component: k.Name, What: UndeployedVersion})
	}
	if k.EnvDigest == "" { // recorded by a release that did not store digests
		return out, nil
	}
	digests, err := varDigests(tx, in, v, comp, true)
	if noValue(err) { // a deployment would refuse the inputs
		digests, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	differs := map[string]bool{}
	for name, now := range digests {
		was, had := k.VarDigests[name]
		differs[name] = !had || was != now
	}
	values := comp.Values()
	for name := range k.VarDigests {
		// A value that is unknown before another deployment may be unchanged.
		if _, has := values[name]; !has {
			differs[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(differs)) {
		if differs[name] {
			out = append(out, Undeployed{Component: k.Name, What: UndeployedVariable, Name: name})
		}
	}
	now, err := envDigest(env)
	if err != nil {
		return nil, err
	}
	if k.EnvDigest != now {
		out = append(out, Undeployed{Component: k.Name, What: UndeployedEnvironment})
	}
	return out, nil
}

// envDigest returns a digest of environment variables. In place of a sensitive value it covers its place and its fingerprint.
func envDigest(env map[string]setVariable) (string, error) {
	values := make(map[string][]string, len(env))
	for name, v := range env {
		if v.sensitive() {
			values[name] = []string{"withheld", variableContext(v.org, v.from, name), withheld(v.secretBytes(), v.Known).Fingerprint}
		} else {
			values[name] = []string{"plain", string(v.Value)}
		}
	}
	raw, err := json.Marshal(values) // names in order
	if err != nil {
		return "", fmt.Errorf("encode environment variables: %w", err)
	}
	return digestOf(raw), nil
}
