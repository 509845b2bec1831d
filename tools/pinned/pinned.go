// Package pinned builds programs of others from Go modules, for tests: each version
// once, into the user's cache folder. Which version it is, a module below tools/
// says, so that what the programs need is not the product's.
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

// Programs are built together.
type Programs struct {
	Folder   string            // in the cache, with the version: "kubernetes-v1.36.3"
	Module   string            // the folder below tools/ of the module that pins them
	LDFlags  string            // besides those that strip them
	Packages map[string]string // the package of each program, by its name
}

func (p Programs) folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for %s: %w", p.Folder, err)
	}
	return filepath.Join(cache, "fairlead", p.Folder), nil
}

// Built returns the folder of the programs if all are there.
func (p Programs) Built() (string, error) {
	dir, err := p.folder()
	if err != nil {
		return "", err
	}
	for name := range p.Packages {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("there is no %s in %s", name, dir)
		}
	}
	return dir, nil
}

// Build builds what is missing and returns the folder of the programs. It must
// run in this repository. Of several processes one builds and the others wait.
// Progress goes to log.
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
		fmt.Fprintf(log, "building %s of %s from Go modules, once\n", name, p.Folder)
		if err := Compile(context.Background(), p.Module, p.LDFlags, p.Packages[name], path+".part"); err != nil {
			return "", err
		}
		if err := os.Rename(path+".part", path); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Compile builds the program of a package that the module in the folder below tools/
// pins, to the path out. It must run in this repository.
func Compile(ctx context.Context, module, ldflags, pkg, out string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fairlead/fairlead").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", out, pkg)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "tools", filepath.FromSlash(module))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, said)
	}
	return nil
}
