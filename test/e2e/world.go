//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Options are the options of New. The zero value is valid.
type Options struct {
	Storage     string    // of state: "local" (the default) or "http"
	ServerData  string    // data folder of the control plane; "": a new one
	RunnerData  string    // data folder of the runner; "": a new one
	ServerFlags []string  // further flags of the control plane
	ServerEnv   []string  // further variables of the control plane, as NAME=VALUE
	Firewall    *Firewall // the runner is inside, the control plane outside; nil: no firewall
	AgentEnv    []string  // further variables of the agent, as NAME=VALUE
	PassEnv     []string  // names of variables that the agent passes to its steps
}

// World is a control plane and a runner, each in its own process, with a Proxy between
// them. All its processes are killed when the test ends.
type World struct {
	Programs
	Proxy      *Proxy
	Client     *client.Client // of the control plane, as its administrator
	Server     *Process
	Agent      *Process // nil: no agent was started
	ServerData string
	RunnerData string
	Storage    string

	root   testing.TB // the test that created the world
	t      testing.TB // the test that uses it now
	dir    string
	listen string
	flags  []string  // of the control plane
	env    []string  // of the agent
	own    []string  // variables of the control plane
	pass   string    // names of variables, separated by commas, that the agent passes to its steps
	inside *Firewall // around the runner; nil: none
	agents int       // number of hosts that replaced the first host
}

// worlds counts the worlds. Each control plane has its own loopback address, so that a
// restarted control plane can use the same address again.
var worlds atomic.Int32

// New starts a control plane and a runner, and publishes the app App.
func New(t testing.TB, programs Programs, o Options) *World {
	t.Helper()
	n, pid := worlds.Add(1), os.Getpid()
	w := &World{Programs: programs, root: t, t: t, dir: t.TempDir(), ServerData: o.ServerData, RunnerData: o.RunnerData, Storage: o.Storage,
		flags: o.ServerFlags, own: o.ServerEnv, env: o.AgentEnv, pass: strings.Join(append([]string{"GORACE"}, o.PassEnv...), ","), inside: o.Firewall, listen: fmt.Sprintf("127.%d.%d.%d:8400", 1+pid%250, 1+pid/250%250, 1+n%250)}
	from := "127.0.0.1"
	if o.Firewall != nil {
		from = o.Firewall.Outside
		w.listen = from + ":8400"
	}
	if w.Storage == "" {
		w.Storage = "local"
	}
	if w.ServerData == "" {
		w.ServerData = filepath.Join(w.dir, "server")
	}
	if w.RunnerData == "" {
		w.RunnerData = filepath.Join(w.dir, "runner")
	}
	w.Proxy = newProxy(t, from, "http://"+w.listen)
	t.Cleanup(w.killStrays)
	w.StartServer()
	token, err := os.ReadFile(filepath.Join(w.ServerData, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	if w.Client, err = client.New("http://"+w.listen, strings.TrimSpace(string(token)), client.Options{PlainHTTP: true}); err != nil {
		t.Fatal(err)
	}
	w.Must("app", "apply", w.writeApp())
	w.Must("runner", "enrol", "local", "--out", w.enrolment())
	w.StartAgent()
	return w
}

func (w *World) enrolment() string { return filepath.Join(w.dir, "enrolment") }

// In lets a subtest of the world's test use the world: failures after In are failures of
// the subtest. Processes that the subtest starts run until the world's test ends.
func (w *World) In(t testing.TB) { w.t = t }

// Dir returns the folder of this world.
func (w *World) Dir() string { return w.dir }

// baseEnv returns the environment of every program. It leaves out TF_CLI_CONFIG_FILE, so
// that the user's settings of the tool do not change a test.
func (w *World) baseEnv() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "FAIRLEAD_CONFIG_DIR=" + filepath.Join(w.dir, "config"),
		"GORACE=atexit_sleep_ms=0"} // otherwise a program with the race detector ends one second late
	if w.inside != nil {
		env = append(env, "FAIRLEAD_ALLOW_PLAIN_HTTP=true") // the network inside is a namespace of this machine
	}
	return env
}

// StartServer starts the control plane and waits until it answers.
func (w *World) StartServer() {
	w.t.Helper()
	ready := filepath.Join(w.dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	w.Server = start(w.root, "fairlead server", append(w.baseEnv(), w.own...), w.Fairlead,
		append([]string{"server", "--data", w.ServerData, "--listen", w.listen, "--storage", w.Storage, "--ready-file", ready, "--verbose"}, w.flags...)...)
	Until(w.t, "the control plane is ready", func() bool {
		if w.Server.Ended() {
			w.t.Fatalf("the control plane ended: %s", w.Server.Output())
		}
		_, err := os.Stat(ready)
		return err == nil
	})
}

// SpawnAgent starts an agent on the runner's data folder and does not wait until it is
// ready.
func (w *World) SpawnAgent() *Process {
	w.t.Helper()
	var enter func() error
	if w.inside != nil {
		enter = w.inside.enter
	}
	return startIn(w.root, enter, "fairlead-runner agent", append(append(w.baseEnv(), "FAIRLEAD_TOFU="+w.Tool), w.env...), w.Runner,
		"agent", "--shared-process", "true", "--url", w.Proxy.URL, "--data", w.RunnerData, "--enrolment-token-file", w.enrolment(), "--log-level", "debug", "--pass-env", w.pass)
}

// StartAgent starts an agent, sets w.Agent to it and waits until it is ready.
func (w *World) StartAgent() {
	w.t.Helper()
	w.Agent = w.SpawnAgent()
	Until(w.t, "the agent is ready", func() bool {
		if w.Agent.Ended() {
			w.t.Fatalf("the agent ended: %s", w.Agent.Output())
		}
		return strings.Contains(w.Agent.Output(), "ready")
	})
}

// ReplaceHost starts an agent of the same runner as if on another host: with a new, empty
// data folder.
func (w *World) ReplaceHost() {
	w.t.Helper()
	w.agents++
	w.RunnerData = filepath.Join(w.dir, fmt.Sprintf("runner-%d", w.agents+1))
	if err := os.Remove(w.enrolment()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	w.Must("runner", "enrol", "local", "--out", w.enrolment())
	w.StartAgent()
}

// Result is the exit code and the output of a CLI command.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// CLI runs `fairlead args`.
func (w *World) CLI(args ...string) Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.Command, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(w.baseEnv(), "FAIRLEAD_URL=http://"+w.listen, "FAIRLEAD_TOKEN_FILE="+filepath.Join(w.ServerData, "admin-token"))
	if err := cmd.Run(); cmd.ProcessState == nil {
		w.t.Fatalf("fairlead %s: %v", strings.Join(args, " "), err)
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// Must runs `fairlead args`, fails the test if the command fails, and returns its standard
// output.
func (w *World) Must(args ...string) string {
	w.t.Helper()
	r := w.CLI(args...)
	if r.Code != 0 {
		w.t.Fatalf("fairlead %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// attempt returns the folder name of a job's latest attempt at the runner.
func attempt(j wire.Job) string { return fmt.Sprintf("%s-%d", j.ID, j.Epoch) }

// StepPID returns the process ID of the job's step; 0 if there is none.
func (w *World) StepPID(j wire.Job) int {
	b, err := os.ReadFile(filepath.Join(w.RunnerData, "steps", attempt(j), "process.json"))
	if err != nil {
		return 0
	}
	var record struct{ PID int }
	if err := json.Unmarshal(b, &record); err != nil {
		return 0
	}
	return record.PID
}

// ToolPID returns the process ID of the job's tool; 0 if there is none.
func (w *World) ToolPID(j wire.Job) int {
	b, err := os.ReadFile(filepath.Join(w.RunnerData, "work", attempt(j), "tool.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// KillStep sends SIGKILL to the job's step only.
func (w *World) KillStep(j wire.Job) { w.kill("step", j, w.StepPID) }

// KillTool sends SIGKILL to the job's tool only.
func (w *World) KillTool(j wire.Job) { w.kill("tool", j, w.ToolPID) }

// kill waits for the record of the process: the process can reach a stage before its
// record is on the disk.
func (w *World) kill(what string, j wire.Job, find func(wire.Job) int) {
	w.t.Helper()
	pid := 0
	Until(w.t, "the job has a "+what, func() bool { pid = find(j); return pid > 1 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatalf("kill %s: %v", what, err)
	}
}

// KillHost sends SIGKILL to all processes of the runner's host: the agent first, so that
// it does not notice the end of the others.
func (w *World) KillHost() {
	w.Agent.Kill()
	w.killStrays()
}

// killStrays kills the processes that the runner started.
func (w *World) killStrays() {
	deadline := time.Now().Add(patience)
	for {
		left := w.Strays()
		if len(left) == 0 || time.Now().After(deadline) {
			return
		}
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // an error means that it has ended
		}
		time.Sleep(time.Millisecond) // until they have ended: each search for them is expensive
	}
}

// Strays returns the running steps and tools, and their children.
func (w *World) Strays() []Proc {
	var found []Proc
	for _, p := range Processes(w.RunnerData + "/") {
		if (w.Agent == nil || p.PID != w.Agent.PID()) && p.PID != w.Server.PID() {
			found = append(found, p)
		}
	}
	return found
}
