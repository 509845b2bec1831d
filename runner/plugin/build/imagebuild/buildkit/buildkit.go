// Package buildkit builds images with the tool buildctl, which sends the build to a BuildKit of the operator. The tool gets
// no login, so BuildKit cannot push and reads only images that anybody can read.
package buildkit

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
)

// tool is the name of BuildKit's client.
const tool = "buildctl"

// basesStore names the folder of base images in the arguments of the tool.
const basesStore = "bases"

// Builder implements imagebuild.Builder.
type Builder struct {
	Address   string            // of BuildKit, as buildctl takes it: unix://PATH, docker-container://NAME, tcp://HOST:PORT
	Environ   map[string]string // whole environment of the tool; no login
	Workspace string            // folder of the job, which the tool may change; it has the context and the layout
	Grace     time.Duration     // between the interrupt and the kill of the tool
	// Confine is that of the job's plugin.Env.
	Confine func(own confine.Own, f func() error) error
}

// Build implements imagebuild.Builder.
func (b *Builder) Build(ctx context.Context, r imagebuild.Request, layout string) error {
	path, err := exec.LookPath(tool)
	if err != nil {
		return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: tool + " is not on this runner: install BuildKit's client on the machine of the build runner, then restart the agent"}
	}
	if err := b.reachable(ctx, path); err != nil {
		return err
	}
	output := toolprocess.Tail{To: r.Log}
	end := b.run(ctx, &output, append([]string{path}, b.args(r, layout)...)...)
	err = end.Failure(ctx)
	if err == nil || ctx.Err() != nil || plugin.ReasonOf(err) != fairlead.ReasonToolFailed {
		return err
	}
	if gone := b.reachable(ctx, path); gone != nil {
		return gone
	}
	return &plugin.Error{Reason: fairlead.ReasonBuildFailed, Err: err, Message: "BuildKit cannot build the image: " + output.Cause("error: ") + ". The job's log has its whole output"}
}

// reachable returns an error if BuildKit does not answer.
func (b *Builder) reachable(ctx context.Context, path string) error {
	output := toolprocess.Tail{To: io.Discard}
	end := b.run(ctx, &output, path, "--addr", b.Address, "--timeout", "10", "debug", "workers")
	err := end.Failure(ctx)
	if err == nil || ctx.Err() != nil || plugin.ReasonOf(err) != fairlead.ReasonToolFailed {
		return err
	}
	return &plugin.Error{Reason: fairlead.ReasonBuilderUnavailable, Err: err,
		Message: fmt.Sprintf("BuildKit at %s does not answer: %s. Start it, or correct BUILDKIT_HOST in job.environment of the build runner's configuration", b.Address, output.Cause("error: "))}
}

func (b *Builder) run(ctx context.Context, output io.Writer, command ...string) toolprocess.End {
	return toolprocess.Process{Name: tool, Command: command, Dir: b.Workspace, Environ: b.Environ, Workspace: b.Workspace,
		Stdout: output, Stderr: output, Grace: b.Grace, Confine: b.Confine}.Run(ctx)
}

// args returns the arguments of the tool. It grants no entitlement: the programs of the build get neither the network of
// the machine nor its devices, unless BuildKit gives them to each build.
func (b *Builder) args(r imagebuild.Request, layout string) []string {
	args := []string{"--addr", b.Address, "build", "--progress=plain", "--frontend=dockerfile.v0",
		"--local=context=" + r.Context, "--local=dockerfile=" + r.Context, "--opt=filename=" + r.Dockerfile}
	if r.Target != "" {
		args = append(args, "--opt=target="+r.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		args = append(args, "--opt=build-arg:"+name+"="+r.Args[name])
	}
	if len(r.Platforms) > 0 {
		args = append(args, "--opt=platform="+strings.Join(r.Platforms, ","))
	}
	if len(r.Bases.Digests) > 0 {
		args = append(args, "--oci-layout="+basesStore+"="+r.Bases.Layout)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Bases.Digests)) {
		args = append(args, "--opt=context:"+name+"=oci-layout://"+basesStore+"@"+r.Bases.Digests[name])
	}
	if r.Generator != "" {
		args = append(args, "--opt=attest:sbom=generator="+r.Generator)
	}
	// The tool reads this argument as a line of CSV, so a comma of the path needs quotes.
	return append(args, `--output=type=oci,tar=false,"dest=`+strings.ReplaceAll(layout, `"`, `""`)+`"`)
}
