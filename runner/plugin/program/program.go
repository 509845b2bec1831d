// Package program is the plugin for component types whose plugin is a program of its own: a file of the component's source, or a
// program beside the runner's. It starts the program once for each operation and speaks package pluginprotocol with it. The program
// is started as the executable of a script is: in a process group of its own, confined to the job's workspace.
//
// The plugin does not trust the program. It masks the change set again, decides on the end of the process and not on the
// program's statement alone, and gives an apply only the plan that was approved: the saved plan names the component and the source
// for which it was made.
//
// A workspace holds:
//
//	src/         the component's source
//	home/, tmp/  the program's home and temporary folders
//	plan         the saved plan
//	tool.pid     the program's process number
package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Config is the operator's settings.
type Config struct {
	Folder  string   // absolute path of the folder with the programs that belong to the runner
	PassEnv []string // names of variables that the program gets from Environ
	Environ []string // "name=value"
	// OpenPlans opens the store of saved plans in the storage that spec.State names. The caller calls close afterwards.
	OpenPlans func(ctx context.Context, spec plugin.Spec, env plugin.Env) (_ planstore.Store, close func(), err error)
}

// Plugin implements plugin.Plugin.
type Plugin struct {
	kind component.Type
	cfg  Config
	env  map[string]string
}

// New returns the plugin of a component type.
func New(kind component.Type, cfg Config) *Plugin {
	return &Plugin{kind: kind, cfg: cfg, env: plugin.Environ(cfg.Environ)}
}

// Operations lists plan, apply, plan-destroy and destroy.
func (*Plugin) Operations() []string {
	return []string{string(job.OpPlan), string(job.OpApply), string(job.OpPlanDestroy), string(job.OpDestroy)}
}

// Run executes the spec.
func (p *Plugin) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	op := pluginprotocol.Operation(spec.Operation)
	missing := ""
	switch {
	case spec.Artifact == nil:
		missing = "artifact"
	case p.kind.Dockerfile && env.Image == nil:
		missing = "image"
	case spec.State == nil:
		missing = "storage for its saved plan"
	case op.Mutates() && spec.Plan == nil:
		missing = "saved plan"
	}
	if missing != "" {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s names no %s", op, missing)
	}
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, fmt.Errorf("program: %w", err)
	}
	if err := toolprocess.MakeFolders(env.Workspace); err != nil {
		return plugin.Result{}, err
	}
	plans, closePlans, err := p.cfg.OpenPlans(ctx, spec, env)
	if err != nil {
		return plugin.Result{}, err
	}
	defer closePlans()
	r := &run{p: p, spec: spec, env: env, op: op, plans: plans}
	switch {
	case op.Plans():
		return r.plan(ctx)
	case op.Mutates():
		return r.apply(ctx)
	}
	return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the plugin of type %s does not support the operation %q", p.kind.Name, op)
}

// run is one job of the plugin.
type run struct {
	p     *Plugin
	spec  plugin.Spec
	env   plugin.Env
	op    pluginprotocol.Operation
	plans planstore.Store
}

func (r *run) path(name string) string { return filepath.Join(r.env.Workspace, name) }

// planFile is the name of the saved plan in the workspace.
const planFile = "plan"

// plan runs the program, and saves the plan that it wrote.
func (r *run) plan(ctx context.Context) (plugin.Result, error) {
	source, err := r.fetch(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	c, err := r.converse(ctx, source)
	if err != nil {
		return c.result(), err
	}
	saved, err := r.readPlan()
	if err != nil {
		return c.result(), err
	}
	res := c.result()
	var judge func(digest string) error
	if r.env.Policy != nil {
		judge = func(digest string) error { return r.env.Policy.Planned(ctx, &c.changes, c.base, digest) }
	}
	digest, err := planstore.Save(ctx, r.plans, r.spec, r.env.Keys, saved, judge)
	if err != nil {
		return plugin.Result{}, err
	}
	res.Plan = plugin.Planned(digest, c.noOp, &c.changes, c.base)
	if c.noOp {
		res.Outputs = c.outputs // a plan without changes is never applied
	}
	return res, nil
}

// apply gives the program the approved plan.
func (r *run) apply(ctx context.Context) (plugin.Result, error) {
	saved, err := planstore.Approved(ctx, r.plans, r.spec, r.env.Keys)
	if err != nil {
		return plugin.Result{}, err
	}
	content, err := open(saved, r.spec)
	if err != nil {
		return plugin.Result{}, err
	}
	if r.env.Policy != nil {
		if err := r.env.Policy.Applies(ctx, nil, nil, r.spec.Plan.Digest); err != nil {
			return plugin.Result{}, err
		}
	}
	if err := os.WriteFile(r.path(planFile), content, 0o600); err != nil {
		return plugin.Result{}, fmt.Errorf("write the plan: %w", err)
	}
	source := ""
	if r.p.kind.Executable != "" {
		if source, err = r.fetch(ctx); err != nil {
			return plugin.Result{}, err
		}
	}
	c, err := r.converse(ctx, source)
	res := c.result()
	if err != nil {
		return res, err
	}
	r.plans.Applied(string(r.spec.Plan.Job))
	if r.op == pluginprotocol.Apply {
		res.Outputs = c.outputs
	}
	return res, nil
}

// fetch unpacks the source and returns the absolute path of the component's folder. The folder of a type whose artifact is
// an image is empty.
func (r *run) fetch(ctx context.Context) (string, error) {
	if err := os.Mkdir(r.path(workspace.Source), 0o700); err != nil {
		return "", fmt.Errorf("create the workspace: %w", err)
	}
	if r.p.kind.Dockerfile {
		return r.path(workspace.Source), nil // the artifact is an image, which the program gets by reference
	}
	root, err := os.OpenRoot(r.path(workspace.Source))
	if err != nil {
		return "", fmt.Errorf("create the workspace: %w", err)
	}
	defer root.Close()
	folder, err := r.env.Fetch(ctx, *r.spec.Artifact, root)
	if err != nil {
		return "", err
	}
	info, err := root.Stat(filepath.FromSlash(folder))
	if err == nil && !info.IsDir() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return "", &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Err: err,
			Message: fmt.Sprintf("the artifact names %q as its component's folder, but has no such folder", folder)}
	}
	if name := r.p.kind.Executable; name != "" {
		if info, err := root.Stat(filepath.Join(folder, name)); err != nil || !isProgram(info) {
			return "", &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Err: err, Message: fmt.Sprintf("the component's source has no executable file %q", name)}
		}
	}
	return filepath.Join(root.Name(), filepath.FromSlash(folder)), nil
}

func isProgram(info fs.FileInfo) bool { return info.Mode().IsRegular() && info.Mode()&0o100 != 0 }

// locate returns the program, the folder in which it runs, and what a confined program must be able to read besides the workspace.
func (r *run) locate(source string) (path, dir string, readable []string, err error) {
	if name := r.p.kind.Executable; name != "" {
		return "./" + name, source, nil, nil
	}
	path = filepath.Join(r.p.cfg.Folder, r.p.kind.Program)
	if info, err := os.Stat(path); err != nil || !isProgram(info) {
		if err == nil {
			err = errors.New("it is no executable file")
		}
		return "", "", nil, &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("components of type %s need the program %s, which this runner does not have: %v. Nothing was started. Install the runner's plugins of the same version, or set $FAIRLEAD_PLUGINS to the folder that holds them",
				r.p.kind.Name, path, err)}
	}
	return path, r.env.Workspace, []string{r.p.cfg.Folder}, nil
}
