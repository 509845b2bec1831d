// Package program builds programs of this module for tests. A run of all tests builds
// each program once; the test binaries share it in bin/test.
package program

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// RunEnv names the environment variable with the identifier of a run of all tests. A
// program of the same run is not built again. The variable also keeps go test from
// reusing cached results in the next run, because go test sees that the tests read the
// variable. Without the variable, go test would use an old result although the program's
// code has changed.
const RunEnv = "FAIRLEAD_TEST_RUN"

const module = "github.com/fairlead/fairlead"

// Build builds the program of package pkg, a path below the module ("cmd/fairlead"), and
// returns the program's path. The program is for this machine, and without cgo unless a
// flag is -race. flags are flags of go build. Callers must not change the file. Safe for
// concurrent use, also by several processes.
func Build(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	return filepath.Join(Folder(t, pkg, flags...), filepath.Base(pkg))
}

// Folder builds all programs that match the pattern below the module ("functions/...")
// and returns their folder. Each program is named by the last element of its import path.
// Otherwise Folder is like Build.
func Folder(t testing.TB, pattern string, flags ...string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return folder(t, root, root, module+"/"+pattern, flags)
}

// Other builds a program of another module and returns its path: the package at the import
// path, with the versions that the module in the folder below the root pins
// ("tools/providers"). The program has no symbol table, as it is not of this repository.
// Otherwise Other is like Build.
func Other(t testing.TB, below, importPath string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder(t, root, filepath.Join(root, below), importPath, []string{"-ldflags=-s -w"}), path.Base(importPath))
}

// folder builds the programs that match the pattern of import paths, with the go.mod of
// the folder from. It returns their folder below root.
func folder(t testing.TB, root, from, pattern string, flags []string) string {
	t.Helper()
	dir, err := built(root, from, pattern, flags)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Path is Build for code that has no test, such as TestMain.
func Path(pkg string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := built(root, root, module+"/"+pkg, flags)
	return filepath.Join(dir, filepath.Base(pkg)), err
}

// Beside builds the program of package pkg and copies it to the folder. It is for TestMain of a test binary that plays a program
// which looks for this one beside itself.
func Beside(folder, pkg string, flags ...string) error {
	path, err := Path(pkg, flags...)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, filepath.Base(pkg)), content, 0o755)
}

// built is folder without a test.
func built(root, from, pattern string, flags []string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{pattern}, flags...), "\x00")))
	short := strings.TrimPrefix(pattern, module+"/")
	name := fmt.Sprintf("%s-%x", strings.NewReplacer("/", "-", "...", "all").Replace(short), sum[:4])
	dir := filepath.Join(root, "bin", "test", name)
	once, _ := builds.LoadOrStore(dir, sync.OnceValue(func() error { return build(from, dir, pattern, flags) }))
	return dir, once.(func() error)()
}

// Copies builds the programs of packages of this module, and returns a new folder with a copy of each. They are copies, because
// a confined job may not leave the folder by a link.
func Copies(t testing.TB, packages ...string) (dir string) {
	t.Helper()
	return CopiesWith(t, nil, packages...)
}

// CopiesWith is like Copies. flags are flags of go build.
func CopiesWith(t testing.TB, flags []string, packages ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, pkg := range packages {
		text, err := os.ReadFile(Build(t, pkg, flags...))
		if err != nil {
			t.Fatal(err)
		}
		Write(t, filepath.Join(dir, filepath.Base(pkg)), text)
	}
	return dir
}

// Write writes a program that the test will start, readable and executable by all users.
// While it writes, it blocks forks. Otherwise a process that another test forks would
// inherit the open file. Until that process calls exec, Linux refuses to start the file
// ("text file busy").
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// builds maps each folder to a function that builds its programs once in this process.
var builds sync.Map

// build builds the programs into dir with the go.mod of the folder from, unless a process
// of the same run has built them.
func build(from, dir, pattern string, flags []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unlock, err := testserver.Lock(dir + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	// The marker file contains the run that built the programs; it does not exist during a
	// build. A killed build leaves files that go build refuses to replace. So without the
	// marker, build empties the folder first.
	run, marker := os.Getenv(RunEnv), dir+".run"
	last, err := os.ReadFile(marker)
	switch {
	case err == nil && run != "" && string(last) == run:
		return nil
	case err != nil:
		err = os.RemoveAll(dir)
	default:
		err = os.Remove(marker)
	}
	if err != nil {
		return err
	}
	// -w omits DWARF: no test needs it, and it takes a third of the linker's time.
	args := append(append([]string{"build", "-trimpath", "-ldflags=-w"}, flags...), "-o", dir+string(filepath.Separator), pattern)
	cmd := exec.Command("go", args...)
	cmd.Dir = from
	cgo := "CGO_ENABLED=0"
	if slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return os.WriteFile(marker, []byte(run), 0o644)
}

// moduleRoot returns the root folder of this module, searching up from the working
// directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && strings.HasPrefix(string(text), "module "+module+"\n"):
			return dir, nil
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return "", err
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("no folder above the test has the go.mod of %s", module)
		}
	}
}
