package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/buildkit"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/ko"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
)

// The variables that name the image builder, in job.environment of the build runner's configuration.
const (
	buildkitHost  = "BUILDKIT_HOST"  // address of BuildKit
	sbomGenerator = "SBOM_GENERATOR" // image that writes the SBOM of an image; default: defaultGenerator
)

// defaultGenerator is the generator of SBOMs of BuildKit's authors, which uses Syft.
const defaultGenerator = "docker/buildkit-syft-scanner:stable-1"

// layoutFolder is the folder of a workspace into which an image builder writes.
const layoutFolder = "image"

// image builds an image of the component's source in the folder, checks it, and pushes it.
func (p *Plugin) image(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) (plugin.Result, error) {
	build, err := p.builder(ctx, spec, env)
	if err != nil {
		return plugin.Result{}, err // before anything is fetched
	}
	revision, source, err := p.buildContext(ctx, spec, env, folder)
	if err != nil {
		return plugin.Result{}, err
	}
	b := spec.Build
	layout := filepath.Join(env.Workspace, layoutFolder)
	if err := os.Mkdir(layout, 0o700); err != nil {
		return plugin.Result{}, fmt.Errorf("create the workspace: %w", err)
	}
	if err := build(ctx, source, layout); err != nil {
		return plugin.Result{}, err
	}
	built, err := imagebuild.Check(ctx, layout, b.Image.Platforms)
	if err != nil {
		return plugin.Result{}, err
	}
	if without := built.WithoutSBOM(); len(without) > 0 {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonImageInvalid, "the image builder made no SBOM for %s. Find out whether %s of the build runner names a generator of SBOMs for BuildKit", strings.Join(without, ", "), sbomGenerator)
	}
	fmt.Fprintf(env.Log, "pushing the image %s for %s, %d bytes\n", built.Digest, strings.Join(built.Platforms, ", "), built.Bytes)
	if err := env.PushImage(ctx, spec.Push, layout, built.Digest, statements(layout, built)); err != nil {
		return plugin.Result{}, err
	}
	fmt.Fprintf(env.Log, "built component %s of app %s from %s: %s\n", b.Component, b.App, revision, built.Digest)
	return plugin.Result{Built: &wire.Built{Artifact: built.Digest, Revision: revision}}, nil
}

// statements returns the SBOMs of the image, in the layout.
func statements(layout string, built imagebuild.Image) (out []artifact.Statement) {
	for _, s := range built.SBOMs {
		out = append(out, artifact.SBOM(s.Platform, s.Digest, s.Size, func() (io.ReadCloser, error) {
			return os.Open(filepath.Join(layout, "blobs", "sha256", strings.TrimPrefix(s.Digest, "sha256:")))
		}))
	}
	return out
}

// goVariables are the variables of job.environment that the go command gets: where it fetches modules, and a folder of the
// machine for what it has compiled.
var goVariables = []string{"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOCACHE"}

// builder returns a function that makes the image of the source and writes it to the folder layout. It fails if the operator
// has configured no image builder.
func (p *Plugin) builder(ctx context.Context, spec plugin.Spec, env plugin.Env) (func(ctx context.Context, source, layout string) error, error) {
	b := spec.Build
	// The tool gets none of the variables that the operator passes to git, because they can name a login.
	environ := toolprocess.Environment(p.env, nil, plugin.Spec{}, env.Workspace)
	if g := b.Image.Go; g != nil {
		for _, name := range goVariables {
			if v := spec.Env[name]; v != "" {
				environ[name] = v
			}
		}
		builder := &ko.Builder{Environ: environ, Workspace: env.Workspace, Grace: spec.Grace.Duration(), Confine: env.Confine}
		return withLogins(spec, env, environ, func(ctx context.Context, source, layout string) error {
			return builder.Build(ctx, ko.Request{Folder: source, Package: g.Package, Base: g.Base, Platforms: b.Image.Platforms, Log: env.Log}, layout)
		}), nil
	}
	request := imagebuild.Request{Dockerfile: b.Image.Dockerfile, Target: b.Image.Target, Args: b.Image.Args, Platforms: b.Image.Platforms,
		Generator: cmp.Or(spec.Env[sbomGenerator], defaultGenerator), Log: env.Log}
	if address := spec.Env[buildkitHost]; address != "" {
		builder := &buildkit.Builder{Address: address, Environ: environ, Workspace: env.Workspace, Grace: spec.Grace.Duration(), Confine: env.Confine}
		return withLogins(spec, env, environ, func(ctx context.Context, source, layout string) error {
			request.Context = source
			return builder.Build(ctx, request, layout)
		}), nil
	}
	builder, err := p.codebuild(ctx, spec, env)
	if err != nil {
		return nil, err
	}
	// What CodeBuild gets, each Dockerfile of each app could read there. So the step fetches the images that need a login.
	return func(ctx context.Context, source, layout string) error {
		request.Context = source
		if request.Bases, err = p.bases(ctx, spec, env, source); err != nil {
			return err
		}
		return builder.Build(ctx, request, layout)
	}, nil
}

// codebuild returns the image builder in the account of a control plane on AWS.
func (p *Plugin) codebuild(ctx context.Context, spec plugin.Spec, env plugin.Env) (imagebuild.Builder, error) {
	access, err := env.Control.ImageBuild(ctx, string(spec.Job))
	e, answered := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return codebuild.New(codebuild.Config{Access: access, Attempt: env.Attempt, HTTP: &http.Client{Transport: p.transport(spec)}, Now: time.Now}), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask for access to image builds: %w", ctx.Err())
	case answered && e.Status == http.StatusNotFound: // an older control plane does not know the request
		return nil, plugin.Errorf(fairlead.ReasonBuilderMissing, "this build runner has no image builder. Start BuildKit, and set %s to its address in job.environment of the runner's configuration, such as unix:///run/buildkit/buildkitd.sock", buildkitHost)
	}
	return nil, &plugin.Error{Reason: fairlead.ReasonBuilderUnavailable, Err: err, Message: fmt.Sprintf("the control plane gives the build no access to AWS CodeBuild: %v. Publish the app again", err)}
}

// buildContext writes the files of the component to the empty folder. It returns the revision of what was fetched, and the
// absolute path of the build context.
func (p *Plugin) buildContext(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) (revision, source string, err error) {
	b := spec.Build
	within := b.Source
	switch from := b.From; from.Kind {
	case events.OriginGit:
		if revision, err = (git{plugin: p, spec: spec, env: env, folder: folder, url: from.URL, ref: from.Ref}).fetch(ctx); err != nil {
			return "", "", err
		}
		if err := os.RemoveAll(filepath.Join(folder, ".git")); err != nil { // it is not a part of the commit
			return "", "", fmt.Errorf("remove git's own files: %w", err)
		}
	case events.OriginFolder:
		revision = from.Ref
		if within, err = fetchFolder(ctx, spec, env, folder); err != nil {
			return "", "", err
		}
	default:
		return "", "", plugin.Errorf(fairlead.ReasonSpecInvalid, "this runner cannot build an image from a source of kind %q: update it", from.Kind)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", "", fmt.Errorf("open the source: %w", err)
	}
	defer root.Close()
	checked, problems := appspec.CheckSource(root.FS(), appspec.Component{Name: b.Component, Type: b.Type, Source: within,
		Build: &appspec.ImageBuild{Dockerfile: b.Image.Dockerfile, Go: (*appspec.GoProgram)(b.Image.Go)}})
	if len(problems) > 0 {
		return "", "", sourceProblems(env, problems)
	}
	return revision, filepath.Join(folder, filepath.FromSlash(checked.Folder)), nil
}

// fetchFolder unpacks the packed folder of the app, and returns the component's folder in it.
func fetchFolder(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) (string, error) {
	if spec.Artifact == nil || spec.Artifact.Digest != spec.Build.From.Ref || env.Fetch == nil {
		return "", plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec of this build names no packed folder, or another one than its source")
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", fmt.Errorf("open the workspace: %w", err)
	}
	within, err := env.Fetch(ctx, *spec.Artifact, root)
	return within, errors.Join(err, root.Close())
}
