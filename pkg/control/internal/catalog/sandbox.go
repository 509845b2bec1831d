package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// InSandbox reports whether the jobs of a part of the version run on the runner in the sandbox of the install. A component that
// exists stays with the runner that made it, because that runner's storage has its state.
func InSandbox(tx *kernel.Tx, inst store.Install, v Version, part string) (bool, error) {
	if !strings.HasPrefix(part, appspec.ActionPrefix) {
		k, err := tx.Component(inst.ID, part)
		if err != nil || k.Version != 0 && k.V.State != store.Absent {
			return k.V.InSandbox, err
		}
	}
	return v.Spec.InSandbox(part), nil
}

// RecordAgents records on the install what the agent in its sandbox must know, if the version declares one.
func RecordAgents(tx *kernel.Tx, inst *store.Install, v Version) error {
	s := v.Spec.Sandbox
	if s == nil || s.Runner == nil || tx.AgentURL == "" {
		return nil
	}
	facts, err := tx.Facts(tx.Ctx)
	inst.Agents = new(store.AgentFacts(facts))
	return err
}

// KeepSandboxRunner makes or changes the runner in the sandbox of the install, if the version declares one and the component
// deploys it. A value that does not exist yet is an *appspec.UnresolvedError.
func KeepSandboxRunner(tx *kernel.Tx, inst *store.Stored[store.Install], v Version, component string) error {
	if v.Spec.Sandbox == nil || v.Spec.Sandbox.Runner == nil || v.Spec.Sandbox.Runner.DeployedBy != component {
		return nil
	}
	part := v.Spec.Sandbox.Runner.Part()
	scope, err := scopeOf(tx, inst.V, v, part, toCheck)
	if err != nil {
		return err
	}
	fields := map[string]map[string]any{"configuration": {}, "trust": {}}
	for path, value := range part.Vars {
		r, err := scope.outline(value)
		if err != nil {
			return err
		}
		if r.Sensitive {
			return fairlead.Invalid(fairlead.CodeInvalidRunner, "sandbox.runner.%s has a sensitive value, and the configuration of a runner is shown", path)
		}
		group, name, _ := strings.Cut(path, ".")
		fields[group][name] = r.Value
	}
	file, err := json.Marshal(fields["configuration"])
	if err != nil {
		return fmt.Errorf("encode the configuration of the runner in the sandbox of install %s: %w", inst.V.Name, err)
	}
	raw, err := json.Marshal(fields["trust"])
	if err != nil {
		return fmt.Errorf("encode the trust of the runner in the sandbox of install %s: %w", inst.V.Name, err)
	}
	trust, err := runners.ParseTrust(raw, scope.Install["control_plane"])
	if err != nil {
		return err
	}
	return runners.KeepSandboxRunner(tx, inst, runners.SandboxRunner{Component: component, File: file, Trust: trust})
}

// Sandbox is what an install stands on.
type Sandbox struct {
	Kind      string
	CreatedBy string // the component that creates it; "": it exists already
	Runner    string // name of the runner in it; "": none, or it is not made yet
	Warning   string // why the install's runner should not run its jobs although it can; ""
}

// Sandbox returns what the install stands on, by the newest version of its app; nil: the app declares no sandbox.
func (cat *Catalog) Sandbox(ctx context.Context, org fairlead.OrgID, install string) (*Sandbox, error) {
	tx := cat.Reading(ctx)
	in, app, err := installAndApp(tx, org, install)
	if err != nil {
		return nil, err
	}
	spec := app.Newest.Spec
	if spec.Sandbox == nil {
		return nil, nil
	}
	out := &Sandbox{Kind: spec.Sandbox.Kind, CreatedBy: spec.Sandbox.Component}
	if b := in.V.SandboxRunner; b != nil {
		out.Runner = b.Name
	}
	r, ok, err := runners.WouldServe(tx, in.V)
	if ok {
		out.Warning = spec.RunnerWarning(runnerspec.Kind(cmp.Or(r.Kind, string(runnerspec.Local))))
	}
	return out, err
}
