// Package program builds programs of this module for tests. Each is built once
// in a run of all tests: test binaries share what is in bin/test.
package program

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// RunEnv names the variable with the identifier of a run of all tests. Programs
// that were built in the same run are not built again. As go test sees that
// tests read it, no result of such a test is taken from its cache in the next
// run: go test does not know that the test depends on the program's code.
const RunEnv = "FAIRLEAD_TEST_RUN"

const module = "github.com/fairlead/fairlead"

// Build returns the path of the program whose package is at pkg below the
// module ("cmd/fairlead"). It is built for this machine, without cgo unless a
// flag is -race. flags go to go build. Callers must not change the file. Safe
// for concurrent use, also by several processes.
func Build(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	return filepath.Join(Folder(t, pkg, flags...), filepath.Base(pkg))
}

// Folder returns a folder with all programs that match the pattern below the
// module ("functions/..."), each under the last element of its import path. It
// builds them as Build does.
func Folder(t testing.TB, pattern string, flags ...string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{pattern}, flags...), "\x00")))
	name := fmt.Sprintf("%s-%x", strings.NewReplacer("/", "-", "...", "all").Replace(pattern), sum[:4])
	dir := filepath.Join(root, "bin", "test", name)
	once, _ := built.LoadOrStore(dir, sync.OnceValue(func() error { return build(root, dir, pattern, flags) }))
	if err := once.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Write writes a file that the test will start, readable and executable by all. A
// process that is forked while the file is open for writing keeps it open until it
// has begun another program, and until then Linux refuses to start the file ("text
// file busy"): tests that run in parallel fork. Write lets none begin meanwhile.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// built holds, for each folder, a function that fills it once in this process.
var built sync.Map

// build fills dir, unless a process of the same run has.
func build(root, dir, pattern string, flags []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unlock, err := testserver.Lock(dir + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	// The marker names the run that has built the programs. It is removed while they
	// are built. A build that was killed leaves files that go build refuses to
	// replace, so without the marker the folder is emptied first.
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
	// Nothing debugs what tests start, and DWARF takes the linker a third of its time.
	args := append(append([]string{"build", "-trimpath", "-ldflags=-w"}, flags...), "-o", dir+string(filepath.Separator), module+"/"+pattern)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cgo := "CGO_ENABLED=0"
	if slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return os.WriteFile(marker, []byte(run), 0o644)
}

// moduleRoot returns the folder of this module. Tests run in their package's.
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
