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

// removeFor bounds one removal of a step's files and containers.
const removeFor = 30 * time.Second

// remove removes everything that an attempt left, after its end was reported. If that fails, it
// continues in the background.
func (a *Agent) remove(agentCtx context.Context, attemptID string) {
	a.clear(agentCtx, attemptID, func(ctx context.Context) error { return a.tryRemove(ctx, attemptID) })
}

// clear calls try, which removes an attempt's files, and retries it in the background if it fails.
func (a *Agent) clear(agentCtx context.Context, attemptID string, try func(context.Context) error) {
	// A finished step is cleaned up even if the agent is about to end.
	err := try(context.WithoutCancel(agentCtx))
	if err == nil {
		return
	}
	a.log.Error("cannot remove all files of a finished step; the agent tries again later", "attempt", attemptID, "err", err)
	if err := a.kept(attemptID).MarkOver(); err != nil {
		a.log.Debug("cannot mark a step as over", "attempt", attemptID, "err", err)
	}
	a.background.Go(func() { a.removeLater(agentCtx, attemptID, try) })
}

// The first and the longest pause between two removals. Remaining files only take disk space.
const (
	removeSoon   = 10 * time.Second
	removeSeldom = 10 * time.Minute
)

// removeLater retries the removal until it succeeds or the agent ends. If the agent ends first, the
// next agent retries.
func (a *Agent) removeLater(agentCtx context.Context, attemptID string, try func(context.Context) error) {
	pauses := retry.Policy{First: removeSoon, Longest: removeSeldom, Random: a.options.Random}.Pauses()
	for retry.Sleep(agentCtx, pauses.NextBackOff()) == nil {
		err := try(agentCtx)
		if err == nil {
			a.log.Info("removed the remaining files of a finished step", "attempt", attemptID)
			return
		}
		a.log.Debug("cannot remove all files of a finished step yet", "attempt", attemptID, "err", err)
	}
}

// tryRemove removes everything that an attempt left. It removes the step's folder and then the agent's
// own record last: while other files remain, the next agent finds the folder and tries again.
func (a *Agent) tryRemove(ctx context.Context, attemptID string) error {
	ctx, cancel := context.WithTimeout(ctx, removeFor)
	defer cancel()
	data := a.cfg.Data
	if _, err := os.Stat(string(a.dir(attemptID))); err == nil { // otherwise no step was started
		by, err := a.executors.by(ctx, attemptID)
		if err != nil {
			return err
		}
		data = by.work(data)
		if err := by.executor.Remove(ctx, a.stepID(attemptID)); err != nil {
			return errors.Join(err, workspace.Remove(data, attemptID))
		}
		if warm := a.kept(attemptID).Warm(); warm != "" {
			if err := a.removeWarmFolders(warm); err != nil {
				return err
			}
		}
		if by.place.Shared && !by.place.Machine {
			os.Remove(filepath.Join(data, "salvage", attemptID)) // made for the step; a folder that holds a state is not empty and stays
			workspace.RemoveUnused(filepath.Join(data, "plans")) // the step sees only its own plan
		}
	}
	if err := a.removeFolders(data, attemptID); err != nil {
		return err
	}
	a.executors.release(attemptID)
	return nil
}

// removeFolders removes the folders of an attempt that works in the given data folder.
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
