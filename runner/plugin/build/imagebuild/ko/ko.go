// Package ko builds images of Go programs with the tool ko. The go command compiles the program on this machine and runs
// nothing of it, so no program of the source sees the machine. The tool gets no right to push: it writes an image layout.
package ko

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
)

// tool is the name of the program.
const tool = "ko"

// defaultPlatform is the platform of an image that names none. It does not depend on the machine, so that each machine makes
// the same image.
const defaultPlatform = "linux/amd64"

// Request is one image to build.
type Request struct {
	Folder    string    // of the Go module
	Package   string    // folder of the main package below Folder, with slashes
	Base      string    // image by digest, to which the program is added
	Platforms []string  // sorted; empty: defaultPlatform
	Log       io.Writer // gets the output of the build
}

// Builder builds the image of one job.
type Builder struct {
	Environ   map[string]string // whole environment of the tool; it names a login only by DOCKER_CONFIG. GOCACHE may name a folder of the machine
	Workspace string            // folder of the job, which the tool may change; it has the module and the layout
	Grace     time.Duration     // between the interrupt and the kill of the tool
	// Confine is that of the job's plugin.Env.
	Confine func(own confine.Own, f func() error) error
}

// Build builds the image and writes it to the empty folder layout, as an image layout of OCI whose index.json has one entry:
// an index of the platforms' images, each with its SBOM. The same module, settings and version of Go give the same digest.
//
// When ctx ends, Build ends the tool and returns an error that wraps ctx's error. Each other error is a *plugin.Error: with
// fairlead.ReasonBuildFailed if the program cannot be built, and with fairlead.ReasonToolMissing without ko or Go.
func (b *Builder) Build(ctx context.Context, r Request, layout string) error {
	path, err := exec.LookPath(tool)
	if err != nil {
		return missing(tool, err)
	}
	compiler, err := exec.LookPath("go")
	if err != nil {
		return missing("go", err)
	}
	folders, err := b.folders()
	if err != nil {
		return err
	}
	// The tool takes the path for the name of a repository, which has no upper-case letters. A relative one has none.
	relative, err := filepath.Rel(r.Folder, folders.made)
	if err != nil {
		return fmt.Errorf("create the workspace: %w", err)
	}
	platforms := r.Platforms
	if len(platforms) == 0 {
		platforms = []string{defaultPlatform}
	}
	output := &toolprocess.Tail{To: r.Log}
	end := toolprocess.Process{Name: tool, Dir: r.Folder, Environ: b.environ(folders, r.Base), Workspace: b.Workspace, Readable: installed(compiler, path),
		Command: []string{path, "build", "--push=false", "--oci-layout-path=" + relative, "--sbom=spdx", "--sbom-dir=" + folders.sboms,
			"--platform=" + strings.Join(platforms, ","), "./" + r.Package},
		Stdout: output, Stderr: output, Grace: b.Grace, Confine: b.Confine}.Run(ctx)
	err = end.Failure(ctx)
	switch {
	case err == nil:
		return b.finish(folders, layout)
	case ctx.Err() != nil || plugin.ReasonOf(err) != fairlead.ReasonToolFailed:
		return err
	}
	return &plugin.Error{Reason: fairlead.ReasonBuildFailed, Err: err, Message: "the Go program cannot be built: " + output.Cause("Error: ") + ". The job's log has the whole output"}
}

func missing(name string, err error) error {
	return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
		Message: name + " is not on this runner: install Go and ko on the machine of the build runner, then restart the agent"}
}

// installed returns the folders of the programs, which a confined tool must be able to read.
func installed(programs ...string) (out []string) {
	for _, p := range programs {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		out = append(out, filepath.Dir(p))
		if root := filepath.Dir(filepath.Dir(p)); filepath.Base(filepath.Dir(p)) == "bin" && root != "/" { // Go's own folder has bin and src
			out = append(out, root)
		}
	}
	return out
}

// folders are those of one build, in the workspace.
type folders struct {
	made   string // layout that the tool writes
	sboms  string // documents that the tool writes
	cache  string // of the go command
	config string // file with the tool's settings
}

func (b *Builder) folders() (folders, error) {
	own := filepath.Join(b.Workspace, tool)
	f := folders{filepath.Join(own, "layout"), filepath.Join(own, "sboms"), filepath.Join(own, "cache"), filepath.Join(own, "settings.yaml")}
	err := os.Mkdir(own, 0o700)
	if err == nil {
		err = os.WriteFile(f.config, []byte("{}\n"), 0o600)
	}
	if err != nil {
		return folders{}, fmt.Errorf("create the workspace: %w", err)
	}
	return f, nil
}

// environ returns the tool's environment. The settings of the source count for nothing: neither a file .ko.yaml, which could
// name programs that the go command runs, nor a toolchain that go.mod names, nor cgo.
func (b *Builder) environ(f folders, base string) map[string]string {
	out := map[string]string{"KO_CONFIG_PATH": f.config, "KO_DEFAULTBASEIMAGE": base, "KO_DOCKER_REPO": "image.invalid",
		"GOENV": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false -modcacherw", "CGO_ENABLED": "0",
		"GOPATH":                    filepath.Join(f.cache, "go"),
		"AWS_EC2_METADATA_DISABLED": "true"} // the tool must not log in to a registry as the machine
	for name, value := range b.Environ {
		if _, fixed := out[name]; !fixed {
			out[name] = value
		}
	}
	if out["GOCACHE"] == "" {
		out["GOCACHE"] = filepath.Join(f.cache, "build")
	}
	return out
}
