// Command release builds the files of a release into a folder: archives with the programs, the
// images of the runner, the chart, the template for customers' stacks, one list of parts (SBOM)
// for each archive and image, and a signed list of checksums. Two builds of one commit
// give the same files, except the signatures. `make release` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/mod/semver"
)

func main() {
	r := release{bundles: allBundles(), images: allImages(), log: os.Stderr, run: command}
	var key, archs string
	var dirty bool
	flag.StringVar(&r.version, "version", "", "version of the release, such as v1.2.3")
	flag.StringVar(&key, "key", "", "private key that signs: a file in PEM (ECDSA with P-256, PKCS #8), or awskms:///ARN; without it nothing is signed")
	flag.StringVar(&archs, "archs", "amd64,arm64", "architectures, as Go names them, separated by commas")
	flag.StringVar(&r.folder, "out", "", "folder for the files, which must be empty; default: bin/release/VERSION")
	flag.StringVar(&r.tofu, "tofu", "", "folder with an OpenTofu for each architecture, named tofu-ARCH; default: build them, which takes minutes")
	flag.BoolVar(&dirty, "dirty", false, "also build from a checkout with changes that are not committed")
	flag.Parse()
	r.archs = strings.Split(archs, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, r, key, dirty)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// start checks what was asked for, and builds the release.
func start(ctx context.Context, r release, key string, dirty bool) error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("VERSION is %q: set a version such as v1.2.3", r.version)
	}
	if !dirty {
		changes, err := r.run(ctx, nil, "git", "status", "--porcelain")
		if err != nil {
			return err
		}
		if changes = strings.TrimSpace(changes); changes != "" {
			return fmt.Errorf("the checkout has changes that are not committed, so this release could not be built again:\n%s", changes)
		}
	}
	if r.folder == "" {
		r.folder = filepath.Join("bin", "release", r.version)
	}
	if old, err := os.ReadDir(r.folder); err == nil && len(old) > 0 {
		return fmt.Errorf("%s has files already: remove it, so that each file is of this release", r.folder)
	}
	if key != "" {
		s, err := openSigner(ctx, key)
		if err != nil {
			return err
		}
		r.signer = s
	}
	return r.build(ctx)
}

// command runs a program in this folder and returns what it printed. Its errors go to standard error.
func command(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), context.Cause(ctx))
	}
	return string(out), nil
}
