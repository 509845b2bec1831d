package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// pollInterval is the time between two checks of a condition.
const pollInterval = 20 * time.Millisecond

// Process is a running server program. Not safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
}

// Start starts cmd, collects its output, and returns when ready returns nil. If ready is
// nil, Start returns at once. If the program exits before it is ready, or is not ready
// within limit, Start kills the program and returns an error with its output.
func Start(cmd *exec.Cmd, limit time.Duration, ready func() error) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	name := filepath.Base(cmd.Path)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // the output shows why it ended
		close(p.exited)
	}()
	if ready == nil {
		return p, nil
	}
	if err := p.await(limit, ready); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// await waits until ready returns nil. If the program exits before it is ready, or is not
// ready within limit, await kills the program and returns an error with its output.
func (p *Process) await(limit time.Duration, ready func() error) error {
	if err := await(p.exited, limit, ready); err != nil {
		p.Stop(0) // afterwards no goroutine writes to output
		return fmt.Errorf("%w\n%s", err, p.output.Bytes())
	}
	return nil
}

// Await calls ready every 20 ms until ready returns nil. After the duration limit it
// returns an error.
func Await(limit time.Duration, ready func() error) error { return await(nil, limit, ready) }

// await is like Await, but also returns an error when the channel exited is closed.
func await(exited <-chan struct{}, limit time.Duration, ready func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return errors.New("the program exited before it was ready")
		case <-deadline.C:
			return fmt.Errorf("not ready within %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// Stop kills the program and waits until it has exited. With a positive grace it sends
// SIGTERM first and kills the program after that time.
func (p *Process) Stop(grace time.Duration) {
	if grace > 0 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if the program has exited
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Missing skips a test that needs a missing server. The message names what is not
// tested ("CODE THAT USES SQS IS NOT TESTED") and the remedy. Missing fails the test
// instead if the environment variable named require is "1".
func Missing(t testing.TB, untested, require, remedy string, err error) {
	t.Helper()
	if os.Getenv(require) == "1" {
		t.Fatalf("%s=1, but %s: %v\n%s", require, untested, err, remedy)
	}
	t.Skipf("SKIPPED: %s: %v\n%s, or set %s=1 to fail here.", untested, err, remedy, require)
}

// Until polls the function met until it returns true. After a minute it fails the test.
// The parameter what names the condition in the message.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	over := time.NewTimer(time.Minute)
	defer over.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !met() {
		select {
		case <-over.C:
			t.Fatalf("waited a minute for %s", what)
		case <-tick.C:
		}
	}
}

// FreePort returns a port of the loopback interface that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
