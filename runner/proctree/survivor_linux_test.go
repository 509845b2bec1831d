package proctree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/tools/testserver"
)

// limit is the longest wait of a failing test. A passing test takes much less.
const limit = 30 * time.Second

// killedStep starts a step with the tool, a shell script. It kills the step after the tool made the file "ready", and
// returns the workspace.
func killedStep(t *testing.T, tool string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	step := exec.Command(self, "step", folder, "cd "+folder+"; echo $$ >pid; "+tool)
	if err := step.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-pid(folder), syscall.SIGKILL) })
	testserver.Until(t, "the start of the tool", func() bool {
		_, ready := os.Stat(filepath.Join(folder, "ready"))
		_, recorded := os.Stat(filepath.Join(folder, "survivor.json"))
		return ready == nil && recorded == nil
	})
	if err := step.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	step.Wait()
	return folder
}

func pid(folder string) int {
	b, _ := os.ReadFile(filepath.Join(folder, "pid"))
	n := 1 << 30 // no process
	fmt.Sscan(string(b), &n)
	return n
}

// When a step is killed, its tool is interrupted once and can still save its state.
func TestAToolOutlivesItsStepToSaveItsState(t *testing.T) {
	const save = `trap 'touch saved; exit 1' INT; `
	const flood = `head -c 500000 /dev/zero; head -c 500000 /dev/zero >&2; `
	const work = `touch ready; while :; do sleep 0.01; done`
	for name, tc := range map[string]struct {
		tool  string
		time  time.Duration // how long AwaitSurvivor may wait
		want  proctree.Outcome
		saved bool
	}{
		"it saves and ends": {save + work, limit, proctree.Ended, true},
		"more output than a pipe holds does not block it": {`trap '` + flood + `touch saved; exit 1' INT; ` + work, limit, proctree.Ended, true},
		"output after the step's death does not kill it":  {`trap 'sleep 0.1; echo one; echo two; touch saved; exit 1' INT; ` + work, limit, proctree.Ended, true},
		"a child that holds its output delays nothing":    {`sleep 1000 & ` + save + work, limit, proctree.Ended, true},
		"it ignores the interrupt until the time is over": {`trap '' INT; ` + work, 100 * time.Millisecond, proctree.Working, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := killedStep(t, tc.tool)
			ctx, cancel := context.WithTimeout(t.Context(), tc.time)
			defer cancel()
			// None is valid too: the tool may have ended before AwaitSurvivor was called.
			got, err := proctree.AwaitSurvivor(ctx, folder)
			if err != nil || got != tc.want && !(got == proctree.None && tc.want == proctree.Ended) {
				t.Errorf("AwaitSurvivor = %v, %v, want %v", got, err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(folder, "saved")); (err == nil) != tc.saved {
				t.Errorf("file saved: %v, want it to exist: %v", err, tc.saved)
			}
		})
	}
	if got, err := proctree.AwaitSurvivor(t.Context(), t.TempDir()); got != proctree.None || err != nil {
		t.Errorf("AwaitSurvivor without a tool = %v, %v, want None", got, err)
	}
}

func TestAStepGetsAllOutputOfItsTool(t *testing.T) {
	for name, tc := range map[string]struct {
		tool string
		code int
	}{
		"the tool ends":                        {`seq 1 100000; seq 1 100000 >&2`, 0},
		"a child holds the tool's output open": {`seq 1 100000; seq 1 100000 >&2; sleep 1000 & exit 3`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			var group atomic.Int64
			folder := t.TempDir()
			err := proctree.RunSurvivor(t.Context(), folder, exec.Command("/bin/sh", "-c", tc.tool), &out, &errs, func(pid int) { group.Store(int64(pid)) })
			syscall.Kill(-int(group.Load()), syscall.SIGKILL)
			code := 0
			if e, ok := errors.AsType[*exec.ExitError](err); ok {
				code = e.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			for what, b := range map[string]string{"output": out.String(), "errors": errs.String()} {
				if lines := strings.Count(b, "\n"); lines != 100_000 || !strings.HasSuffix(b, "\n100000\n") {
					t.Errorf("got %d lines of the tool's %s, want 100000", lines, what)
				}
			}
			if left, _ := os.ReadDir(folder); code != tc.code || len(left) > 0 {
				t.Errorf("the tool ended with %d, want %d; the folder still holds %v", code, tc.code, left)
			}
		})
	}
}

func TestAToolIsInterruptedOnceWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	folder := t.TempDir()
	err := proctree.RunSurvivor(ctx, folder, exec.Command("/bin/sh", "-c", `trap 'echo interrupted; exit 4' INT; echo ready >&2; while :; do sleep 0.01; done`),
		&out, onWrite(cancel), func(int) {})
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 4 || out.String() != "interrupted\n" {
		t.Errorf("the tool ended with %v and printed %q, want exit code 4 and one line: interrupted", err, out.String())
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := proctree.RunSurvivor(over, folder, exec.Command("/bin/sh", "-c", "touch "+folder+"/begun"), &out, &out, func(int) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("RunSurvivor after the end of its context = %v, want context.Canceled", err)
	}
}

// onWrite is a writer that calls itself at each write.
type onWrite func()

// Write implements io.Writer.
func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}
