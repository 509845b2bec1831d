package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// maxLog bounds how much of a program's standard error is kept, in bytes.
const maxLog = 1 << 20

// stopWhen is when the suite asks a program to stop.
type stopWhen int

const (
	never      stopWhen = iota
	atWork              // when the program writes its first event or log, or after startTime
	atMutating          // when the program sends mutating
	stepDies            // as atWork, by the end of standard input
)

// startTime is the longest wait for the first output of a program that is stopped at work.
const startTime = 500 * time.Millisecond

// outcome is one run of the program.
type outcome struct {
	op          pluginprotocol.Operation
	events      []pluginprotocol.Event
	last        pluginprotocol.Event // nil: none
	wrong       error                // the violation of the protocol
	end         string               // how the process ended: "exit code 0"
	succeeds    bool                 // exit code 0
	interrupted bool                 // the interrupt ended it
	late        bool                 // it did not end in time and was killed
	leftover    bool                 // it left processes running
	log         string
	plan        []byte // the saved plan after the run; nil: none
	extra       []string
}

func (o *outcome) finished() (pluginprotocol.Finished, bool) {
	f, ok := o.last.(pluginprotocol.Finished)
	return f, ok && o.wrong == nil && o.succeeds && !o.late
}

func (o *outcome) failed() (pluginprotocol.Failed, bool) {
	f, ok := o.last.(pluginprotocol.Failed)
	return f, ok && o.wrong == nil && !o.late
}

func (o *outcome) mutating() bool {
	for _, e := range o.events {
		if _, ok := e.(pluginprotocol.Mutating); ok {
			return true
		}
	}
	return false
}

// String describes the end of the run for a message.
func (o *outcome) String() string {
	switch f, isFailed := o.last.(pluginprotocol.Failed); {
	case o.late:
		return "it did not end in time and was killed"
	case o.wrong != nil:
		return o.wrong.Error()
	case isFailed:
		return fmt.Sprintf("it failed: %s: %s", f.Reason, f.Message)
	case o.last == nil:
		return "it ended without finished or failed, with " + o.end
	}
	return "it finished with " + o.end
}

// output receives a program's standard output. Safe for concurrent use.
type output struct {
	mu       sync.Mutex
	receiver *pluginprotocol.Receiver
	first    func() // called at each output
	broken   func()
}

func (o *output) Write(p []byte) (int, error) {
	o.first()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.receiver.Write(p); err != nil {
		o.broken()
	}
	return len(p), nil
}

// head keeps the beginning of a log. Safe for concurrent use.
type head struct {
	mu    sync.Mutex
	text  bytes.Buffer
	first func()
}

func (h *head) Write(p []byte) (int, error) {
	h.first()
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := maxLog - h.text.Len(); room > 0 {
		h.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// drainTime bounds reading the last output of a program that has ended, and the wait for the end of the processes that it started.
const drainTime = 2 * time.Second

// run runs the program once with a request line, in a new workspace. The request has the paths of that workspace.
func (s *suite) run(ctx context.Context, build func(workspace string) (line []byte, op pluginprotocol.Operation), saved []byte, stop stopWhen) (*outcome, error) {
	workspace := filepath.Join(s.scratch, "workspace") // every job of a component has the same path
	defer os.RemoveAll(workspace)
	for _, dir := range []string{"home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(workspace, dir), 0o700); err != nil {
			return nil, fmt.Errorf("create a workspace: %w", err)
		}
	}
	source := filepath.Join(workspace, "src")
	if err := os.CopyFS(source, os.DirFS(s.spec.Source)); err != nil {
		return nil, fmt.Errorf("copy the plugin's folder: %w", err)
	}
	planFile := filepath.Join(workspace, "plan")
	if saved != nil {
		if err := os.WriteFile(planFile, saved, 0o600); err != nil {
			return nil, fmt.Errorf("write the saved plan: %w", err)
		}
	}
	line, op := build(workspace)
	o := &outcome{op: op}
	err := s.process(ctx, o, source, line, stop)
	if err != nil {
		return nil, err
	}
	if b, err := os.ReadFile(planFile); err == nil {
		o.plan = b
	}
	entries, err := os.ReadDir(s.scratch)
	if err != nil {
		return nil, fmt.Errorf("read the folder of the suite: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "workspace" && e.Name() != "folder" {
			o.extra = append(o.extra, e.Name())
		}
	}
	return o, nil
}

// process is a started program.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *output
	log   *head
	wrote chan struct{} // closed when the request is written
	stop  chan struct{} // closed when the program must stop
}

func (p *process) signal(sig syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, sig) }

// process starts the program and waits for its end.
func (s *suite) process(ctx context.Context, o *outcome, source string, line []byte, stop stopWhen) error {
	ctx, cancel := context.WithTimeout(ctx, s.spec.timeout())
	defer cancel()
	p := &process{cmd: exec.Command("./" + s.program), wrote: make(chan struct{}), stop: make(chan struct{})}
	ask := sync.OnceFunc(func() { close(p.stop) })
	atFirst := func() {
		if stop == atWork || stop == stepDies {
			ask()
		}
	}
	p.log, p.out = &head{first: atFirst}, &output{first: atFirst, broken: ask}
	p.out.receiver = pluginprotocol.NewReceiver(o.op, func(e pluginprotocol.Event) {
		o.events = append(o.events, e)
		if _, ok := e.(pluginprotocol.Mutating); ok && stop == atMutating {
			ask()
		}
	})
	p.cmd.Dir, p.cmd.Env = source, s.environment(filepath.Dir(source))
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = p.out, p.log, drainTime
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return &StartError{s.program, err}
	}
	started := time.AfterFunc(startTime, atFirst)
	defer started.Stop()
	go func() {
		defer close(p.wrote)
		p.stdin.Write(line) // an error means that the program has ended
	}()
	late, err := p.wait(ctx, s.spec.grace(), stop)
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	p.stdin.Close()
	<-p.wrote
	o.late, o.leftover = late, remains(p.signal)
	p.signal(syscall.SIGKILL)
	p.conclude(o, err)
	return nil
}

// wait waits for the end of the program, which it stops when p.stop is closed or ctx ends. late reports that the program did not end
// in time and was killed. err is the error of the process.
func (p *process) wait(ctx context.Context, grace time.Duration, stop stopWhen) (late bool, err error) {
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
		p.signal(syscall.SIGKILL)
		return true, <-done
	case <-p.stop:
	}
	asked := make(chan struct{})
	go func() { // as a step does: the line, then the interrupt
		defer close(asked)
		<-p.wrote
		if stop == stepDies {
			p.stdin.Close()
		} else {
			p.stdin.Write(pluginprotocol.Control{Cancel: &pluginprotocol.Cancel{Reason: string(fairlead.ReasonCanceled)}}.Encode())
		}
		p.signal(syscall.SIGINT)
	}()
	defer func() { <-asked }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return false, err
	case <-timer.C:
		p.signal(syscall.SIGKILL)
		return true, <-done
	}
}

// conclude records the output and the end of the process, whose error is err.
func (p *process) conclude(o *outcome, err error) {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	o.last, o.wrong = p.out.receiver.Close()
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	o.log = p.log.text.String()
	o.succeeds = err == nil || errors.Is(err, exec.ErrWaitDelay)
	o.end = "exit code 0"
	if !o.succeeds {
		o.end = err.Error()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		o.interrupted = status.Signaled() && status.Signal() == syscall.SIGINT
	}
	if _, ok := o.last.(pluginprotocol.Finished); ok && o.wrong == nil && !o.succeeds && !o.late {
		o.wrong = errors.New("it sent finished and ended with " + o.end)
	}
}

// remains reports whether processes of the group still run a while after their first one has ended.
func remains(group func(syscall.Signal) error) bool {
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if errors.Is(group(0), syscall.ESRCH) {
			return false
		}
		select {
		case <-poll.C:
		case <-timer.C:
			return true
		}
	}
}

// StartError reports that the program cannot be started.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string { return fmt.Sprintf("%s cannot be started: %v", e.Program, e.Err) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// passed names the variables that a runner passes to every program.
var passed = []string{"PATH", "LANG", "LC_ALL", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"}

func (s *suite) environment(workspace string) []string {
	env := []string{"HOME=" + filepath.Join(workspace, "home"), "TMPDIR=" + filepath.Join(workspace, "tmp")}
	for _, names := range [][]string{passed, s.spec.PassEnv} {
		for _, name := range names {
			for _, v := range s.environ {
				if strings.HasPrefix(v, name+"=") {
					env = append(env, v)
				}
			}
		}
	}
	return env
}
