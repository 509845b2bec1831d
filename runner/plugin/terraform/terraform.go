// Package terraform is the plugin for modules of OpenTofu and Terraform. It
// runs the tool through terraform-exec, in a workspace that no other attempt
// shares, and lets an apply carry out nothing but the plan that was approved.
//
// Every start of the tool costs some 40 ms before it does anything, as much as
// a small module's plan, so a job starts it as seldom as it can: the tool's
// version is asked once per tool, not per job; `init` is left out for modules
// that need nothing installed, and done once for the plan and the apply of all
// others; outputs are read from the state and not asked for; a plan is described by
// the tool, which starts each provider for that, if there is something in it.
//
// A workspace holds:
//
//	src/       the component's source; the tool runs in it, or in the folder below
//	           it that the artifact names as the component's
//	folder     the path of that folder, if it is not src itself
//	state/     link to the folder of the state, in local storage
//	tmp/       the tool's temporary files
//	vars.json  the input variables, for init, plan and apply alike
//	slot-…/    where the tool runs to read or write something else than the state
//	plan       the saved plan
//	reserve    space for the state, in local storage
//	launcher   what is started in the tool's place
//	report.json  what the tool reports to programs, if it can
//	tool.pid   process number of the tool at work
package terraform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Name is the plugin's name in a job spec.
const Name = "terraform"

// The operations.
const (
	opPlan        = "plan"
	opApply       = "apply"
	opPlanDestroy = "plan-destroy"
	opDestroy     = "destroy"
	opMigrate     = "migrate-state"
)

// Config is what the operator has set.
type Config struct {
	Data        string              // the runner's data folder: local state, plans, what is known of tools
	Work        string              // the folder in whose folder work jobs work; "": Data
	Tool        string              // path of the tool; "": tofu, else terraform, on PATH
	PluginCache string              // folder of providers, which is not written to; "": plugin-cache in Data
	Providers   []providers.Package // in it, each verified; the newer of two of a name comes first
	Install     string              // folder of this job alone, into which `init` installs providers; "": one of the workspace
	CLIConfig   string              // the tool's own configuration file; "": none
	PassEnv     []string            // names of variables that tools get from Environ
	Environ     []string            // "name=value"
	CA          string              // what the control plane's certificate is signed by, in PEM; "": what the machine trusts
}

// Plugin implements plugin.Plugin.
type Plugin struct {
	cfg Config
	env map[string]string

	mu   sync.Mutex
	tool *tool // set once it was found
}

// New returns the plugin.
func New(cfg Config) *Plugin {
	p := &Plugin{cfg: cfg, env: plugin.Environ(cfg.Environ)}
	p.cfg.Work = cmp.Or(cfg.Work, cfg.Data)
	if p.cfg.PluginCache == "" {
		p.cfg.PluginCache = filepath.Join(cfg.Data, "plugin-cache")
	}
	return p
}

// Operations lists plan, apply, plan-destroy, destroy and migrate-state.
func (*Plugin) Operations() []string {
	return []string{opPlan, opApply, opPlanDestroy, opDestroy, opMigrate}
}

// Run carries out the spec.
func (p *Plugin) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if spec.Operation == opMigrate {
		return p.migrate(ctx, spec, env)
	}
	var err error
	switch {
	case spec.Artifact == nil:
		err = errors.New("no artifact")
	case spec.State == nil:
		err = errors.New("no state storage")
	case (spec.Operation == opApply || spec.Operation == opDestroy) && spec.Plan == nil:
		err = errors.New("no saved plan")
	}
	if err != nil {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s names %v", spec.Operation, err)
	}
	j, err := p.prepare(ctx, spec, env)
	if err != nil {
		return plugin.Result{}, err
	}
	defer j.close()
	switch spec.Operation {
	case opPlan, opPlanDestroy:
		return j.plan(ctx)
	case opApply, opDestroy:
		return j.apply(ctx)
	}
	return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the terraform plugin does not know the operation %q", spec.Operation)
}

// job is one run of the plugin.
type job struct {
	p      *Plugin
	spec   plugin.Spec
	env    plugin.Env
	tool   *tool
	launch string // what terraform-exec starts: the launcher, or the tool
	root   string // of the artifact
	src    string // where the tool runs: root, or in it
	up     string // the way from src to the workspace: "..", "../.." and so on
	state  storage
	run    *runner
	bare   bool   // the module needs nothing installed
	tmp    string // folder of temporary files outside the workspace; "": there is none

	elsewhere reached // where the tool was at work last, if that is not state
}

func (j *job) path(name string) string { return filepath.Join(j.env.Workspace, name) }

// prepare fetches the module and lays the workspace out.
func (p *Plugin) prepare(ctx context.Context, spec plugin.Spec, env plugin.Env) (*job, error) {
	j := &job{p: p, spec: spec, env: env, root: filepath.Join(env.Workspace, workspace.Source)}
	var err error
	if j.tool, err = p.findTool(ctx); err != nil {
		return nil, err
	}
	if j.launch, err = j.tool.makeLauncher(env.Workspace); err != nil {
		return nil, err
	}
	for _, dir := range []string{workspace.Source, "tmp"} {
		if err := os.Mkdir(j.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("lay out the workspace: %w", err)
		}
	}
	src, err := j.fetch(ctx)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if j.state, err = p.openStorage(j, *spec.State, "state"); err != nil {
		return nil, err
	}
	if err := plugin.WriteVars(j.path(variables), spec.Vars); err != nil {
		return nil, err
	}
	j.bare = !needsInit(j.src)
	if err := j.writeBackend(src); err != nil {
		return nil, err
	}
	if j.run, err = j.newRunner(j.src, j.state, env.Log); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// fetch unpacks the artifact and opens the folder in it where the tool is to run.
func (j *job) fetch(ctx context.Context) (*os.Root, error) {
	root, err := os.OpenRoot(j.root)
	if err != nil {
		return nil, fmt.Errorf("lay out the workspace: %w", err)
	}
	defer root.Close()
	folder, err := j.env.Fetch(ctx, *j.spec.Artifact, root)
	if err != nil {
		return nil, err
	}
	j.src, j.up = filepath.Join(j.root, filepath.FromSlash(folder)), ".."
	if folder != "." {
		j.up += strings.Repeat("/..", 1+strings.Count(folder, "/"))
		// The agent reads it to find a state that the tool could not save.
		if err := os.WriteFile(j.path(workspace.SourceFolder), []byte(folder), 0o600); err != nil {
			return nil, fmt.Errorf("lay out the workspace: %w", err)
		}
	}
	src, err := root.OpenRoot(folder)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Err: err,
			Message: fmt.Sprintf("the artifact says that the component is in its folder %q, and has no such folder", folder)}
	}
	return src, nil
}

func (j *job) close() {
	if j.run != nil {
		j.run.close()
	}
	if j.tmp != "" {
		workspace.RemoveTree(j.tmp)
	}
}

// salvage keeps a state that the tool could not save, and says so in the result.
func (j *job) salvage(res *plugin.Result, err error) error {
	var kept string
	var serr error
	res.Salvaged, serr = workspace.Salvage(j.p.cfg.Work, j.env.Attempt)
	if res.Salvaged != nil {
		kept = filepath.Join(j.p.cfg.Work, filepath.FromSlash(res.Salvaged.Path))
	}
	switch {
	case errors.Is(serr, workspace.ErrNotWhole):
		return &plugin.Error{Reason: fairlead.ReasonStateIncomplete, Err: errors.Join(err, serr),
			Message: fmt.Sprintf("the tool could not save its state, and %s. What it made is in the job's log alone: import that before anything else is applied; what the tool said: %s",
				serr, j.env.Mask(messageOf(err)))}
	case serr != nil:
		return &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: errors.Join(err, serr),
			Message: "the tool could not save its state, and the runner could not keep the copy that it left: " + serr.Error()}
	case kept != "":
		return &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: err,
			Message: fmt.Sprintf("the tool could not save its state; the runner keeps it in %s. Push it (`state push`) before anything else is applied; what the tool said: %s",
				kept, j.env.Mask(messageOf(err)))}
	}
	return err
}

func outputs(values map[string]outputValue) map[string]wire.FullOutput {
	out := make(map[string]wire.FullOutput, len(values))
	for name, v := range values {
		out[name] = wire.FullOutput{Value: v.Value, Sensitive: v.Sensitive}
	}
	return out
}
