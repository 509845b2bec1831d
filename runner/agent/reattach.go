package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/workspace"
)

// reattach finds the steps of an earlier agent: steps that still run, steps that ended while no agent
// ran, and steps whose end was not reported yet.
func (a *Agent) reattach(agentCtx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder))
	if err != nil {
		return fmt.Errorf("look for steps of an earlier agent: %w", err)
	}
	known := map[string]bool{}
	warm := a.warmOf(entries)
	for _, e := range entries {
		if a.isWarm(e.Name()) {
			known[e.Name()] = true // of a warm step: its attempt has its own folder, or it is ended below
			continue
		}
		_, epoch, err := attempt.ParseID(e.Name())
		if err != nil {
			a.log.Warn("ignoring a folder that is not a step's", "name", e.Name())
			continue
		}
		known[e.Name()] = true
		a.running.Go(a.recoverStep(agentCtx, e.Name(), epoch))
	}
	for folder, remove := range map[string]func(attemptID string) error{
		workspace.Root: func(attemptID string) error { return workspace.Remove(a.cfg.Data, attemptID) },
		attemptsFolder: func(attemptID string) error { return a.kept(attemptID).Remove() },
	} {
		left, err := os.ReadDir(filepath.Join(a.cfg.Data, folder))
		if err != nil {
			return fmt.Errorf("look for files of an earlier agent in %s: %w", folder, err)
		}
		for _, e := range left {
			if known[e.Name()] {
				continue
			}
			if err := remove(e.Name()); err != nil {
				a.log.Error("cannot remove all files of a finished step; the next agent tries again", "attempt", e.Name(), "err", err)
			}
		}
	}
	for _, id := range warm { // after the removal above, which could remove what it records
		a.running.Go(func() { a.recoverWarm(agentCtx, id) })
	}
	return nil
}

// recoverStep returns the function that handles one step's folder. If the step runs, recoverStep adds
// it to the running steps before it returns.
func (a *Agent) recoverStep(agentCtx context.Context, attemptID string, epoch int64) func() {
	kept := a.kept(attemptID)
	if kept.Over() {
		return func() { a.remove(agentCtx, attemptID) }
	}
	if d, ok := kept.Died(); ok {
		return func() { a.reportDeath(agentCtx, attemptID, epoch, d) }
	}
	in, inErr := kept.Input()
	by, err := a.executors.by(agentCtx, attemptID)
	var h executor.Handle
	if err == nil {
		h, err = by.executor.Attach(agentCtx, a.stepID(attemptID))
	}
	if h != nil && h.ID() != attemptID {
		h = assignedHandle{h, attemptID}
	}
	switch {
	case err == nil:
		a.log.Info("watching a step of an earlier agent", "attempt", attemptID)
		a.add(agentCtx, h, by, in)
		return func() { a.watch(agentCtx, h, epoch) }
	case errors.Is(err, executor.ErrGone):
		if inErr != nil {
			return func() {
				a.reportDeath(agentCtx, attemptID, epoch, wire.DiedRequest{Epoch: epoch, Reason: string(fairlead.CauseLaunchFailed),
					Message: "the agent was restarted before it could start the step"})
			}
		}
		return func() { a.watch(agentCtx, h, epoch) } // Wait returns at once
	default:
		return func() {
			a.log.Error("cannot find out whether a step of an earlier agent runs; it is not watched", "attempt", attemptID, "err", err)
		}
	}
}
