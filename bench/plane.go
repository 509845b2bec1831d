package main

import (
	"bytes"
	"cmp"
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
)

const (
	// startFor is the longest time of the start of a server or an agent.
	startFor = 20 * time.Second
	// stopFor is the longest time of a graceful stop.
	stopFor = 10 * time.Second
)

// plane is a control plane in a separate process, with its agents.
type plane struct {
	*client.Client
	b         *bench
	dir       string
	listen    string   // the server's address; a restart uses the same port
	flags     []string // of the server, beside those of each one
	tokenFile string
	server    *process
	agents    []*process
}

// unlimited are flags of a server that is to answer all requests of the bench, which are more than a caller may send by default.
func unlimited() []string {
	return []string{"--limit", "requests-per-second=1000000,requests-burst=1000000,org-requests-per-second=1000000,org-requests-burst=1000000"}
}

// startPlane starts a control plane on a new data folder and a free port.
func startPlane(ctx context.Context, b *bench, name string, flags ...string) (*plane, error) {
	p := &plane{b: b, dir: filepath.Join(b.work, name), listen: "127.0.0.1:0", flags: flags}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.startServer(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// startServer starts the server and waits until it is ready. A restart uses the same data
// and port.
func (p *plane) startServer(ctx context.Context) error {
	if err := p.launchServer(); err != nil {
		return err
	}
	var where struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	err := eventually(ctx, func() error {
		text, err := os.ReadFile(p.readyFile())
		if err != nil {
			return errors.Join(err, p.server.failed())
		}
		return json.Unmarshal(text, &where)
	})
	if err == nil {
		p.tokenFile = where.TokenFile
		p.listen = strings.TrimPrefix(where.URL, "http://")
		err = p.connect(where.URL)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start a control plane: %w", err), p.stop())
	}
	return nil
}

func (p *plane) readyFile() string { return filepath.Join(p.dir, "ready.json") }

// launchServer starts the server's process and does not wait until it is ready.
func (p *plane) launchServer() error {
	if err := os.Remove(p.readyFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	server, err := start(p.b.path("bin/fairlead"), nil, append([]string{"server", "--quiet", "--data", filepath.Join(p.dir, "data"),
		"--listen", p.listen, "--lease", p.b.counts.lease.String(), "--ready-file", p.readyFile()}, p.flags...)...)
	if err != nil {
		return err
	}
	p.server = server
	return nil
}

func (p *plane) connect(url string) error {
	token, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return err
	}
	p.Client, err = client.New(url, strings.TrimSpace(string(token)), client.Options{})
	return err
}

// agentOptions are the options of an agent. The zero value is valid.
type agentOptions struct {
	program     string   // "": bin/fairlead-runner
	concurrency int      // 0: the agent's default
	tool        string   // path of OpenTofu or Terraform
	readable    []string // further paths that a confined tool may read and run
	env         []string // further variables, as NAME=VALUE
}

// startAgent starts an agent of the runner and waits until it is online. It creates the
// runner if it does not exist. With concurrency 0 the agent uses its default. The
// parameter readable has additional paths that a confined tool may read and run.
func (p *plane) startAgent(ctx context.Context, runner string, concurrency int, tool string, readable ...string) (*process, error) {
	return p.startWith(ctx, runner, agentOptions{concurrency: concurrency, tool: tool, readable: readable})
}

// startWith is startAgent with further options.
func (p *plane) startWith(ctx context.Context, runner string, o agentOptions) (*process, error) {
	if _, err := p.GetRunner(ctx, runner); client.HasCode(err, "runner-not-found") {
		_, err = p.CreateRunner(ctx, wire.CreateRunnerRequest{Name: runner})
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	enrolment, err := p.CreateEnrolment(ctx, runner)
	if err != nil {
		return nil, err
	}
	token := filepath.Join(p.dir, "enrolment-"+runner)
	if err := os.WriteFile(token, []byte(enrolment.Token+"\n"), 0o600); err != nil {
		return nil, err
	}
	args := []string{"agent", "--shared-process", "true", "--url", p.URL(), "--data", filepath.Join(p.dir, "runner-"+runner),
		"--enrolment-token-file", token, "--log-level", "warn"}
	if o.concurrency > 0 {
		args = append(args, "--config", fmt.Sprintf("{runner_configuration: {type: local, concurrency: %d}}", o.concurrency))
	}
	env := append([]string{"FAIRLEAD_TOFU=" + o.tool, "FAIRLEAD_READABLE=" + strings.Join(o.readable, ",")}, o.env...)
	a, err := start(cmp.Or(o.program, p.b.path("bin/fairlead-runner")), env, args...)
	if err != nil {
		return nil, err
	}
	p.agents = append(p.agents, a)
	err = eventually(ctx, func() error {
		r, err := p.GetRunner(ctx, runner)
		if err == nil && r.State != "online" {
			err = errors.Join(fmt.Errorf("runner %s is %s", runner, r.State), a.failed())
		}
		return err
	})
	return a, err
}

// cli returns a CLI command that is logged in to this plane.
func (p *plane) cli(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.b.path("bin/fairlead"), args...)
	cmd.Env = append(environ(), "FAIRLEAD_URL="+p.URL(), "FAIRLEAD_TOKEN_FILE="+p.tokenFile,
		"FAIRLEAD_CONFIG_DIR="+filepath.Join(p.dir, "config"))
	return cmd
}

// runCommand runs a command. Its error contains the command's output.
func runCommand(cmd *exec.Cmd) error {
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output.Bytes())
	}
	return nil
}

// publish publishes the app in the folder dir.
func (p *plane) publish(ctx context.Context, dir string) error {
	return runCommand(p.cli(ctx, "app", "apply", dir))
}

// stop stops the agents and then the server.
func (p *plane) stop() error {
	var err error
	for _, a := range p.agents {
		err = errors.Join(err, a.stop())
	}
	return errors.Join(err, p.server.stop())
}

// environ returns the environment of all started processes. It is the environment of bench
// without the variables of Fairlead and Terraform, which could change the measurement.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "FAIRLEAD_") || strings.HasPrefix(name, "TF_") && name != "TF_CLI_CONFIG_FILE" {
			continue
		}
		if name == "TF_CLI_CONFIG_FILE" {
			if _, err := os.Stat(value); err != nil {
				continue // the file that the variable names is missing, and the tool would print a warning in each run
			}
		}
		env = append(env, v)
	}
	return append(env, "CHECKPOINT_DISABLE=1") // the tool does not check for updates
}

// process is a server or an agent.
type process struct {
	cmd    *exec.Cmd
	output *bytes.Buffer // read it only after done is closed
	done   chan struct{} // closed when the process has exited
	err    error
}

func start(program string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), output: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Env = append(environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.WaitDelay = stopFor
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// failed returns an error if the process has exited by itself.
func (p *process) failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s exited: %w\n%s", p.cmd.Path, p.err, p.output.Bytes())
	default:
		return nil
	}
}

// stop sends SIGTERM and waits until the process exits. If the process still runs after
// the duration stopFor, stop kills it and returns an error.
func (p *process) stop() error {
	if err := p.failed(); err != nil {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if the process has just exited
	select {
	case <-p.done:
		return nil
	case <-time.After(stopFor):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not exit within %s and was killed\n%s", p.cmd.Path, stopFor, p.output.Bytes())
}

// kill kills the process with SIGKILL, like a power failure, and waits until it has
// exited.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has just exited
	<-p.done
}

// eventually calls fn every 10 ms until it returns nil. After startFor it returns fn's
// last error.
func eventually(ctx context.Context, fn func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	for {
		err := fn()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
