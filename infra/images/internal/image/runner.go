package image

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// Paths in the runner's image.
const (
	RunnerPath = "/usr/local/bin/fairlead-runner"
	TofuPath   = "/usr/local/bin/tofu"
	PluginPath = "/usr/local/bin/plugins/kubernetes" // beside the runner, where a step looks for it
	ImagesPath = "/usr/local/bin/plugins/images"
	DataFolder = "/var/lib/fairlead-runner"
	TempFolder = "/tmp"
	// ProgramFolder is where a task on ECS has the volume with the runner's program, for a script in an image of its own.
	ProgramFolder = "/.fairlead"
	// StatusAddress is the default address of the agent's status server in the image.
	// It is reachable only inside the container; an operator can set another one.
	StatusAddress = "127.0.0.1:9480"
)

// Programs are the files of the programs in the runner's image.
type Programs struct{ Runner, Tofu, Kubernetes, Images string }

// All returns the files.
func (p Programs) All() []string { return []string{p.Runner, p.Tofu, p.Kubernetes, p.Images} }

// Runner returns the runner's image with its programs for arch. It has no shell.
func Runner(arch string, p Programs, version string) Spec {
	return Spec{
		Arch: arch, Entrypoint: []string{RunnerPath}, WorkingDir: DataFolder,
		Env: []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "HOME=" + DataFolder, "TMPDIR=" + TempFolder,
			"FAIRLEAD_TOFU=" + TofuPath, "FAIRLEAD_RUNNER_DATA=" + DataFolder, "FAIRLEAD_STATUS_ADDRESS=" + StatusAddress},
		Volumes: []string{DataFolder, TempFolder, ProgramFolder},
		Labels:  map[string]string{"org.opencontainers.image.title": "Fairlead runner", "org.opencontainers.image.version": version},
		Layers: []Layer{Base(DataFolder, TempFolder, ProgramFolder), Program("OpenTofu", TofuPath, p.Tofu), Program("the plugin of Kubernetes", PluginPath, p.Kubernetes), Program("the plugin of images", ImagesPath, p.Images),
			Hidden("the runner", RunnerPath, p.Runner)}, // a launch token is in its environment
	}
}

// DirectPath is the path of the program of direct launch in its image.
const DirectPath = "/usr/local/bin/fairlead-direct"

// Direct returns the image of direct launch with its program for arch. It starts jobs elsewhere, so
// it has neither OpenTofu nor the runner.
func Direct(arch, program, version string) Spec {
	return Spec{
		Arch: arch, Entrypoint: []string{DirectPath}, WorkingDir: DataFolder,
		Env:     []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "HOME=" + DataFolder, "TMPDIR=" + TempFolder, "FAIRLEAD_RUNNER_DATA=" + DataFolder},
		Volumes: []string{DataFolder, TempFolder},
		Labels:  map[string]string{"org.opencontainers.image.title": "Fairlead direct launch", "org.opencontainers.image.version": version},
		Layers:  []Layer{Base(DataFolder, TempFolder), Program("direct launch", DirectPath, program)},
	}
}

// WithShell returns the image of s with a layer of Shell: for modules whose provisioners run
// commands, and for modules from git repositories.
func WithShell(s Spec, shell Layer) Spec {
	s.Env = slices.Clone(s.Env)
	s.Env[slices.Index(s.Env, "PATH=/usr/local/bin")] += ":/usr/bin:/bin"
	s.Layers = slices.Insert(slices.Clone(s.Layers), 1, shell) // it changes less often than the programs
	return s
}

// runnerPackage is the package of the runner's program.
const runnerPackage = "github.com/fairlead/fairlead/runner"

// BuildDirect builds the program of direct launch for arch into the file.
func BuildDirect(ctx context.Context, arch, version, file string) error {
	return compile(ctx, "", arch, file, "-s -w -buildid= -X main.version="+version, "-tags=", runnerPackage+"/direct")
}

// BuildRunner builds the runner for arch into the file, with all executors. The same
// source gives the same program on every machine.
func BuildRunner(ctx context.Context, arch, version, file string) error {
	return compile(ctx, "", arch, file, "-s -w -buildid= -X main.version="+version, "-tags=clusters", runnerPackage)
}

// BuildKubernetes builds the plugin of Kubernetes objects and charts for arch into the file.
func BuildKubernetes(ctx context.Context, arch, version, file string) error {
	return compile(ctx, "", arch, file, "-s -w -buildid= -X main.Version="+version, "-tags=", runnerPackage+"/kubernetes")
}

// BuildImages builds the plugin of images for arch into the file.
func BuildImages(ctx context.Context, arch, version, file string) error {
	return compile(ctx, "", arch, file, "-s -w -buildid= -X main.Version="+version, "-tags=", runnerPackage+"/images")
}

const tofuPackage = "github.com/opentofu/opentofu/cmd/tofu"

// BuildTofu builds the OpenTofu that the module in the folder pins, for arch, into the
// file. The first build takes minutes; later ones use the go command's cache.
func BuildTofu(ctx context.Context, folder, arch, file string) error {
	// Without version.dev=no, a release would report itself as a development build.
	return compile(ctx, folder, arch, file, "-s -w -buildid= -X github.com/opentofu/opentofu/version.dev=no", "-tags=", tofuPackage)
}

// machines maps the supported architectures to the machine type of their ELF files.
var machines = map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64}

// Check returns an error if a program cannot run in an image for arch: it is for
// another processor, or it needs libraries, which the image does not have. Otherwise
// the first sign would be a customer's task that does not start.
func Check(program, arch string) error {
	machine, ok := machines[arch]
	if !ok {
		return fmt.Errorf("there is no image for %s", arch)
	}
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("%s is not a program for Linux: %w", program, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	if f.Machine != machine {
		return fmt.Errorf("%s is for %s, but the image is for %s", program, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(program + " is not static, but the image has no libraries")
		}
	}
	return nil
}

func compile(ctx context.Context, folder, arch, file, ldflags, tags, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", tags, "-ldflags", ldflags, "-o", file, pkg)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", pkg, arch, err, out)
	}
	return nil
}
