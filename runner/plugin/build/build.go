// Package build is the plugin of builds. A build fetches a component's source from a git repository, a repository of Helm
// charts, a module registry or an OCI registry, and the modules of other places that it calls. It checks the source as app.yaml requires,
// packs it and pushes the artifact. It changes nothing in a customer's account, and runs no file that it fetched.
//
// A component with a Dockerfile has an image as its artifact. An image builder makes it, where no right to push is; the
// plugin checks and pushes it.
//
// A workspace holds:
//
//	src/          the repository at the commit, the chart, the registry's module, or the artifact
//	modules/      a folder for each package of modules that the source calls, and their list
//	image/        the image layout
//	home/, tmp/   the tool's home and temporary files
//	tool.pid      the tool's process number
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Name is the plugin's name in a job spec.
const Name = "build"

// Config is the operator's settings.
type Config struct {
	PassEnv []string // names of variables that git gets from Environ
	Environ []string // "name=value"
}

// Plugin implements plugin.Plugin.
type Plugin struct {
	passEnv []string
	env     map[string]string
}

// New returns the plugin.
func New(cfg Config) *Plugin {
	return &Plugin{passEnv: cfg.PassEnv, env: plugin.Environ(cfg.Environ)}
}

// Operations lists build.
func (*Plugin) Operations() []string { return []string{string(job.OpBuild)} }

// Run executes the spec.
func (p *Plugin) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if spec.Build == nil || spec.Push == "" || env.Push == nil || spec.Build.Image != nil && env.PushImage == nil {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this build names no component or no repository")
	}
	if err := toolprocess.MakeFolders(env.Workspace); err != nil {
		return plugin.Result{}, err
	}
	folder := filepath.Join(env.Workspace, workspace.Source)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return plugin.Result{}, fmt.Errorf("create the workspace: %w", err)
	}
	if spec.Build.Image != nil {
		return p.image(ctx, spec, env, folder)
	}
	m := p.modules(spec, env)
	defer m.close()
	revision, inside, err := p.fetch(ctx, m, folder)
	if err != nil {
		return plugin.Result{}, err
	}
	digest, err := push(ctx, m, folder, path.Join(inside, spec.Build.Source))
	if err != nil {
		return plugin.Result{}, err
	}
	fmt.Fprintf(env.Log, "built component %s of app %s from %s: %s\n", spec.Build.Component, spec.Build.App, revision, digest)
	return plugin.Result{Built: &wire.Built{Artifact: digest, Revision: revision}}, nil
}

// fetch writes the files of the component's origin to the empty folder. It returns the origin's revision, and the folder to
// which the component's source is relative.
func (p *Plugin) fetch(ctx context.Context, m *modules, folder string) (revision, inside string, err error) {
	switch from := m.spec.Build.From; from.Kind {
	case events.OriginGit:
		revision, err = git{plugin: p, spec: m.spec, env: m.env, folder: folder, url: from.URL, ref: from.Ref}.fetch(ctx)
		return revision, ".", err
	case events.OriginChart:
		revision, err = p.fetchChart(ctx, m.spec, m.env, folder)
		return revision, ".", err
	case events.OriginModule:
		err = within(ctx, modulesFor, func(ctx context.Context) error {
			revision, inside, err = m.component(ctx, folder)
			return err
		})
		return revision, inside, err
	case events.OriginOCI:
		err = within(ctx, fetchFor, func(ctx context.Context) error { return p.fetchOCI(ctx, m.spec, m.env, folder) })
		return from.Ref, ".", err
	default:
		return "", "", plugin.Errorf(fairlead.ReasonSpecInvalid, "this runner cannot fetch a source of kind %q: update it", from.Kind)
	}
}

// push checks the component's files at the path in the folder, fetches the modules that they call, packs all and pushes the
// artifact.
func push(ctx context.Context, m *modules, folder, at string) (digest string, err error) {
	spec, env := m.spec, m.env
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", fmt.Errorf("open the repository: %w", err)
	}
	defer root.Close()
	b := spec.Build
	c := appspec.Component{Name: b.Component, Type: b.Type, Source: at, Vars: map[string]appspec.Value{}}
	for _, name := range b.Vars {
		c.Vars[name] = appspec.Value{}
	}
	source, problems := appspec.CheckSource(root.FS(), c)
	if len(problems) > 0 {
		return "", sourceProblems(env, problems)
	}
	if t, _ := component.Of(b.Type); t.Module {
		if err := within(ctx, modulesFor, func(ctx context.Context) error { return m.collect(ctx, root.FS(), source.Folder) }); err != nil {
			return "", err
		}
	}
	packed, err := m.pack(root, source)
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		return "", &plugin.Error{Reason: fairlead.ReasonSourceInvalid, Message: strings.TrimSpace("the component's source cannot be packed: " + e.Message + ". " + e.Hint), Err: err}
	}
	if err != nil {
		return "", fmt.Errorf("pack the source: %w", err)
	}
	return env.Push(ctx, spec.Push, packed)
}

// sourceProblems writes the problems of a source to the log, and returns the error of the job.
func sourceProblems(env plugin.Env, problems appspec.Problems) error {
	for _, p := range problems {
		fmt.Fprintf(env.Log, "%s: %s %s\n", p.Code, p.Message, p.Hint)
	}
	return plugin.Errorf(fairlead.ReasonSourceInvalid, "the component's source at this commit has %d problem(s); the first: %s", len(problems), strings.TrimSpace(problems[0].Message+". "+problems[0].Hint))
}

// pack packs the component's files with the modules of other places, if it calls any.
func (m *modules) pack(root *os.Root, source appspec.Source) (*artifact.Artifact, error) {
	if len(m.shipped.Modules) == 0 {
		return artifact.PackShared(root, source.Folder, source.Shared, artifact.Limits{})
	}
	fetched, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, fmt.Errorf("open the modules: %w", err)
	}
	defer fetched.Close()
	return artifact.PackModules(root, source.Folder, source.Shared, fetched, artifact.Limits{})
}
