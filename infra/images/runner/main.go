// Command runner builds the runner's image for customers' stacks: the runner, the
// pinned OpenTofu, certificates and a user who is not root. With -shell the image also
// has a shell and git, from pinned packages of Debian. With -go it has these, Go and ko, for
// a build runner that builds images of Go programs. The default architecture
// is arm64. With -direct it builds the image of direct launch, which has one program.
// It needs no container daemon. It writes an OCI layout and, with -push,
// pushes the image. It prints the image's name with the digest, which goes into the
// stack.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/infra/images/internal/image"
)

type options struct {
	arch, version, module, tofu, ko, out, push string
	shell, golang, direct                      bool
	packages                                   string
}

func main() {
	var o options
	flag.StringVar(&o.arch, "arch", "arm64", "architecture, as Go names it")
	flag.StringVar(&o.version, "version", "dev", "version that the runner reports")
	flag.StringVar(&o.module, "module", "tools/opentofu", "folder of the module that pins OpenTofu")
	flag.StringVar(&o.tofu, "tofu", "", "an existing OpenTofu for that architecture; default: build it from the module")
	flag.StringVar(&o.out, "out", "bin/images/runner", "folder for the programs and the image, as an OCI layout")
	flag.StringVar(&o.push, "push", "", "repository to push the image to, with the credentials of docker's configuration")
	flag.BoolVar(&o.shell, "shell", false, "build the image with a shell and git, from Debian's packages")
	flag.BoolVar(&o.golang, "go", false, "build the image with a shell, git, Go and ko, for a build runner that builds Go programs")
	flag.StringVar(&o.ko, "ko", "tools/ko", "folder of the module that pins ko")
	flag.BoolVar(&o.direct, "direct", false, "build the image of direct launch instead, for the vendor's own account")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "bin"
	}
	flag.StringVar(&o.packages, "packages", filepath.Join(cache, "fairlead", "debian"), "folder in which downloaded packages stay")
	repin := flag.String("repin", "", "write the newest packages of the image with a shell to this file, and build nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if *repin != "" {
		err = image.Repin(ctx, *repin)
	} else {
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	spec, suffix, err := o.spec(ctx)
	if err != nil {
		return err
	}
	img, err := image.Build(spec)
	if err != nil {
		return err
	}
	return o.write(ctx, img, suffix)
}

// spec builds the programs and returns the image of them, and the suffix of its tag.
func (o options) spec(ctx context.Context) (image.Spec, string, error) {
	if !o.direct {
		return o.runner(ctx)
	}
	program, err := filepath.Abs(filepath.Join(o.out, "fairlead-direct-"+o.arch))
	if err != nil {
		return image.Spec{}, "", err
	}
	if err := image.BuildDirect(ctx, o.arch, o.version, program); err != nil {
		return image.Spec{}, "", err
	}
	return image.Direct(o.arch, program, o.version), "-direct", image.Check(program, o.arch)
}

func (o options) runner(ctx context.Context) (image.Spec, string, error) {
	var none image.Spec
	if o.tofu != "" {
		if err := image.Check(o.tofu, o.arch); err != nil { // before the builds, which take minutes
			return none, "", err
		}
	}
	runner, err := filepath.Abs(filepath.Join(o.out, "fairlead-runner-"+o.arch))
	if err != nil {
		return none, "", err
	}
	if err := image.BuildRunner(ctx, o.arch, o.version, runner); err != nil {
		return none, "", err
	}
	if o.tofu == "" {
		if o.tofu, err = filepath.Abs(filepath.Join(o.out, "tofu-"+o.arch)); err != nil {
			return none, "", err
		}
		fmt.Fprintln(os.Stderr, "building OpenTofu; the first time takes some minutes")
		if err := image.BuildTofu(ctx, o.module, o.arch, o.tofu); err != nil {
			return none, "", err
		}
	}
	plugin, err := filepath.Abs(filepath.Join(o.out, "plugin-kubernetes-"+o.arch))
	if err != nil {
		return none, "", err
	}
	if err := image.BuildKubernetes(ctx, o.arch, o.version, plugin); err != nil {
		return none, "", err
	}
	images, err := filepath.Abs(filepath.Join(o.out, "plugin-images-"+o.arch))
	if err != nil {
		return none, "", err
	}
	if err := image.BuildImages(ctx, o.arch, o.version, images); err != nil {
		return none, "", err
	}
	programs := image.Programs{Runner: runner, Tofu: o.tofu, Kubernetes: plugin, Images: images}
	for _, program := range programs.All() {
		if err := image.Check(program, o.arch); err != nil {
			return none, "", err
		}
	}
	spec := image.Runner(o.arch, programs, o.version)
	if !o.shell && !o.golang {
		return spec, "", nil
	}
	shell, err := image.Shell(ctx, o.arch, o.packages)
	if err != nil {
		return none, "", err
	}
	spec = image.WithShell(spec, shell)
	if !o.golang {
		return spec, "-shell", nil
	}
	spec, err = o.withGo(ctx, spec)
	return spec, "-go", err
}

// withGo adds Go and ko to the image with a shell.
func (o options) withGo(ctx context.Context, spec image.Spec) (image.Spec, error) {
	ko, err := filepath.Abs(filepath.Join(o.out, "ko-"+o.arch))
	if err != nil {
		return spec, err
	}
	if err := image.BuildKo(ctx, o.ko, o.arch, ko); err != nil {
		return spec, err
	}
	if err := image.Check(ko, o.arch); err != nil {
		return spec, err
	}
	distribution, err := image.Go(ctx, o.arch)
	return image.WithGo(spec, distribution, ko), err
}

// write writes the image as an OCI layout, pushes it if a repository is set, and prints its name.
func (o options) write(ctx context.Context, img v1.Image, suffix string) error {
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	folder := filepath.Join(o.out, "layout"+suffix)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	l, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = l.AppendImage(img)
	}
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if o.push == "" {
		fmt.Println(digest)
		return nil
	}
	repo, err := name.NewRepository(o.push)
	if err != nil {
		return errors.Join(fmt.Errorf("-push %s", o.push), err)
	}
	// The image needs a tag: registries expire images without one.
	if err := remote.Write(repo.Tag(digest.Hex+suffix), img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", o.push, err)
	}
	fmt.Println(repo.Digest(digest.String()))
	return nil
}
