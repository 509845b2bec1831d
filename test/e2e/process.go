//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for a required event before it fails.
const patience = 60 * time.Second

// Until polls until cond returns true, for at most patience. what names the condition in
// the failure message.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline, pauses := time.Now().Add(patience), Pauses()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s this has not happened: %s", patience, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended before this happened: %s", what)
		case <-time.After(pauses()):
		}
	}
}

// Process is a running program.
type Process struct {
	Name string
	cmd  *exec.Cmd
	out  *buffer
	done chan struct{}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Launch starts a program. The kernel kills the program when this process ends, in any
// way. If cmd has no Stdout, Output returns its output. enter may be nil. Otherwise
// Launch calls it on the thread that starts the program, and enter may move the thread
// into other namespaces; no other goroutine uses the thread later.
func Launch(name string, cmd *exec.Cmd, enter func() error) (*Process, error) {
	p := &Process{Name: name, cmd: cmd, out: &buffer{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = p.out, p.out
	}
	// A Ctrl-C at the terminal must reach only the test. The kernel kills the program
	// if the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when the thread that started it ends
		// (Pdeathsig). A thread that may have entered other namespaces stays locked,
		// so that it ends with this goroutine.
		runtime.LockOSThread()
		if enter == nil {
			defer runtime.UnlockOSThread()
		} else if err := enter(); err != nil {
			started <- err
			return
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the exit code is in ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func start(t testing.TB, name string, env []string, program string, args ...string) *Process {
	t.Helper()
	return startIn(t, nil, name, env, program, args...)
}

// startIn is start with the parameter enter of Launch.
func startIn(t testing.TB, enter func() error, name string, env []string, program string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = env
	p, err := Launch(name, cmd, enter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s (%d):\n%s", name, p.PID(), p.Output())
		}
	})
	return p
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the output so far, unless the caller set cmd.Stdout.
func (p *Process) Output() string { return p.out.String() }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // an error means that the process has ended

// Kill sends SIGKILL to the process and waits until it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code, -1 after a signal. Call it only after Done is closed.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Exit waits for the process to end and returns its exit code, -1 after a signal.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	Until(t, "the end of "+p.Name, p.Ended)
	return p.cmd.ProcessState.ExitCode()
}

// A Proc is a process that the test did not start itself.
type Proc struct {
	PID  int
	Line string // its command line
}

func (p Proc) String() string { return strconv.Itoa(p.PID) + " " + p.Line }

// Processes returns the processes whose environment or command line contains the folder,
// without zombies.
func Processes(dir string) []Proc {
	var found []Proc
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(path + "/cmdline")
		env, _ := os.ReadFile(path + "/environ")
		if !bytes.Contains(line, []byte(dir)) && !bytes.Contains(env, []byte(dir)) {
			continue
		}
		if st, err := os.ReadFile(path + "/stat"); err != nil || strings.Contains(string(st), ") Z ") || strings.Contains(string(st), ") X ") {
			continue
		}
		found = append(found, Proc{pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))})
	}
	return found
}

// Run runs a program to its end and returns its exit code and output.
func Run(t testing.TB, program string, args ...string) (code int, output string) {
	t.Helper()
	p := start(t, filepath.Base(program), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}, program, args...)
	return p.Exit(t), p.Output()
}
