//go:build unix

package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/runner/proctree"
)

// Orphans finds and kills the processes that this process adopts as a subreaper (see
// proctree.BecomeSubreaper): the children of a killed shim, and processes that left the control group
// of their attempt. An orphan is a child of this process that is in another session and that this
// process did not start. The session is a safe criterion, because no process can join an existing
// session. A process that adopts no orphans uses a nil *Orphans. Safe for concurrent use.
type Orphans struct {
	// spared is the prefix of the names of control groups whose processes are no orphans.
	spared string

	mu  sync.Mutex
	own map[int]bool // PIDs of processes that Start started and Wait has not reaped yet
}

// NewOrphans returns the Orphans of this process, which must be a subreaper. A process in a control group
// whose name begins with spared is no orphan.
func NewOrphans(spared string) *Orphans { return &Orphans{spared: spared, own: map[int]bool{}} }

// Start starts a command that gets a new session.
func (o *Orphans) Start(cmd *exec.Cmd) error {
	if o == nil {
		return cmd.Start()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		o.own[cmd.Process.Pid] = true
	}
	return err
}

// Wait waits for a command that Start started.
func (o *Orphans) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	if o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.own, cmd.Process.Pid)
	}
	return err
}

// Kill kills the orphans and their descendants until none is left.
func (o *Orphans) Kill(ctx context.Context) error {
	if o == nil {
		return nil
	}
	if err := proctree.KillChildren(ctx, o.find); err != nil {
		return fmt.Errorf("kill the orphaned processes of a job: %w", err)
	}
	return nil
}

// Reap reaps orphans that ended by themselves. It stops at an ended child that is no orphan. A later
// call of Reap continues. Reap does not scan all processes.
func (o *Orphans) Reap() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	self, err := proctree.Stat(os.Getpid())
	if err != nil {
		return
	}
	proctree.ReapWhile(func(p proctree.Info) bool { return p.Session != self.Session && !o.own[p.PID] })
}

// find returns the orphans.
func (o *Orphans) find() ([]proctree.Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	self, err := proctree.Stat(os.Getpid())
	if err != nil {
		return nil, err
	}
	all, err := proctree.All()
	if err != nil {
		return nil, err
	}
	var found []proctree.Info
	for _, p := range all {
		if p.Parent == self.PID && p.Session != self.Session && !o.own[p.PID] && !strings.HasPrefix(proctree.GroupOf(p.PID), o.spared) {
			found = append(found, p)
		}
	}
	return found, nil
}
