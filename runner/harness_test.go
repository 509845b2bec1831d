package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// TestMain lets the test binary act as the runner, so that agents and steps are real processes that a test can kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "step") {
		os.Exit(run(os.Args[1:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "aws-tool" {
		os.Exit(awsTool())
	}
	if len(os.Args) > 1 && os.Args[1] == "container" {
		os.Exit(runContainer())
	}
	if err := installLight(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	others.Stop()
	cluster.Stop()
	os.Exit(code)
}

// installLight puts the program of light steps beside the test binary, where its agents find it, as on a user's machine. A step in the
// test binary takes five times as much CPU time to start. With the race detector, all steps are the test binary, which has it.
func installLight() error {
	self, err := os.Executable()
	if err != nil || raceEnabled {
		return err
	}
	return program.Beside(filepath.Dir(self), "runner/fairlead-step", "-ldflags=-w -X main.version="+version)
}

// agentProcess is a real `runner agent`.
type agentProcess struct {
	t    testing.TB
	cmd  *exec.Cmd
	Data string
	out  *lockedBuffer
	done chan struct{}
	err  error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startAgent starts an agent with the data folder data ("": a new folder) and with additional environment variables. When the
// test ends, the agent and its steps are killed.
func startAgent(t testing.TB, s *plane.Plane, data string, env ...string) *agentProcess {
	t.Helper()
	return startProgram(t, s, "", data, env...)
}

// file returns the variable with an agent's file that has this runner_configuration.
func file(runner string) string {
	return "FAIRLEAD_AGENT_CONFIG={runner_configuration: " + runner + "}"
}

// startProgram is startAgent with another build of the runner.
func startProgram(t testing.TB, s *plane.Plane, program, data string, env ...string) *agentProcess {
	t.Helper()
	token := ""
	if data == "" {
		data = t.TempDir()
		token = s.EnrolmentToken()
	}
	return startAt(t, s.URL(), program, data, append([]string{"FAIRLEAD_ENROLMENT_TOKEN=" + token}, env...)...)
}

// startAt starts a build of the runner ("": this one) for the control plane at a URL.
func startAt(t testing.TB, url, program, data string, env ...string) *agentProcess {
	t.Helper()
	return startWith(t, url, program, data, nil, env...)
}

// startWith is startAt with process attributes.
func startWith(t testing.TB, url, program, data string, attr *syscall.SysProcAttr, env ...string) *agentProcess {
	t.Helper()
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program = self
	}
	cmd := exec.Command(program, "agent", "--url", url, "--data", data, "--log-level", "debug")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"),
		"FAIRLEAD_SHARED_PROCESS=true", // many tests have two installs; TestRunnerOfProcessesServesOneInstall has none
		"AMBIENT_SECRET=must-not-reach-a-tool", "GOCOVERDIR=" + t.TempDir(),
		// The race detector otherwise keeps every step for a second after its end.
		"GORACE=atexit_sleep_ms=0", "FAIRLEAD_PASS_ENV=GORACE"}, env...)
	cmd.SysProcAttr = attr
	return startCommand(t, cmd, data)
}

// startCommand starts an agent on data with the test's own command.
func startCommand(t testing.TB, cmd *exec.Cmd, data string) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, cmd: cmd, Data: data, out: &lockedBuffer{}, done: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { a.err = a.cmd.Wait(); close(a.done) }()
	t.Cleanup(func() {
		a.signal(syscall.SIGKILL)
		<-a.done
		a.killSteps()
		if t.Failed() {
			t.Logf("the log of agent %d:\n%s", a.cmd.Process.Pid, a.out)
			for _, f := range a.glob("steps/*/stderr") {
				b, _ := os.ReadFile(f)
				t.Logf("%s:\n%s", f, b)
			}
		}
	})
	return a
}

func (a *agentProcess) glob(pattern string) []string {
	m, err := filepath.Glob(filepath.Join(a.Data, pattern))
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

func (a *agentProcess) signal(sig syscall.Signal) { a.cmd.Process.Signal(sig) }

// kill kills the agent with SIGKILL and waits until it is gone.
func (a *agentProcess) kill() {
	a.signal(syscall.SIGKILL)
	<-a.done
}

// exit waits for the agent's end and returns its exit code.
func (a *agentProcess) exit(s *plane.Plane) int {
	a.t.Helper()
	s.Until("the end of the agent", func() bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	})
	return a.cmd.ProcessState.ExitCode()
}

// startedStep is an agent's record of a step that it started.
type startedStep struct {
	PID   int           `json:"pid"`
	Shim  *shim.Process `json:"keeper"`
	Group proctree.Group
}

// started returns the steps of the attempts. The parameter attempts is the name of an attempt, or a pattern.
func (a *agentProcess) started(attempts string) (all []startedStep) {
	for _, f := range a.glob("steps/" + attempts + "/process.json") {
		b, err := os.ReadFile(f)
		var s startedStep
		if err == nil && json.Unmarshal(b, &s) == nil {
			all = append(all, s)
		}
	}
	return all
}

// stepPID returns the process number of the job's step. It waits for the agent's record, which the agent writes after it
// has started the step: a signal to process 0 would kill the test itself.
func (a *agentProcess) stepPID(job string) (pid int) {
	a.t.Helper()
	testserver.Until(a.t, "the agent has recorded the step of "+job, func() bool {
		for _, s := range a.started(job + "-*") {
			pid = s.PID
		}
		return pid > 1
	})
	return pid
}

func (a *agentProcess) killSteps() {
	for _, s := range a.started("*") {
		if s.PID > 1 {
			syscall.Kill(s.PID, syscall.SIGKILL)
		}
		if s.Shim != nil {
			shim.Kill(context.Background(), *s.Shim)
		}
		s.Group.Remove(context.Background())
	}
}

// empty reports whether no folder of any step is left on disk.
func (a *agentProcess) empty() bool {
	return len(a.glob("steps/*")) == 0 && len(a.glob("work/*")) == 0
}

func checkSpec() events.JobSpec {
	return events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 5}
}

func hasLine(log []byte, text string) bool { return strings.Contains(string(log), text) }
