//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/e2e"
)

// The sizes of the disks in bytes. The disks are in memory, and are large enough for a long run.
const (
	serverDisk = 2 << 30
	hostDisk   = 512 << 20
)

// world is a control plane and the hosts of its runners.
type world struct {
	programs
	dir    string // folder of this run
	data   string // data folder of the control plane
	wall   *clock // of the control plane's machine
	net    *network
	disks  bool // whether each data folder is on its own disk
	listen string
	server *program
	client *client.Client
	hosts  []*host
	skips  []string // faults that this system does not permit, with the reason
}

// wireTo is the connection between a host and the control plane: a link or a relay.
type wireTo interface{ set(weather) }

// host is a host of a runner, with one agent.
type host struct {
	name    string
	runner  string
	storage string
	data    string
	wire    wireTo
	wall    *clock
	agent   *program
}

// layout has the hosts. A runner with local storage keeps its states on its host's disk, so it
// has one host. The other runner has two.
var layout = [...]struct{ name, runner, storage string }{
	{"alone", "local", "local"}, {"east", "shared", "http"}, {"west", "shared", "http"},
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// ledger is the file to which tools append.
func (w *world) ledger() string { return w.path("ledger", "ledger") }

// newWorld creates the machines without starting programs. w.skips lists what this system does
// not permit.
func newWorld(dir string, p programs, isolated error) (*world, error) {
	// This run has its own loopback address, in case it has no network namespace.
	pid := os.Getpid()
	w := &world{programs: p, dir: dir, data: filepath.Join(dir, "server"), listen: fmt.Sprintf("127.%d.%d.77:8400", 1+pid%250, 1+pid/250%250)}
	for _, d := range []string{"ledger", "logs", "server", "home"} {
		if err := os.MkdirAll(w.path(d), 0o700); err != nil {
			return nil, err
		}
	}
	err := errors.Join(writeApp(w.path("app"), w.path("ledger", "note.sh")),
		os.WriteFile(w.path("ledger", "note.sh"), fmt.Appendf(nil, noteScript, w.ledger(), linesPrinted), 0o600),
		os.WriteFile(w.path("ledger", "tofu"), fmt.Appendf(nil, toolScript, w.ledger(), w.path("ledger"), p.Tool), 0o700),
		os.WriteFile(w.ledger(), nil, 0o600))
	if err != nil {
		return nil, err
	}
	if isolated != nil {
		w.skips = append(w.skips, fmt.Sprintf("DISK FAULTS NOT RUN, AND THE NETWORK IS A RELAY: there are no own namespaces: %v", isolated))
	} else {
		if w.net, err = newNetwork(); err != nil {
			w.skips = append(w.skips, fmt.Sprintf("THE NETWORK IS A RELAY, which holds bytes and loses none: %v", err))
		} else {
			w.listen = serverIP + ":8400"
		}
		if err = e2e.Mount(w.data, serverDisk, false); err != nil {
			w.skips = append(w.skips, fmt.Sprintf("DISK FAULTS NOT RUN: this user may not mount a file system: %v", err))
		} else {
			w.disks = true
		}
	}
	if w.wall, err = newClock(w.path("clock-server")); err != nil {
		return nil, err
	}
	w.server = &program{name: "server", log: w.path("logs", "server.log"), command: func() *exec.Cmd {
		cmd := exec.Command(p.Fairlead, "server", "--data", w.data, "--listen", w.listen)
		cmd.Env = append(w.env(), clockVariable+"="+w.wall.path)
		return cmd
	}}
	for i, l := range layout {
		h, err := w.newHost(byte(i+1), l.name, l.runner, l.storage)
		if err != nil {
			return nil, err
		}
		w.hosts = append(w.hosts, h)
	}
	return w, nil
}

func (w *world) newHost(number byte, name, runner, storage string) (*host, error) {
	h := &host{name: name, runner: runner, storage: storage, data: w.path("host-" + name)}
	err := os.MkdirAll(h.data, 0o700)
	if err != nil {
		return nil, err
	}
	if w.disks {
		if err := e2e.Mount(h.data, hostDisk, false); err != nil {
			return nil, fmt.Errorf("mount the disk of %s: %w", name, err)
		}
	}
	var enter func() error
	url := "http://" + w.listen
	if w.net != nil {
		l, err := w.net.join(number)
		if err != nil {
			return nil, err
		}
		h.wire, enter = l, l.enter
	} else {
		r, err := newRelay(w.listen)
		if err != nil {
			return nil, err
		}
		h.wire, url = r, "http://"+r.address()
	}
	if h.wall, err = newClock(w.path("clock-" + name)); err != nil {
		return nil, err
	}
	h.agent = &program{name: "agent of " + name, enter: enter, log: w.path("logs", "agent-"+name+".log"), command: func() *exec.Cmd {
		cmd := exec.Command(w.Runner, "agent", "--shared-process", "true", "--url", url, "--data", h.data, "--config", "{runner_configuration: {type: local, concurrency: 4}}",
			"--enrolment-token-file", w.path("enrolment-"+name), "--pass-env", clockVariable)
		cmd.Env = append(w.env(), "FAIRLEAD_TOFU="+w.path("ledger", "tofu"), "FAIRLEAD_READABLE="+w.programs.Tool, clockVariable+"="+h.wall.path)
		return cmd
	}}
	return h, nil
}

// env returns the environment of every program.
func (w *world) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.path("home"), "FAIRLEAD_CONFIG_DIR=" + w.path("home", "config"), "CHECKPOINT_DISABLE=1",
		"FAIRLEAD_ALLOW_PLAIN_HTTP=true"} // the hosts are namespaces of this machine
}

// start starts all programs and publishes the app.
func (w *world) start(ctx context.Context) error {
	w.server.run(ctx)
	if err := w.answers(ctx, time.Minute); err != nil {
		return err
	}
	for _, h := range w.hosts {
		if _, err := w.client.GetRunner(ctx, h.runner); client.HasCode(err, "runner-not-found") {
			if _, err := w.client.CreateRunner(ctx, wire.CreateRunnerRequest{Name: h.runner, Storage: h.storage}); err != nil {
				return err
			}
		}
		e, err := w.client.CreateEnrolment(ctx, h.runner)
		if err != nil {
			return err
		}
		if err := os.WriteFile(w.path("enrolment-"+h.name), []byte(e.Token+"\n"), 0o600); err != nil {
			return err
		}
		h.agent.run(ctx)
	}
	if code, _, stderr := w.cli(ctx, "app", "apply", w.path("app")); code != 0 {
		return fmt.Errorf("publish the app: %s", stderr)
	}
	for _, h := range w.hosts {
		if err := w.until(ctx, time.Minute, "the agent of "+h.name+" has enrolled", func() bool {
			_, err := os.Stat(filepath.Join(h.data, "identity.json"))
			return err == nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// answers waits until the control plane answers.
func (w *world) answers(ctx context.Context, patience time.Duration) error {
	return w.until(ctx, patience, "the control plane answers", func() bool {
		if w.client == nil {
			token, err := os.ReadFile(filepath.Join(w.data, "admin-token"))
			if err != nil {
				return false
			}
			c, err := client.New("http://"+w.listen, strings.TrimSpace(string(token)), client.Options{Retries: 2, PlainHTTP: true})
			if err != nil {
				return false
			}
			w.client = c
		}
		asked, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := w.client.Meta(asked)
		return err == nil
	})
}

// until polls until cond returns true, for at most patience.
func (w *world) until(ctx context.Context, patience time.Duration, what string, cond func() bool) error {
	deadline := time.Now().Add(patience)
	for !cond() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s this has not happened: %s", patience, what)
		}
		sleep(ctx, 5*time.Millisecond)
	}
	return nil
}

// cli runs a command of the CLI and returns its exit code, standard output and standard error.
func (w *world) cli(ctx context.Context, args ...string) (code int, out, errs string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.Fairlead, args...)
	cmd.Env = append(w.env(), "FAIRLEAD_URL=http://"+w.listen, "FAIRLEAD_TOKEN_FILE="+filepath.Join(w.data, "admin-token"))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		return -1, "", err.Error()
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// A part is a process that an agent or its step started: a step or a tool.
type part struct {
	host    *host
	attempt string
	pid     int
}

// alive returns the running steps of the host, or its running tools.
func (h *host) alive(tools bool) []part {
	var found []part
	pattern, read := "steps/*/process.json", func(b []byte) (pid int) {
		var record struct{ PID int }
		if json.Unmarshal(b, &record) != nil {
			return 0
		}
		return record.PID
	}
	if tools {
		pattern, read = "work/*/tool.pid", func(b []byte) (pid int) {
			_, _ = fmt.Sscan(string(b), &pid) // pid stays 0 if the file has no number
			return pid
		}
	}
	paths, _ := filepath.Glob(filepath.Join(h.data, pattern)) // the pattern is valid
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		attempt := filepath.Base(filepath.Dir(p))
		// The kernel reuses process IDs, so the process must have the attempt in its
		// environment.
		if pid := read(b); pid > 1 && marked(pid, attempt) {
			found = append(found, part{h, attempt, pid})
		}
	}
	return found
}

func marked(pid int, attempt string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains(string(env), attempt)
}

// strays returns the live processes that the host's agent started, with their children.
func (h *host) strays() []e2e.Proc {
	var found []e2e.Proc
	agent := h.agent.current()
	for _, p := range e2e.Processes(h.data + "/") {
		if agent == nil || p.PID != agent.PID() {
			found = append(found, p)
		}
	}
	return found
}

// signalAll sends a signal to the strays.
func (h *host) signalAll(s syscall.Signal) {
	for _, p := range h.strays() {
		_ = syscall.Kill(p.PID, s) // an error means that it has ended
	}
}

// killAll kills the strays until none remains, also if new ones start meanwhile.
func (h *host) killAll() {
	for range 1000 {
		left := h.strays()
		if len(left) == 0 {
			return
		}
		for _, p := range left {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

func (w *world) filler(data string) string { return filepath.Join(data, "filler") }

// free removes the filler, so that the disk has space again.
func (w *world) free(data string) error {
	if err := os.Remove(w.filler(data)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
