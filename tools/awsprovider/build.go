package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// version is the version in the pinned source's file version/VERSION.
const version = "6.34.0"

// services returns the services of the resources and data sources in
// examples/aws-service and examples/eks-access, by the provider's names. aws_partition is in
// meta, the security groups are in ec2.
func services() []string {
	return []string{"ec2", "ecs", "eks", "iam", "logs", "meta", "s3", "sqs", "sts"}
}

// The code of the build is a part of the cache folder's name, because a change of the
// code changes the provider.
var (
	//go:embed build.go
	buildCode []byte
	//go:embed trim.go
	trimCode []byte
)

// fetchError reports that the source cannot be downloaded.
type fetchError struct{ err error }

func (e *fetchError) Error() string { return e.err.Error() }
func (e *fetchError) Unwrap() error { return e.err }

// provider builds the provider from source into cache.
type provider struct {
	cache  string // the user's cache folder
	source string // folder of the module that pins the source
	// services are the services of the provider, by the provider's names.
	services []string
	log      io.Writer
}

// get returns the folder of the mirror, and builds the provider into it if it does not
// exist. If several processes call it, one builds and the others wait.
func (p provider) get(ctx context.Context) (string, error) {
	name, err := p.folder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.cache, "fairlead", name)
	mirror := filepath.Join(dir, "mirror")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the cache folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock the cache: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing the file, or the end of the process, releases the lock
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(mirror); !errors.Is(err, fs.ErrNotExist) {
		return mirror, err
	}
	// A killed build can leave files.
	work := filepath.Join(dir, "work")
	if err := os.RemoveAll(work); err != nil {
		return "", fmt.Errorf("clear the cache: %w", err)
	}
	defer os.RemoveAll(work)
	if err := p.build(ctx, work); err != nil {
		return "", err
	}
	return mirror, os.Rename(filepath.Join(work, "mirror"), mirror)
}

// folder returns the name of the cache folder. It is unique to this source, these services,
// this build code and this compiler.
func (p provider) folder() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		body, err := os.ReadFile(filepath.Join(p.source, name))
		if err != nil {
			return "", fmt.Errorf("read the module that pins the source: %w", err)
		}
		fmt.Fprintf(sum, "%d\n%s", len(body), body)
	}
	fmt.Fprintf(sum, "%d\n%s%d\n%s%s\n%q", len(buildCode), buildCode, len(trimCode), trimCode, runtime.Version(), p.services)
	return fmt.Sprintf("aws-provider-%s-%s-%s-%s", version, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:12]), nil
}

// build downloads, trims and compiles the source in the folder work. The result is the
// folder mirror in it.
func (p provider) build(ctx context.Context, work string) error {
	src, err := p.fetch(ctx)
	if err != nil {
		return err
	}
	declared, err := os.ReadFile(filepath.Join(src, "version", "VERSION"))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(declared)); got != version {
		return fmt.Errorf("the pinned source has version %s, want %s", got, version)
	}
	trimmed := filepath.Join(work, "src")
	if err := trim(src, trimmed, p.services); err != nil {
		return fmt.Errorf("trim the source in %s: %w", src, err)
	}
	// go list downloads all imported modules, so errors of the network show here and not
	// in the build.
	if _, err := p.golang(ctx, trimmed, "list", "-deps", "."); err != nil {
		return &fetchError{err}
	}
	fmt.Fprintf(p.log, "building the provider hashicorp/aws %s with the services %s; this happens only once and takes about four minutes and 4 GB of memory on two cores\n", version, strings.Join(p.services, ", "))
	started := time.Now()
	binary := filepath.Join(work, "provider")
	if _, err := p.golang(ctx, trimmed, "build", "-trimpath",
		"-ldflags", "-s -w -X "+providerModule+"/version.ProviderVersion="+version, "-o", binary, "."); err != nil {
		return err
	}
	fmt.Fprintf(p.log, "built the provider hashicorp/aws in %d s\n", int(time.Since(started).Seconds()))
	return linkInto(filepath.Join(work, "mirror"), binary)
}

// linkInto links the provider to the paths in the mirror where OpenTofu and Terraform
// look for it. Each looks below the name of its own registry.
func linkInto(mirror, binary string) error {
	for _, registry := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		dir := filepath.Join(mirror, registry, "hashicorp", "aws", version, runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Link(binary, filepath.Join(dir, "terraform-provider-aws_v"+version)); err != nil {
			return err
		}
	}
	return nil
}

// fetch downloads the pinned source and returns its folder in Go's module cache. The go
// command verifies it with go.sum.
func (p provider) fetch(ctx context.Context) (string, error) {
	out, err := p.golang(ctx, p.source, "mod", "download", "-json", providerModule)
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr == nil && module.Error != "" {
		err = errors.New(module.Error)
	} else if err == nil {
		err = jsonErr
	}
	if err != nil {
		return "", &fetchError{fmt.Errorf("download its source: %w", err)}
	}
	return module.Dir, nil
}

// golang runs the go command in the folder dir and returns its standard output. It
// ignores GOFLAGS and go.work of this machine and uses no C compiler.
func (p provider) golang(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, err
}
