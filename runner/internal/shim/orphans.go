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

// Orphans are what this process inherits if it is a subreaper (see
// proctree.BecomeSubreaper): the children of a shim that was killed, and what has
// left the control group of its attempt. They are all its children in other
// sessions than its own that it has not started itself: no process can join a
// session. A nil *Orphans is of a process that inherits nothing. Safe for
// concurrent use.
type Orphans struct {
	// Spared begins the names of the control groups in which no process is one.
	spared string

	mu  sync.Mutex
	own map[int]bool // started here, and not waited for yet
}

// NewOrphans returns the Orphans of this process, which must be a subreaper.
// What is in a control group whose name begins with spared is none of them.
func NewOrphans(spared string) *Orphans { return &Orphans{spared: spared, own: map[int]bool{}} }

// Start starts a command that has a session of its own.
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

// Wait waits for a command that Start has started.
func (o *Orphans) Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	if o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.own, cmd.Process.Pid)
	}
	return err
}

// Kill kills the orphans and all that descends from them, until there are none.
func (o *Orphans) Kill(ctx context.Context) error {
	if o == nil {
		return nil
	}
	if err := proctree.KillChildren(ctx, o.find); err != nil {
		return fmt.Errorf("end what was inherited of a job: %w", err)
	}
	return nil
}

// Reap reaps orphans that have ended by themselves, as far as none of our own
// children has ended at the same time. It does not look at all processes.
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
