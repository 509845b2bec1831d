package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
)

const (
	// findFor is how long after its start an agent looks for steps of agents that it replaces. Such an agent drains for
	// minutes, or the control plane knows after a minute that it is lost. Later, a search would only cost requests.
	findFor = 10 * time.Minute
	// adoptFor bounds one request that asks whose steps are found.
	adoptFor = 15 * time.Second
)

// adoptOthers looks for steps that agents with another disk started, and watches those whose agent is gone. It begins when
// begin is closed. It returns when ctx ends, or when findFor is over and no such step is left.
func (a *Agent) adoptOthers(ctx, agentCtx context.Context, begin <-chan struct{}) {
	select {
	case <-begin:
	case <-ctx.Done():
		return
	}
	onChange := &change{log: a.log}
	for began := a.now(); ; {
		left, err := a.findOthers(ctx, agentCtx)
		if ctx.Err() != nil {
			return
		}
		onChange.error("cannot look for steps of an earlier agent; if one of them dies, its lease ends it", err)
		if err == nil && left == 0 && a.now().Sub(began) > findFor {
			return
		}
		if retry.Sleep(ctx, a.beats.longest()) != nil {
			return
		}
	}
}

// findOthers watches the steps of agents that are gone. It returns how many steps of other agents are left.
func (a *Agent) findOthers(ctx, agentCtx context.Context) (left int, err error) {
	finder := a.executors.finder()
	if finder == nil {
		return 0, nil
	}
	ids, err := finder.Find(ctx)
	if err != nil {
		return 0, err
	}
	var in wire.AdoptRequest
	for _, id := range ids {
		// Each step of this agent has a folder before it is started, until after its end.
		if _, err := os.Lstat(string(a.dir(id))); !errors.Is(err, fs.ErrNotExist) || attempt.CheckID(id) != nil {
			continue
		}
		if job, epoch, err := attempt.ParseID(id); err == nil {
			in.Attempts = append(in.Attempts, wire.Attempt{Job: string(job), Epoch: epoch})
		} else if strings.HasPrefix(id, fairlead.PrefixWarmStep) {
			in.WarmSteps = append(in.WarmSteps, id)
		}
	}
	if left = len(in.Attempts) + len(in.WarmSteps); left == 0 {
		return 0, nil
	}
	var found wire.AdoptedSteps
	request, cancel := context.WithTimeout(ctx, adoptFor)
	defer cancel()
	err = a.session.do(request, func(c *client.Client) error {
		found, err = c.AdoptSteps(request, in)
		return err
	})
	if err != nil {
		return left, err
	}
	for _, c := range found.Claims {
		if err := a.watchOther(agentCtx, c); err != nil {
			a.log.Error("cannot watch a step of an earlier agent; the agent tries again", "job", c.Job, "epoch", c.Epoch, "err", err)
		} else {
			left--
		}
	}
	for _, id := range found.Ended {
		a.killOther(agentCtx, id)
		left--
	}
	return left, nil
}

// watchOther watches a step as if this agent had started it.
func (a *Agent) watchOther(agentCtx context.Context, c wire.Claim) (err error) {
	if err := errors.Join(attempt.CheckID(c.Job), checkEpoch(c.Epoch)); err != nil {
		return err
	}
	attemptID := attempt.ID(fairlead.JobID(c.Job), c.Epoch)
	step, in := attemptID, a.input(c)
	if c.WarmStep != "" {
		if err := attempt.CheckID(c.WarmStep); err != nil {
			return err
		}
		step, in.Warm = c.WarmStep, &attempt.Warm{ID: c.WarmStep}
	}
	by, err := a.executors.assign(step)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // the next search tries again
			err = errors.Join(err, a.removeWarmFolders(step))
		}
	}()
	in = by.placed(in)
	if _, err := a.folders(step, in); err != nil {
		return err
	}
	if err := a.executors.keep(step, by); err != nil {
		return err
	}
	h, err := by.executor.Attach(agentCtx, step)
	if err != nil && !errors.Is(err, executor.ErrGone) {
		return err
	}
	a.log.Info("watching a step of an earlier agent", "attempt", attemptID, "step", step)
	if c.WarmStep != "" {
		a.running.Go(func() { a.adopt(agentCtx, h, step, c) })
		return nil
	}
	a.add(agentCtx, h, by, in)
	a.running.Go(func() { a.watch(agentCtx, h, c.Epoch) })
	return nil
}

// killOther kills a warm step of an earlier agent that gets no job. A step that cannot be killed ends when its time is
// over.
func (a *Agent) killOther(agentCtx context.Context, id string) {
	by, err := a.executors.assign(id)
	if err != nil {
		return
	}
	a.running.Go(func() {
		defer a.executors.release(id)
		h, err := by.executor.Attach(agentCtx, id)
		if err == nil {
			a.killAll(agentCtx, by, h)
		}
	})
}
