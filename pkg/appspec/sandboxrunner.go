package appspec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// SandboxRunner is a runner inside the sandbox. The install's runner deploys it, as a component. It then runs the jobs of all
// components that it does not need itself.
type SandboxRunner struct {
	DeployedBy string `json:"deployed_by" must:"true" alias:"component chart" doc:"The component that installs the runner in the sandbox, of type helm or manifest."`
	// Configuration is the runner's file: the fields of runnerspec.Spec, with references.
	Configuration map[string]Value `json:"configuration" must:"true" check:"configuration" alias:"config file" doc:"The fields of the runner's file, with references to outputs of the sandbox, inputs and facts of the install."`
	// Trust is whose tokens open sessions of the runner: the fields of a trust's file, with references.
	Trust map[string]Value `json:"trust" must:"true" check:"trust" alias:"trusts identity" doc:"The fields of the runner's trust: issuer, audience and claims, with references as in configuration."`
}

// The prefixes of the paths of a sandbox runner's values.
const (
	sandboxConfiguration = "sandbox.runner.configuration."
	sandboxTrust         = "sandbox.runner.trust."
)

// sandboxRunner returns the runner inside the sandbox; nil: there is none.
func (a *App) sandboxRunner() *SandboxRunner {
	if a.Sandbox == nil {
		return nil
	}
	return a.Sandbox.Runner
}

// Kind returns the kind of the runner; "" if it is not a text.
func (s *SandboxRunner) Kind() runnerspec.Kind {
	fields, _ := s.Configuration["runner_configuration"].tree.(map[string]any)
	kind, _ := fields["type"].(string)
	return runnerspec.Kind(kind)
}

// Part returns the runner as a component without a source, so that its values can be resolved as those of a component.
func (s *SandboxRunner) Part() Component {
	vars := map[string]Value{}
	for name, v := range s.Configuration {
		vars["configuration."+name] = v
	}
	for name, v := range s.Trust {
		vars["trust."+name] = v
	}
	return Component{Name: s.DeployedBy, Vars: vars}
}

// InSandbox reports whether the jobs of a part, a component or an action, run on the runner inside the sandbox. Those of the
// component that creates the sandbox, of the one that deploys the runner, and of all that this one needs do not: the runner
// does not exist before them. Neither do those of actions around the operations of such components.
func (a *App) InSandbox(part string) bool {
	r := a.sandboxRunner()
	if r == nil {
		return false
	}
	before := a.needed(r.DeployedBy)
	if act, ok := a.action(part); ok {
		return !slices.ContainsFunc(slices.Concat(act.Before, act.After), func(item string) bool {
			name, _ := Hook(item)
			return before[name]
		})
	}
	return !before[part]
}

// action returns the action whose part has the name.
func (a *App) action(part string) (Action, bool) {
	i := slices.IndexFunc(a.Actions, func(act Action) bool { return ActionPrefix+act.Name == part })
	if i < 0 {
		return Action{}, false
	}
	return a.Actions[i], true
}

// needed returns the component and all components that it needs, directly or not.
func (a *App) needed(name string) map[string]bool {
	all := map[string]bool{}
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		c, ok := a.Component(todo[0])
		if !ok || all[c.Name] {
			continue
		}
		all[c.Name] = true
		todo = append(todo, c.DependsOn...)
		for _, v := range c.Values() {
			for _, ref := range v.References() {
				if ref.Namespace == Components {
					todo = append(todo, ref.Name)
				}
			}
		}
	}
	if ground := a.ground(); ground != "" {
		all[ground] = true
	}
	return all
}

// checkSandboxRunner reports the problems of the runner inside the sandbox. It adds to edges that the components whose jobs it
// runs need the component that deploys it.
func checkSandboxRunner(report reporter, a *App, inputs map[string]Input, edges map[string]map[string]string) {
	r := a.sandboxRunner()
	if r == nil {
		return
	}
	const where = "sandbox.runner."
	c, ok := a.Component(r.DeployedBy)
	switch {
	case !ok:
		if r.DeployedBy != "" { // an absent field is reported by its tag
			report(where+"deployed_by", "unknown-reference", fmt.Sprintf("there is no component %s", yamlnode.Quote(r.DeployedBy)), yamlnode.DidYouMean(r.DeployedBy, "components", slices.Collect(maps.Keys(edges))))
		}
	case c.Type != component.Helm && c.Type != component.Manifest:
		report(where+"deployed_by", "invalid-sandbox", fmt.Sprintf("the component %s is of type %s and cannot install a runner in a cluster", yamlnode.Quote(c.Name), c.Type), "Use the chart of the runner: a component of type helm.")
	case c.Enabled != "":
		report("components."+c.Name+".enabled", "invalid-sandbox", fmt.Sprintf("the component %s deploys the runner of the other components and cannot be switched off", yamlnode.Quote(c.Name)), "Remove the field enabled.")
	}
	if kind, on := r.Kind(), a.sandboxKind(); !slices.Contains(runnerspec.Kinds(), kind) {
		report(where+"configuration", "unknown-runner-kind", fmt.Sprintf("runner_configuration.type is %s, which is not a kind of runner", yamlnode.Quote(string(kind))), yamlnode.DidYouMean(string(kind), "kinds", runnerKinds()))
	} else if f := runnerspec.FitOf(kind, on); !f.OK && slices.Contains(runnerspec.SandboxKinds(), on) {
		report(where+"configuration", "runner-not-on-sandbox", fmt.Sprintf("a runner of kind %s cannot run on a sandbox of kind %s: %s", kind, on, f.Why), "")
	}
	r.checkValues(report, sandboxConfiguration, r.Configuration, a, inputs)
	r.checkValues(report, sandboxTrust, r.Trust, a, inputs)
	for other, needs := range edges {
		if _, isComponent := a.Component(other); isComponent && ok && a.InSandbox(other) && needs[c.Name] == "" {
			needs[c.Name] = "components." + other
		}
	}
}

// checkValues reports references that have no value when the runner is deployed, or that are secret.
func (s *SandboxRunner) checkValues(report reporter, prefix string, values map[string]Value, a *App, inputs map[string]Input) {
	names := scopeNames{inputs: inputs, components: map[string]bool{}}
	if ground := a.ground(); ground != "" {
		names.components[ground] = true
	}
	for name, v := range values {
		for _, ref := range v.References() {
			place := prefix + name + "|" + ref.String()
			if ref.Namespace == Components && ref.Name != a.ground() {
				report(place, "sandbox-needs-component", fmt.Sprintf("%s refers to a component, and the runner in the sandbox is made when only the sandbox exists", ref.show()), "Use outputs of the sandbox, inputs and facts of the install.")
				continue
			}
			checkReference(report, place, Component{}, ref, names)
			if ref.Namespace == Inputs && inputs[ref.Name].Sensitive {
				report(place, "invalid-sandbox", fmt.Sprintf("%s is sensitive, and the configuration of a runner is shown", ref.show()), "Give the secret to the component that deploys the runner.")
			}
		}
	}
}
