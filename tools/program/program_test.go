package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/tools/program"
)

const small = "tools/lines"

func TestBuild(t *testing.T) {
	path := program.Build(t, small)
	cmd := exec.Command(path)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("the program does not run: %v\n%s", err, out)
	}
	if other := program.Build(t, small, "-ldflags=-s -w"); other == path {
		t.Errorf("other flags return the same program %s", other)
	}
}

// A program of another module is built once, with the versions that the module's go.mod pins.
func TestOtherModulesProgram(t *testing.T) {
	path := program.Other(t, "tools/gotestsum", "gotest.tools/gotestsum")
	if again := program.Other(t, "tools/gotestsum", "gotest.tools/gotestsum"); again != path {
		t.Errorf("the second call returns %s, want %s", again, path)
	}
	if out, err := exec.Command(path, "--version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "gotestsum version ") {
		t.Errorf("the program does not run: %v\n%s", err, out)
	}
}

// A second process of the same run uses the program that the first has built. A process
// of another run builds it again, because the code may have changed.
func TestProgramIsBuiltOnceInARun(t *testing.T) {
	process := func(id string) error {
		cmd := exec.Command(os.Args[0], "-test.run=^TestBuild$")
		cmd.Env = append(os.Environ(), program.RunEnv+"="+id)
		return cmd.Run()
	}
	path := filepath.Join(program.Folder(t, small), "lines")
	if err := process(t.Name() + "-1"); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	part := whole[:1024] // go build refuses to replace this file, because it is not a complete program
	if err := os.WriteFile(path, part, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := process(t.Name() + "-1"); err == nil {
		t.Error("the same run did not use the existing file")
	}
	if now, err := os.ReadFile(path); err != nil || len(now) != len(part) {
		t.Errorf("the same run built the program twice: %v", err)
	}
	if err := process(t.Name() + "-2"); err != nil {
		t.Errorf("another run did not build the program: %v", err)
	}
}

// A program that was written with only os.WriteFile cannot always be started: a process
// that another test forks during the write keeps the file open ("text file busy").
func TestWrittenProgramStartsWhileOthersFork(t *testing.T) {
	small, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{})
	defer close(done)
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command(small).Run()
				}
			}
		})
	}
	for n := range 300 {
		path := filepath.Join(t.TempDir(), strconv.Itoa(n))
		program.Write(t, path, content)
		if err := exec.Command(path).Run(); err != nil {
			t.Fatalf("start %d: %v", n, err)
		}
	}
}
