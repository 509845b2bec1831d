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

// look is how often a condition is looked at that nobody announces.
const look = 20 * time.Millisecond

// Process is a program of the tests' own that serves. Its methods may be called
// by one goroutine at a time.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
}

// Start starts cmd, whose output it keeps, and returns once ready has no error;
// nil: at once. A program that ends before, or is not ready within limit, is
// killed, and the error has what it said.
func Start(cmd *exec.Cmd, limit time.Duration, ready func() error) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	name := filepath.Base(cmd.Path)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended shows in the output
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

// await waits until ready has no error. The error of a program that ended, or
// was not ready in time, has what it printed.
func (p *Process) await(limit time.Duration, ready func() error) error {
	if err := await(p.exited, limit, ready); err != nil {
		p.Stop(0) // after which nobody writes to output
		return fmt.Errorf("%w\n%s", err, p.output.Bytes())
	}
	return nil
}

// Await waits until ready has no error, for limit at most.
func Await(limit time.Duration, ready func() error) error { return await(nil, limit, ready) }

// await calls ready again and again until it has no error, for limit at most.
// It gives up when exited is closed.
func await(exited <-chan struct{}, limit time.Duration, ready func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return errors.New("it ended at once")
		case <-deadline.C:
			return fmt.Errorf("not ready within %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// Stop ends the program and waits for its end: with SIGTERM first, if it has a
// grace.
func (p *Process) Stop(grace time.Duration) {
	if grace > 0 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Missing skips a test for want of a server, and says loudly what remains
// untested ("THE DYNAMODB ENGINE IS NOT TESTED") and what a person can do; or
// fails it when the variable of the environment named require is "1".
func Missing(t testing.TB, untested, require, remedy string, err error) {
	t.Helper()
	if os.Getenv(require) == "1" {
		t.Fatalf("%s=1, and %s: %v\n%s", require, untested, err, remedy)
	}
	t.Skipf("SKIPPED: %s: %v\n%s, or set %s=1 to fail here.", untested, err, remedy, require)
}

// Until waits for a condition that nobody announces; it fails the test when it
// is not met after a minute.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	over := time.NewTimer(time.Minute)
	defer over.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !met() {
		select {
		case <-over.C:
			t.Fatalf("waited in vain for %s", what)
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
