//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/e2e"
)

// restartAfter is the pause of a supervisor between the end of a program and
// its next start.
const restartAfter = 500 * time.Millisecond

// program is a program with its supervisor, which restarts it. Safe for concurrent use.
type program struct {
	name    string
	command func() *exec.Cmd
	enter   func() error // moves the thread into the program's namespace; nil: none
	log     string       // file for its output

	mu    sync.Mutex
	cur   *e2e.Process  // nil while it is down
	downs time.Duration // the next pause before a start; 0: restartAfter
	stop  bool          // no more starts
	held  int           // no start while it is more than 0
	begun bool          // a start is in progress
}

// run starts the program, and starts it again when it ends, until end is called.
func (p *program) run(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			stop, held := p.stop, p.held > 0
			p.begun = !stop && !held
			p.mu.Unlock()
			if stop {
				return
			}
			if held {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err := p.once(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "soak:", err)
			}
			p.mu.Lock()
			p.begun = false
			pause := p.downs
			p.downs = 0
			p.mu.Unlock()
			if pause == 0 {
				pause = restartAfter
			}
			sleep(ctx, pause)
		}
	}()
}

func (p *program) once(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	fmt.Fprintf(log, "--- %s: started\n", time.Now().UTC().Format(time.RFC3339Nano))
	proc, err := e2e.Launch(p.name, cmd, p.enter)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.cur, p.begun = proc, false
	p.mu.Unlock()
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
	}
	p.mu.Lock()
	p.cur = nil
	p.mu.Unlock()
	fmt.Fprintf(log, "--- %s: ended with %d\n", time.Now().UTC().Format(time.RFC3339Nano), proc.ExitCode())
	return nil
}

// current returns the process, or nil while no process runs.
func (p *program) current() *e2e.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cur
}

// kill sends SIGKILL to the process. The supervisor starts it again after down. kill reports
// whether a process ran.
func (p *program) kill(down time.Duration) bool {
	p.mu.Lock()
	cur := p.cur
	p.downs = down
	p.mu.Unlock()
	if cur == nil {
		return false
	}
	cur.Kill()
	return true
}

// hold kills the process, if there is one, and prevents its start until release.
func (p *program) hold() {
	p.mu.Lock()
	p.held++
	for p.begun {
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
		p.mu.Lock()
	}
	cur := p.cur
	p.mu.Unlock()
	if cur != nil {
		cur.Kill()
	}
}

func (p *program) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
}

// signal sends a signal to the process, and reports whether there is one.
func (p *program) signal(s syscall.Signal) bool {
	cur := p.current()
	if cur != nil {
		cur.Signal(s)
	}
	return cur != nil
}

// end stops the program for good with SIGTERM. It returns an error if the exit code is not 0 or
// the program does not end within patience.
func (p *program) end(patience time.Duration) error {
	p.mu.Lock()
	p.stop = true
	cur := p.cur
	p.mu.Unlock()
	if cur == nil {
		return nil
	}
	cur.Signal(syscall.SIGTERM)
	select {
	case <-cur.Done():
		if code := cur.ExitCode(); code != 0 {
			return fmt.Errorf("%s got SIGTERM and ended with exit code %d", p.name, code)
		}
		return nil
	case <-time.After(patience):
		cur.Kill()
		return fmt.Errorf("%s got SIGTERM and did not end within %s", p.name, patience)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
