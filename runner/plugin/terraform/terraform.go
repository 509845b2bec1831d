// Package terraform is the plugin for OpenTofu and Terraform modules. It runs the tool through terraform-exec, in a
// workspace that no other attempt uses. An apply runs only the approved plan.
//
// Each start of the tool takes about 40 ms before it does anything, as long as planning a small module. So a job starts the
// tool as rarely as possible:
//
//   - It asks for the tool's version once per tool, not per job.
//   - It skips `init` for modules that need nothing installed. For other modules it runs `init` once for plan and apply.
//   - It reads outputs from the state, without the tool.
//   - It has the tool describe a plan only if the plan has changes: the tool starts each provider for that.
//
// A workspace holds:
//
//	src/       the component's source; the tool runs in it, or in the folder
//	           of the component that the artifact names
//	folder     the path of that folder, if it is not src itself
//	modules/   the modules of other places that the artifact ships
//	state/     link to the state's folder, in local storage
//	tmp/       the tool's temporary files
//	vars.json  the input variables, for all commands
//	slot-…/    folders without a module, in which the tool reads and writes other states and saved plans, and downloads providers
//	mirror/    archives of providers, from the customer's mirror, for init
//	tool.tfrc  the tool's configuration that uses mirror/
//	plan       the saved plan
//	reserve    space for the state, in local storage
//	launcher   the script that terraform-exec starts in place of the tool
//	report.json  the tool's JSON report, if it supports one
//	tool.pid   process number of the running tool
package terraform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
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

// Config is the operator's settings.
type Config struct {
	Data        string                   // the runner's data folder: it has local states, saved plans and facts about tools
	Work        string                   // parent of the folder work, in which jobs run; "": Data
	Tool        string                   // path of the tool; "": tofu, else terraform, on PATH
	PluginCache string                   // folder of providers, read-only; "": plugin-cache in Data
	Providers   []providers.Package      // the verified providers in PluginCache; of providers with the same name, the newest comes first
	Mirror      providers.MirrorLocation // the customer's mirror of providers; the zero value: none
	Buckets     Buckets                  // nil: jobs that need a bucket fail before they change anything
	Programs    string                   // folder with the programs that belong to the runner, of which one reads the mirror of a closed app
	Install     string                   // folder of this job alone, into which `init` installs providers; "": a folder of the workspace
	CLIConfig   string                   // the tool's own configuration file; "": none
	PassEnv     []string                 // names of variables that tools get from Environ
	Environ     []string                 // "name=value"
	CA          string                   // the CA of the control plane's certificate, in PEM; "": the machine's CAs
}

// Plugin implements plugin.Plugin.
type Plugin struct {
	cfg Config
	env map[string]string

	mu   sync.Mutex
	tool *tool // nil until it was found
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

// Run executes the spec.
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
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s has %v", spec.Operation, err)
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
	return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the terraform plugin does not support the operation %q", spec.Operation)
}

// job is one job of the plugin.
type job struct {
	p            *Plugin
	spec         plugin.Spec
	env          plugin.Env
	tool         *tool
	toolProgram  string // the program that terraform-exec starts: the launcher or the tool
	root         string // folder of the artifact
	src          string // folder in which the tool runs: root, or a folder in it
	toWorkspace  string // the path from src to the workspace: "..", "../.." and so on
	state        storage
	run          *runner
	needsNothing bool   // the module needs no provider and no child module
	tmp          string // folder for temporary files outside the workspace; "": none

	shipped tfmodule.Shipped       // the modules of other places that the artifact ships
	placed  map[string]fs.FileInfo // their folders as installed modules, by key
	planned *bundle                // the plan that is applied; nil: none

	relays     []*relay
	vaults     []*vault
	otherPlace access // the storage that the tool used last; nil: the tool used the storage state last
}

// path returns the path of a file in the workspace.
func (j *job) path(name string) string { return filepath.Join(j.env.Workspace, name) }

// prepare fetches the module and creates the workspace.
func (p *Plugin) prepare(ctx context.Context, spec plugin.Spec, env plugin.Env) (_ *job, err error) {
	j := &job{p: p, spec: spec, env: env, root: filepath.Join(env.Workspace, workspace.Source)}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if j.tool, err = p.findTool(ctx); err != nil {
		return nil, err
	}
	if j.toolProgram, err = j.tool.makeLauncher(env.Workspace); err != nil {
		return nil, err
	}
	for _, dir := range []string{workspace.Source, "tmp"} {
		if err := os.Mkdir(j.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("create the workspace: %w", err)
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
	j.needsNothing = !needsInit(j.src)
	if err := j.writeBackend(src); err != nil {
		return nil, err
	}
	if j.run, err = j.newRunner(j.src, j.state, env.Log); err != nil {
		return nil, err
	}
	return j, nil
}

// fetch unpacks the artifact and opens the folder in it in which the tool runs.
func (j *job) fetch(ctx context.Context) (*os.Root, error) {
	root, err := os.OpenRoot(j.root)
	if err != nil {
		return nil, fmt.Errorf("create the workspace: %w", err)
	}
	defer root.Close()
	folder, err := j.env.Fetch(ctx, *j.spec.Artifact, root)
	if err != nil {
		return nil, err
	}
	if err := j.takeModules(); err != nil {
		return nil, err
	}
	j.src, j.toWorkspace = filepath.Join(j.root, filepath.FromSlash(folder)), ".."
	if folder != "." {
		j.toWorkspace += strings.Repeat("/..", 1+strings.Count(folder, "/"))
		// The agent reads this file to find a state that the tool could not save.
		if err := os.WriteFile(j.path(workspace.SourceFolder), []byte(folder), 0o600); err != nil {
			return nil, fmt.Errorf("create the workspace: %w", err)
		}
	}
	src, err := root.OpenRoot(folder)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Err: err,
			Message: fmt.Sprintf("the artifact names %q as its component's folder, but has no such folder", folder)}
	}
	return src, nil
}

func (j *job) close() {
	for _, r := range j.relays {
		r.close()
	}
	if j.run != nil {
		j.run.close()
	}
	if j.tmp != "" {
		workspace.RemoveTree(j.tmp)
	}
}

// salvage keeps a copy of a state that the tool could not save, and records it in the result. err is the failure of the
// apply. salvage returns err if there is no such state.
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
			Message: fmt.Sprintf("the tool could not save its state, and %s. Only the job's log lists the new resources: import them before you apply anything else; the tool reported: %s",
				serr, j.env.Mask(messageOf(err)))}
	case serr != nil:
		return &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: errors.Join(err, serr),
			Message: "the tool could not save its state, and the runner could not keep the tool's copy: " + serr.Error()}
	case kept != "":
		return &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: err,
			Message: fmt.Sprintf("the tool could not save its state; the runner keeps it in %s. Push it (`state push`) before you apply anything else; the tool reported: %s",
				kept, j.env.Mask(messageOf(err)))}
	}
	return err
}

// outputs converts the outputs of a state for the report.
func outputs(values map[string]outputValue) map[string]wire.FullOutput {
	out := make(map[string]wire.FullOutput, len(values))
	for name, v := range values {
		out[name] = wire.FullOutput{Value: v.Value, Sensitive: v.Sensitive}
	}
	return out
}
