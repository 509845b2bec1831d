// Package pinned builds third-party programs for tests from Go modules. It builds each
// version once into the user's cache folder. A separate module below tools/ pins the
// version, so that the programs' dependencies are not the product's.
package pinned

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/tools/testserver"
)

// Programs are programs that one module pins.
type Programs struct {
	Folder   string            // folder in the cache, with the version: "kubernetes-v1.36.3"
	Module   string            // folder of the module, below tools/
	LDFlags  string            // in addition to -s -w
	Packages map[string]string // package of each program, by the program's name
}

func (p Programs) folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for %s: %w", p.Folder, err)
	}
	return filepath.Join(cache, "fairlead", p.Folder), nil
}

// Built returns the folder of the programs, or an error if one is missing.
func (p Programs) Built() (string, error) {
	dir, err := p.folder()
	if err != nil {
		return "", err
	}
	for name := range p.Packages {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s is missing in %s", name, dir)
		}
	}
	return dir, nil
}

// Build builds the missing programs and returns their folder. It writes progress to log.
// It must run in this repository. If several processes call Build, one process builds and
// the other processes wait.
func (p Programs) Build(log io.Writer) (string, error) {
	dir, err := p.folder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := testserver.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(p.Packages)) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		fmt.Fprintf(log, "building %s of %s from Go modules; this happens only once\n", name, p.Folder)
		if err := Compile(context.Background(), p.Module, p.LDFlags, p.Packages[name], path+".part"); err != nil {
			return "", err
		}
		if err := os.Rename(path+".part", path); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Compile builds the program of package pkg to the path out. module is the folder below
// tools/ of the module that pins it. It must run in this repository.
func Compile(ctx context.Context, module, ldflags, pkg, out string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fairlead/fairlead").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", out, pkg)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "tools", filepath.FromSlash(module))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}
