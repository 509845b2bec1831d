package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/workspace"
)

// removeFor bounds the removal of what an executor keeps of a step.
const removeFor = 30 * time.Second

// remove removes what an attempt has left, once its end is reported.
// What cannot be removed is left to removeLater.
func (a *Agent) remove(agentCtx context.Context, attemptID string) {
	a.clear(agentCtx, attemptID, func(ctx context.Context) error { return a.tryRemove(ctx, attemptID) })
}

// clear is remove, by try.
func (a *Agent) clear(agentCtx context.Context, attemptID string, try func(context.Context) error) {
	// What is done is tidied up also if the agent is about to end.
	err := try(context.WithoutCancel(agentCtx))
	if err == nil {
		return
	}
	a.log.Error("something of a finished step is left, and is removed later", "attempt", attemptID, "err", err)
	if err := a.kept(attemptID).MarkOver(); err != nil {
		a.log.Debug("that a step is over is not noted", "attempt", attemptID, "err", err)
	}
	a.background.Go(func() { a.removeLater(agentCtx, attemptID, try) })
}

// The pauses between two tries to remove what is left of a step. It takes space
// and nothing else.
const (
	removeSoon   = 10 * time.Second
	removeSeldom = 10 * time.Minute
)

// removeLater tries to remove what is left until that succeeds, or the agent
// ends: then the next one does.
func (a *Agent) removeLater(agentCtx context.Context, attemptID string, try func(context.Context) error) {
	pauses := retry.Policy{First: removeSoon, Longest: removeSeldom, Random: a.options.Random}.Pauses()
	for retry.Sleep(agentCtx, pauses.NextBackOff()) == nil {
		err := try(agentCtx)
		if err == nil {
			a.log.Info("what was left of a finished step is removed", "attempt", attemptID)
			return
		}
		a.log.Debug("something of a finished step is still left", "attempt", attemptID, "err", err)
	}
}

// tryRemove removes what an attempt has left. The folder of its step goes last
// but for what the agent knows of it: as long as something is left elsewhere, the
// next agent finds the folder and tries again.
func (a *Agent) tryRemove(ctx context.Context, attemptID string) error {
	ctx, cancel := context.WithTimeout(ctx, removeFor)
	defer cancel()
	data := a.cfg.Data
	if _, err := os.Stat(string(a.dir(attemptID))); err == nil { // else nothing was ever started
		by, err := a.executors.by(ctx, attemptID)
		if err != nil {
			return err
		}
		data = by.work(data)
		if err := by.executor.Remove(ctx, attemptID); err != nil {
			return errors.Join(err, workspace.Remove(data, attemptID))
		}
		if by.place.Shared && !by.place.Machine {
			os.Remove(filepath.Join(data, "salvage", attemptID)) // it was made for the step; one that holds a state stays
			workspace.RemoveUnused(filepath.Join(data, "plans")) // the step sees its own alone
		}
	}
	if err := a.removeFolders(data, attemptID); err != nil {
		return err
	}
	a.executors.release(attemptID)
	return nil
}

// removeFolders removes the folders of an attempt that works in that data folder.
func (a *Agent) removeFolders(data, attemptID string) error {
	err := workspace.Remove(data, attemptID)
	if err == nil {
		err = workspace.RemoveTree(string(a.dir(attemptID)))
	}
	if err == nil {
		err = a.kept(attemptID).Remove()
	}
	return err
}
