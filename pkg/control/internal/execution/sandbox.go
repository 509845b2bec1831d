package execution

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// placeOf returns the install as the jobs of the command's node see it: in the sandbox, or outside of it. Before the plan of
// the component that deploys the runner in the sandbox, it makes that runner. The error is an *unmadeRunner if the node needs that
// runner before a deployment has made it.
func placeOf(tx *kernel.Tx, inst *store.Stored[store.Install], d store.Deployment, cmd deployment.Command) (store.Install, error) {
	n := d.Node(cmd.Component)
	if n.Destroy {
		k, err := tx.Component(inst.V.ID, cmd.Component)
		return inst.V.In(k.V.InSandbox), err
	}
	version := d.Version
	if n.Run != nil {
		version = n.Run.Version
	}
	v, err := catalog.ReadVersion(tx, version)
	if err != nil {
		return inst.V, err
	}
	if cmd.Operation == job.OpPlan && !d.PlanOnly {
		if err := catalog.KeepSandboxRunner(tx, inst, v, cmd.Component); err != nil {
			return inst.V, err
		}
	}
	sandbox, err := catalog.InSandbox(tx, inst.V, v, cmd.Component)
	if err != nil || !sandbox {
		return inst.V.In(sandbox), err
	}
	made := inst.V.SandboxRunner != nil
	if made && d.PlanOnly && v.Spec.Sandbox != nil && v.Spec.Sandbox.Runner != nil {
		// An earlier deployment may have made the runner, and failed before its agent was there. This one deploys no agent, so a
		// job of the runner would wait forever.
		by, err := store.Optional(tx.Component(inst.V.ID, v.Spec.Sandbox.Runner.DeployedBy))
		if err != nil {
			return inst.V, err
		}
		made = by.V.State == store.Present
	}
	if !made {
		err = &unmadeRunner{by: v.Spec.Sandbox.Runner.DeployedBy}
	}
	return inst.V.In(sandbox), err
}

// unmadeRunner is the error of a job in the sandbox whose runner, or its agent, no deployment has made. A plan makes none.
type unmadeRunner struct{ by string } // the component that deploys the runner

func (e *unmadeRunner) Error() string {
	return "not planned: needs the runner in the sandbox, which component " + e.by + " deploys"
}

// runnerOf returns the runner of the node's jobs. ok is false if the deployment itself makes it.
func runnerOf(tx *kernel.Tx, inst store.Install, d deployment.Deployment, n deployment.Node) (r store.Stored[store.Runner], ok bool, err error) {
	v, err := catalog.ReadVersion(tx, d.Version)
	if err != nil {
		return r, false, err
	}
	sandbox, err := catalog.InSandbox(tx, inst, v, n.Component)
	if err != nil || sandbox && inst.SandboxRunner == nil {
		return r, false, err
	}
	r, err = runners.ServingRunner(tx, inst.In(sandbox))
	return r, err == nil, err
}

// keptInSandbox refuses a version that runs a component outside of the sandbox which the runner in the sandbox has made: the
// version would destroy that runner before, or without, the component.
func keptInSandbox(inst store.Install, was store.Component, v catalog.Version) error {
	if !was.InSandbox || v.Spec.InSandbox(was.Name) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeSandboxRunnerMissing,
		Message: fmt.Sprintf("component %s of install %s was made by the runner in its sandbox, and version %s runs it outside", was.Name, inst.Name, v.ID),
		Hint:    "Keep sandbox.runner as it was. Or first deploy a version without the component, which destroys it.",
		Details: map[string]string{"component": was.Name}}
}

// afterHooksInSandbox lets what is destroyed outside of the sandbox wait for the actions that run in the sandbox after a destroy
// there. Otherwise the runner of these actions could be destroyed before them.
func afterHooksInSandbox(nodes []deployment.Node, records map[string]store.Component, v catalog.Version) {
	for i, h := range nodes {
		if h.Run == nil || h.Run.Trigger != deployment.After || !v.Spec.InSandbox(h.Component) {
			continue
		}
		for j := range nodes[i+1:] {
			n := &nodes[i+1+j]
			waits := slices.ContainsFunc(h.Run.Around, func(name string) bool { return slices.Contains(n.Needs, name) })
			if n.Run == nil && n.Destroy && !records[n.Component].InSandbox && waits {
				n.Needs = append(slices.Clone(n.Needs), h.Component)
			}
		}
	}
}
