package appspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Sandbox is what an install stands on: a network and a cluster. A component creates it, or it exists already and inputs
// describe it. All other components are deployed after it and destroyed before it.
type Sandbox struct {
	Kind string `json:"kind" must:"true" check:"sandboxkind" alias:"type platform" doc:"What the install stands on. It decides which kinds of runners the app can use."`
	// Component names the component that creates the sandbox; "": it exists already.
	Component string `json:"created_by,omitempty" alias:"module" doc:"The component that creates the sandbox. It is deployed first and destroyed last."`
	// Given are the outputs of a sandbox that exists already, by name. Their references are to inputs and to the install.
	Given map[string]Value `json:"given,omitempty" check:"given" alias:"outputs values existing" doc:"The outputs of a sandbox that exists already, by name: any value, with references to inputs and to the install."`
	// Runner is the runner inside the sandbox; nil: the install's runner runs all jobs.
	Runner *SandboxRunner `json:"runner,omitempty" doc:"A runner inside the sandbox. The install's runner deploys it, and it runs the jobs of all components that come after it."`
}

// maxGiven is the largest number of outputs of a given sandbox.
const maxGiven = 100

// sandboxKind returns the kind of the sandbox; "" if the app declares none.
func (a *App) sandboxKind() runnerspec.SandboxKind {
	if a.Sandbox == nil {
		return ""
	}
	return runnerspec.SandboxKind(a.Sandbox.Kind)
}

// ground returns the name of the component that creates the sandbox; "" if there is none.
func (a *App) ground() string {
	if a.Sandbox == nil {
		return ""
	}
	return a.Sandbox.Component
}

// sandboxKinds returns the names of all kinds of sandboxes.
func sandboxKinds() []string {
	var names []string
	for _, k := range runnerspec.SandboxKinds() {
		names = append(names, string(k))
	}
	return names
}

// kindsOn returns the names of the kinds of runners that can run on the sandbox.
func kindsOn(s runnerspec.SandboxKind) (names []string) {
	for _, k := range runnerspec.KindsOn(s) {
		names = append(names, string(k))
	}
	return names
}

// RunnerWarning returns why a runner of the kind should not run the app's jobs although it can; "" if there is no reason.
func (a *App) RunnerWarning(kind runnerspec.Kind) string {
	if f := runnerspec.FitOf(kind, a.sandboxKind()); f.OK && a.sandboxRunner() == nil {
		return f.Why
	}
	return ""
}

// RunnerWarnings returns a sentence for each kind of runner that the app declares and that should not run its jobs although it
// can.
func (a *App) RunnerWarnings() (all []string) {
	if a.Runner == nil {
		return nil
	}
	for _, kind := range a.Runner.Kinds {
		if why := a.RunnerWarning(runnerspec.Kind(kind)); why != "" {
			all = append(all, fmt.Sprintf("A runner of kind %s on a sandbox of kind %s: %s.", kind, a.sandboxKind(), why))
		}
	}
	return all
}

// checkSandbox reports the problems of the sandbox. It adds to edges that all other components need its component.
func checkSandbox(report reporter, a *App, inputs map[string]Input, edges map[string]map[string]string) {
	s := a.Sandbox
	if s == nil {
		return
	}
	if !slices.Contains(sandboxKinds(), s.Kind) && s.Kind != "" { // an absent field is reported by its tag
		report("sandbox.kind", "unknown-sandbox-kind", fmt.Sprintf("%s is not a kind of sandbox", yamlnode.Quote(s.Kind)), yamlnode.DidYouMean(s.Kind, "kinds", sandboxKinds()))
	}
	if (s.Component == "") == (len(s.Given) == 0) {
		report("sandbox", "invalid-sandbox", "a sandbox has either a component that creates it, or outputs that are given", "Write created_by: COMPONENT, or given: with the outputs of a sandbox that exists already.")
	}
	if len(s.Given) > maxGiven {
		report("sandbox.given", "invalid-sandbox", fmt.Sprintf("the sandbox has %d outputs, %d are allowed", len(s.Given), maxGiven), "")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Given)) {
		for _, ref := range s.Given[name].References() {
			place := "sandbox.given." + name + "|" + ref.String()
			if ref.Namespace == Components || ref.Namespace == Sandboxes {
				report(place, "sandbox-needs-component", fmt.Sprintf("%s refers to a component, and all components come after the sandbox", ref.show()), "Use inputs and facts of the install.")
				continue
			}
			checkReference(report, place, Component{}, ref, scopeNames{inputs: inputs})
		}
	}
	if s.Component != "" {
		checkGround(report, a, edges)
	}
	checkSandboxRunner(report, a, inputs, edges)
}

// checkGround checks the component that creates the sandbox.
func checkGround(report reporter, a *App, edges map[string]map[string]string) {
	name := a.Sandbox.Component
	c, ok := a.Component(name)
	if !ok {
		report("sandbox.created_by", "unknown-reference", fmt.Sprintf("there is no component %s", yamlnode.Quote(name)), yamlnode.DidYouMean(name, "components", slices.Collect(maps.Keys(edges))))
		return
	}
	if t, known := component.Of(c.Type); known && !t.Module {
		report("sandbox.created_by", "invalid-sandbox", fmt.Sprintf("the component %s is of type %s and cannot create a sandbox", yamlnode.Quote(name), c.Type), "A sandbox is created by a component of type terraform.")
	}
	if c.Enabled != "" {
		report("components."+name+".enabled", "invalid-sandbox", fmt.Sprintf("the component %s creates the sandbox and cannot be switched off", yamlnode.Quote(name)), "Remove the field enabled. For installs on a sandbox that exists already, publish an app whose sandbox is given.")
	}
	for _, need := range slices.Sorted(maps.Keys(edges[name])) {
		report(edges[name][need], "sandbox-needs-component", fmt.Sprintf("the component %s creates the sandbox and cannot need %s, which comes after it", yamlnode.Quote(name), yamlnode.Quote(need)), "")
		delete(edges[name], need)
	}
	for other, needs := range edges {
		if _, isComponent := a.Component(other); isComponent && other != name && needs[name] == "" {
			needs[name] = "components." + other
		}
	}
}

// checkRunnersFit reports each declared kind of runner that cannot run on the sandbox.
func checkRunnersFit(report reporter, a *App) {
	on := a.sandboxKind()
	if a.Runner == nil || !slices.Contains(runnerspec.SandboxKinds(), on) {
		return
	}
	for i, kind := range a.Runner.Kinds {
		if f := runnerspec.FitOf(runnerspec.Kind(kind), on); !f.OK && slices.Contains(runnerKinds(), kind) {
			report(fmt.Sprintf("runner.kinds.%d", i+1), "runner-not-on-sandbox", fmt.Sprintf("a runner of kind %s cannot run on a sandbox of kind %s: %s", kind, on, f.Why), fmt.Sprintf("These kinds can: %s.", strings.Join(kindsOn(on), ", ")))
		}
	}
}

// lowerSandbox replaces the references to outputs of the sandbox: by references to outputs of the component that creates it,
// or by the given values. So nothing else needs to know the sandbox, and an app has one canonical form.
func (r *reader) lowerSandbox() {
	for i := range r.app.Components {
		c := &r.app.Components[i]
		where := "components." + c.Name
		r.lowerValues(c.Vars, where+".vars.")
		r.lowerValues(c.Env, where+"."+EnvPrefix)
		r.lowerValues(c.Options, where+"."+OptionPrefix)
	}
	for i := range r.app.Actions {
		a := &r.app.Actions[i]
		r.lowerValues(a.Vars, "actions."+a.Name+".vars.")
	}
	if s := r.app.sandboxRunner(); s != nil {
		r.lowerValues(s.Configuration, sandboxConfiguration)
		r.lowerValues(s.Trust, sandboxTrust)
	}
}

// lowerValues replaces the references in the values, whose paths begin with prefix.
func (r *reader) lowerValues(values map[string]Value, prefix string) {
	for name, v := range values {
		if !slices.ContainsFunc(v.References(), func(ref Reference) bool { return ref.Namespace == Sandboxes }) {
			continue
		}
		where := prefix + name
		values[name] = v.replace(func(ref Reference) any {
			if ref.Namespace != Sandboxes {
				return ref
			}
			return r.lowerReference(where, ref)
		}, func(ref Reference, got any) {
			r.report(where+"|"+ref.String(), "not-a-scalar", fmt.Sprintf("%s is %s, which cannot be part of a text", ref.show(), yamlnode.Describe(got)), "Write the reference as the whole value, and build the text in the module.")
		})
	}
}

// lowerReference returns what replaces a reference to an output of the sandbox in the value at the path where: a tree of a
// Value. If the output does not exist, it reports that and returns the reference.
func (r *reader) lowerReference(where string, ref Reference) any {
	place := where + "|" + ref.String()
	s := r.app.Sandbox
	if s == nil {
		r.report(place, "unknown-reference", fmt.Sprintf("%s refers to a sandbox, and the app has none", ref.show()), "Declare it under sandbox.")
		return ref
	}
	if s.Component != "" {
		out := Reference{Namespace: Components, Name: s.Component, Output: ref.Output, Path: ref.Path}
		r.Put(where+"|"+out.String(), r.Node(place))
		return out
	}
	given, ok := s.Given[ref.Output]
	if !ok {
		r.report(place, "unknown-reference", fmt.Sprintf("%s refers to an output that the sandbox does not have", ref.show()), yamlnode.DidYouMean(ref.Output, "outputs", slices.Collect(maps.Keys(s.Given))))
		return ref
	}
	tree, ok := given.at(ref.Path)
	if !ok {
		r.report(place, "wrong-type", fmt.Sprintf("%s has a path that the given output does not have", ref.show()), "")
		return ref
	}
	for _, inner := range (Value{tree}).References() {
		r.Put(where+"|"+inner.String(), r.Node(place))
	}
	return tree
}

// at returns the part of the value at the path, as a tree. In a reference, the rest of the path is added to the reference.
func (v Value) at(path []string) (tree any, ok bool) {
	tree = v.tree
	for i, step := range path {
		switch node := tree.(type) {
		case map[string]any:
			if tree, ok = node[step]; !ok {
				return nil, false
			}
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(node) {
				return nil, false
			}
			tree = node[n]
		case template:
			ref, whole := node[0].(Reference)
			if !whole || len(node) > 1 {
				return nil, false
			}
			ref.Path = slices.Concat(ref.Path, path[i:])
			return template{ref}, true
		default:
			return nil, false
		}
	}
	return tree, true
}

// replace returns a copy of v in which f replaces each reference: by a reference, or by the tree of a Value. A tree that is
// no scalar cannot be part of a text: replace then calls wrong and keeps the reference.
func (v Value) replace(f func(Reference) any, wrong func(ref Reference, got any)) Value {
	tree, err := yamlnode.Transform(v.tree, func(leaf any) (any, error) {
		t, ok := leaf.(template)
		if !ok {
			return leaf, nil
		}
		var out template
		for _, part := range t {
			ref, ok := part.(Reference)
			if !ok {
				out = append(out, part)
				continue
			}
			switch got := f(ref).(type) {
			case Reference:
				out = append(out, got)
			case template:
				out = append(out, got...)
			case string:
				if len(t) == 1 {
					return got, nil
				}
				out = append(out, got)
			case json.Number:
				if len(t) == 1 {
					return got, nil
				}
				out = append(out, got.String())
			case bool:
				if len(t) == 1 {
					return got, nil
				}
				out = append(out, strconv.FormatBool(got))
			default:
				if len(t) == 1 {
					return got, nil
				}
				wrong(ref, got)
				out = append(out, ref)
			}
		}
		return out.joined(), nil
	})
	if err != nil { // the value became too deep
		return v
	}
	return Value{tree}
}

// joined returns the template with adjacent texts as one text, or a plain text if it holds no reference.
func (t template) joined() any {
	var out template
	for _, part := range t {
		text, isText := part.(string)
		if last := len(out) - 1; isText && last >= 0 {
			if before, ok := out[last].(string); ok {
				out[last] = before + text
				continue
			}
		}
		out = append(out, part)
	}
	if len(out) == 1 {
		if text, ok := out[0].(string); ok {
			return text
		}
	}
	return out
}
