// Package script is the plugin for components and actions that are the vendor's executable. For an apply it starts
// `run apply` in the component's folder, for a destroy `run destroy`, and for a run of an action `run run`. Other operations do not start the executable. A plan runs no vendor code: it
// shows what would run, and whether the executable or its variables have changed since the last apply.
//
// A plan depends only on the job spec, so the plugin saves no plan. An apply computes the plan again, and starts the
// executable only if the plan has the approved digest.
//
// A workspace holds:
//
//	src/          the component's source; the executable runs in it, or in the folder
//	              of the component that the artifact names
//	home/, tmp/   the executable's home and temporary folders
//	vars.json     its variables
//	outputs.json  its outputs; the executable writes them
//	tool.pid      its process number
package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Name is the plugin's name in a job spec.
const Name = "script"

// Config is the operator's settings.
type Config struct {
	PassEnv []string // names of variables that the executable gets from Environ
	Environ []string // "name=value"
	Image   []string // the variables of the image in which the step runs, if that is not the runner's; the executable gets them
}

// Plugin implements plugin.Plugin.
type Plugin struct {
	passEnv []string
	env     map[string]string
	image   map[string]string
	file    string // the name of the executable
}

// New returns the plugin.
func New(cfg Config) *Plugin {
	t, _ := component.Of(Name)
	return &Plugin{passEnv: cfg.PassEnv, env: plugin.Environ(cfg.Environ), image: plugin.Environ(cfg.Image), file: t.Executable}
}

// Operations lists plan, apply, plan-destroy, destroy, plan-run and run.
func (*Plugin) Operations() []string {
	var names []string
	for _, op := range job.Operations() {
		if _, ok := arguments[op]; ok {
			names = append(names, string(op))
		}
	}
	return names
}

// arguments are the arguments with which the executable is started, by the operation that plans or makes the start.
var arguments = map[job.Operation]string{
	job.OpPlan: "apply", job.OpApply: "apply", job.OpPlanDestroy: "destroy", job.OpDestroy: "destroy", job.OpPlanRun: "run", job.OpRun: "run",
}

// Run executes the spec.
func (p *Plugin) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	op := job.Operation(spec.Operation)
	switch {
	case spec.Artifact == nil:
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s names no artifact", op)
	case op.Mutates() && spec.Plan == nil:
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this %s names no plan", op)
	case ctx.Err() != nil:
		return plugin.Result{}, fmt.Errorf("script: %w", ctx.Err())
	}
	r, err := p.prepare(ctx, spec, env)
	if err != nil {
		return plugin.Result{}, err
	}
	if op.Plans() {
		return r.describe(ctx)
	}
	return r.execute(ctx)
}

// run is one job of the plugin.
type run struct {
	spec     plugin.Spec
	env      plugin.Env
	file     string // the name of the executable
	folder   string // folder of the executable, and its working directory
	argument string // "apply", "destroy" or "run"
	environ  map[string]string
}

// Names of the files and folders in a workspace.
const (
	varsFile    = "vars.json"
	outputsFile = "outputs.json"
)

func (r *run) path(name string) string { return filepath.Join(r.env.Workspace, name) }

// prepare fetches the source and creates the workspace's folders. It checks that the executable exists, and does not
// start it.
func (p *Plugin) prepare(ctx context.Context, spec plugin.Spec, env plugin.Env) (*run, error) {
	r := &run{spec: spec, env: env, file: p.file, argument: arguments[job.Operation(spec.Operation)]}
	if err := toolprocess.MakeFolders(env.Workspace); err != nil {
		return nil, err
	}
	if err := os.Mkdir(r.path(workspace.Source), 0o700); err != nil {
		return nil, fmt.Errorf("create the workspace: %w", err)
	}
	root, err := os.OpenRoot(r.path(workspace.Source))
	if err != nil {
		return nil, fmt.Errorf("create the workspace: %w", err)
	}
	defer root.Close()
	folder, err := env.Fetch(ctx, *spec.Artifact, root)
	if err != nil {
		return nil, err
	}
	r.folder = filepath.Join(root.Name(), filepath.FromSlash(folder))
	if info, err := root.Stat(filepath.Join(folder, p.file)); err != nil || !info.Mode().IsRegular() || info.Mode()&0o100 == 0 {
		return nil, &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Err: err, Message: fmt.Sprintf("the component's source has no executable file %q", p.file)}
	}
	r.environ = p.environment(spec, env)
	return r, nil
}

// Limits of the variables in an environment, in bytes. The system allows 128 KiB for one variable and 2 MiB for all. Larger
// variables are only in the file vars.json.
const (
	maxVariable  = 64 << 10
	maxVariables = 1 << 20
)

// environment returns the executable's whole environment.
func (p *Plugin) environment(spec plugin.Spec, env plugin.Env) map[string]string {
	out := maps.Clone(p.image)
	maps.Copy(out, toolprocess.Environment(p.env, p.passEnv, spec, env.Workspace))
	out["FAIRLEAD_VARS"] = filepath.Join(env.Workspace, varsFile)
	out["FAIRLEAD_OUTPUTS"] = filepath.Join(env.Workspace, outputsFile)
	left := maxVariables
	for _, name := range slices.Sorted(maps.Keys(spec.Vars)) {
		text := string(spec.Vars[name].Value)
		var s *string
		if json.Unmarshal(spec.Vars[name].Value, &s) == nil && s != nil {
			text = *s
		}
		if len(text) > maxVariable || len(text) > left || strings.ContainsRune(text, 0) || text == "null" && s == nil {
			continue
		}
		out["FAIRLEAD_VAR_"+name] = text
		left -= len(text)
	}
	env.Complete(out)
	return out
}

// plan is the plan that a person approves by its digest. It has the names of secrets, but not the digests of their values,
// because a person could guess a short secret from its digest.
type plan struct {
	Command     string            `json:"command"`
	Arguments   []string          `json:"arguments"`
	Environment []string          `json:"environment"`     // names
	Source      string            `json:"source"`          // digest of the artifact
	Image       string            `json:"image,omitempty"` // in which the command runs, by digest; "": that of the runner
	Vars        map[string]string `json:"vars"`            // digest of each value, or "(sensitive)"
}

// plan returns the plan of this run and its encoding. The plan depends only on the spec, so that all agents of a runner
// compute the same plan.
func (r *run) plan() (p plan, encoded []byte, err error) {
	p = plan{Command: "./" + r.file, Arguments: []string{r.argument}, Source: r.spec.Artifact.Digest, Image: r.spec.Image, Vars: map[string]string{},
		Environment: slices.Concat(slices.Collect(maps.Keys(r.spec.Env)), []string{"FAIRLEAD_OUTPUTS", "FAIRLEAD_VARS", "HOME", "PATH", "TMPDIR"})}
	for name, v := range r.spec.Vars {
		if p.Vars[name] = plugin.Digest(v.Value); v.Sensitive {
			p.Vars[name] = changeset.Sensitive
		}
		p.Environment = append(p.Environment, "FAIRLEAD_VAR_"+name)
	}
	slices.Sort(p.Environment)
	p.Environment = slices.Compact(p.Environment)
	encoded, err = json.Marshal(p) // json writes maps in the order of their keys
	if err != nil {
		return p, nil, fmt.Errorf("encode the plan: %w", err)
	}
	return p, encoded, nil
}

// describe writes the plan to the log and returns the result of the plan operation.
func (r *run) describe(ctx context.Context) (plugin.Result, error) {
	p, encoded, err := r.plan()
	if err != nil {
		return plugin.Result{}, err
	}
	line, c := r.change(p)
	logf(r.env.Log, "Would run:    %s", line)
	logf(r.env.Log, "Source:       %s", p.Source)
	if p.Image != "" {
		logf(r.env.Log, "Image:        %s", p.Image)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Vars)) {
		logf(r.env.Log, "Variable:     %s %s", name, p.Vars[name])
	}
	logf(r.env.Log, "Environment:  %s", strings.Join(p.Environment, " "))
	noOp := false
	switch applied := r.spec.Applied; {
	case r.argument != "apply": // an action runs each time, also with the same source and variables
		logf(r.env.Log, "\nNothing runs before the plan is applied.")
	case applied == nil:
		logf(r.env.Log, "\nNo earlier run is known.")
	default:
		changed := applied.Changed(p.Source, r.spec.Inputs())
		if noOp = len(changed) == 0; noOp {
			logf(r.env.Log, "\nNo changes: the last run had the same source and variables.")
			break
		}
		logf(r.env.Log, "\nChanged since the last run: %s.", strings.Join(changed, ", "))
		for _, name := range changed {
			c.Changed = append(c.Changed, "/"+strings.Replace(name, ".", "/", 1))
		}
	}
	b := changeset.Builder{KeepAll: r.env.Policy != nil}
	if !noOp {
		if err := b.Add(c); err != nil {
			return plugin.Result{}, err
		}
	}
	if r.env.Policy != nil {
		if err := r.env.Policy.Planned(ctx, &b, nil, plugin.Digest(encoded)); err != nil {
			return plugin.Result{}, err
		}
	}
	return plugin.Result{Plan: plugin.Planned(plugin.Digest(encoded), noOp, &b, nil)}, nil
}

// change returns the start of the executable as a change, and its command line.
func (r *run) change(p plan) (line string, c changeset.Change) {
	line = strings.Join(append([]string{p.Command}, p.Arguments...), " ")
	c = changeset.Change{Address: line, Kind: Name, Action: changeset.Run, After: p}
	for name, shown := range p.Vars {
		if shown == changeset.Sensitive {
			c.Sensitive = append(c.Sensitive, "/vars/"+name)
		}
	}
	slices.Sort(c.Sensitive)
	return line, c
}

// logf writes a line to the log. It ignores errors: the step reports a full disk.
func logf(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// execute starts the executable if its plan is the approved one, and reads its outputs.
func (r *run) execute(ctx context.Context) (plugin.Result, error) {
	p, encoded, err := r.plan()
	if err != nil {
		return plugin.Result{}, err
	}
	if got := plugin.Digest(encoded); got != r.spec.Plan.Digest {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonPlanStale,
			"the plan is now %s, but %s was approved: nothing was run; plan again", got, r.spec.Plan.Digest)
	}
	if r.env.Policy != nil {
		b := changeset.Builder{KeepAll: true}
		if _, c := r.change(p); b.Add(c) != nil {
			return plugin.Result{}, errors.New("encode the plan")
		}
		if err := r.env.Policy.Applies(ctx, &b, nil, r.spec.Plan.Digest); err != nil {
			return plugin.Result{}, err
		}
	}
	if err := plugin.WriteVars(r.path(varsFile), r.spec.Vars); err != nil {
		return plugin.Result{}, err
	}
	end := toolprocess.Process{Name: "./" + r.file + " " + r.argument, Command: []string{"./" + r.file, r.argument}, Dir: r.folder, Environ: r.environ,
		Workspace: r.env.Workspace, Stdout: r.env.Log, Stderr: r.env.Log, Grace: r.spec.Grace.Duration(), Confine: r.env.Confine}.Run(ctx)
	res := plugin.Result{Mutated: end.Started, ExitCode: end.Code}
	if err := end.Failure(ctx); err != nil || r.argument != "apply" {
		return res, err
	}
	res.Outputs, err = r.outputs()
	return res, err
}
