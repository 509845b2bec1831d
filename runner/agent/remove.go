package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/runner/internal/pause"
	"github.com/fairlead/fairlead/runner/internal/plugin/terraform"
	"github.com/fairlead/fairlead/runner/internal/workspace"
)

// removeFor bounds the removal of what an executor keeps of a step.
const removeFor = 30 * time.Second

// remove removes what an attempt has left, once its end is reported.
// What cannot be removed is left to removeLater.
func (a *Agent) remove(life context.Context, attempt string) {
	a.clear(life, attempt, func(ctx context.Context) error { return a.tryRemove(ctx, attempt) })
}

// clear is remove, by try.
func (a *Agent) clear(life context.Context, attempt string, try func(context.Context) error) {
	// What is done is tidied up also if the agent is about to end.
	err := try(context.WithoutCancel(life))
	if err == nil {
		return
	}
	a.log.Error("something of a finished step is left, and is removed later", "attempt", attempt, "err", err)
	if err := a.kept(attempt).MarkOver(); err != nil {
		a.log.Debug("that a step is over is not noted", "attempt", attempt, "err", err)
	}
	a.aside.Go(func() { a.removeLater(life, attempt, try) })
}

// The pauses between two tries to remove what is left of a step. It takes space
// and nothing else.
const (
	removeSoon   = 10 * time.Second
	removeSeldom = 10 * time.Minute
)

// removeLater tries to remove what is left until that succeeds, or the agent
// ends: then the next one does.
func (a *Agent) removeLater(life context.Context, attempt string, try func(context.Context) error) {
	pauses := pause.Growing(removeSoon, removeSeldom, a.options.random())
	for {
		sleep(life, pauses.NextBackOff())
		if life.Err() != nil {
			return
		}
		err := try(life)
		if err == nil {
			a.log.Info("what was left of a finished step is removed", "attempt", attempt)
			return
		}
		a.log.Debug("something of a finished step is still left", "attempt", attempt, "err", err)
	}
}

// tryRemove removes what an attempt has left. The folder of its step goes last
// but for what the agent knows of it: as long as something is left elsewhere, the
// next agent finds the folder and tries again.
func (a *Agent) tryRemove(ctx context.Context, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, removeFor)
	defer cancel()
	data := a.cfg.Data
	if _, err := os.Stat(string(a.dir(attempt))); err == nil { // else nothing was ever started
		by, err := a.ways.by(ctx, attempt)
		if err != nil {
			return err
		}
		data = by.work(data)
		if err := by.executor.Remove(ctx, attempt); err != nil {
			return errors.Join(err, workspace.Remove(data, attempt))
		}
		if by.place.Shared && !by.place.Machine {
			os.Remove(filepath.Join(data, "salvage", attempt)) // it was made for the step; one that holds a state stays
			terraform.PrunePlans(filepath.Join(data, "plans")) // the step sees its own alone
		}
	}
	if err := a.removeFolders(data, attempt); err != nil {
		return err
	}
	a.ways.release(attempt)
	return nil
}

// removeFolders removes the folders of an attempt that works in that data folder.
func (a *Agent) removeFolders(data, attempt string) error {
	err := workspace.Remove(data, attempt)
	if err == nil {
		err = workspace.RemoveTree(string(a.dir(attempt)))
	}
	if err == nil {
		err = a.kept(attempt).Remove()
	}
	return err
}
