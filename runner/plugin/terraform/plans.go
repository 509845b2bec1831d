package terraform

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

// OpenPlans returns the store of saved plans in the storage that spec.State names, for a plugin whose components have no state.
// OpenTofu or Terraform stores them if the storage is in the customer's account: each backend authenticates in its own way. The
// store uses the folder tmp and folders slot-… of the workspace, until the caller calls close.
func (p *Plugin) OpenPlans(ctx context.Context, spec plugin.Spec, env plugin.Env) (_ planstore.Store, close func(), err error) {
	ref := *spec.State
	conf, err := backendOf(ref, forState)
	if err != nil {
		return nil, nil, err
	}
	switch ref.Storage {
	case storageLocal:
		return planstore.OnDisk(p.cfg.Data), func() {}, nil
	case storageHTTP:
		return planstore.InPlane(env.Control, string(spec.Job)), func() {}, nil
	}
	j := &job{p: p, spec: spec, env: env}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if j.tool, err = p.findTool(ctx); err != nil {
		return nil, nil, err
	}
	if j.toolProgram, err = j.tool.makeLauncher(env.Workspace); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(j.path("tmp"), 0o700); err != nil {
		return nil, nil, fmt.Errorf("create the workspace: %w", err)
	}
	s, err := j.external(ref, conf)
	if err != nil {
		return nil, nil, err
	}
	return s, j.close, nil
}

// external returns the storage of a state in the customer's account.
func (j *job) external(ref events.StateRef, conf backend) (*external, error) {
	plans, err := backendOf(ref, forPlan)
	return &external{job: j, conf: conf, plans: plans}, err
}
