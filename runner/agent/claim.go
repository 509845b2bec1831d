package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/retry"
)

const (
	// claimWait is the longest wait for a job in one request. It is the API's limit.
	claimWait = 20 * time.Second
	// claimSlack is the time that a response may take in addition to claimWait.
	claimSlack = 15 * time.Second
	// emptyPause is the pause after an empty response that arrived early.
	emptyPause = time.Second
)

// claimLoop claims jobs while a slot is free.
func (a *Agent) claimLoop(ctx, agentCtx context.Context) {
	onChange := &change{log: a.log}
	pause := patient(a.options).Pauses()
	for {
		polling, ok := a.waitForRoom(ctx)
		if !ok {
			return
		}
		sentAt := a.now()
		claim, err := a.work.next(polling)
		if polling.Err() == nil {
			a.status.Polled(err)
		}
		switch {
		case err == nil:
			onChange.error("", nil)
			pause.Reset()
			a.status.Claimed(kindOf(claim))
			a.running.Add(1)
			a.reserve(claim)
			notify(a.gotJob)
			go func() {
				defer a.running.Done()
				a.follow(agentCtx, claim)
				a.launch(agentCtx, claim)
			}()
			a.afterClaim(ctx, agentCtx, claim)
		case polling.Err() != nil:
			// The agent drains, or the customer's mode changed. If the response carried a claim,
			// its lease expires.
		case errors.Is(err, client.ErrNoWork):
			onChange.error("", nil)
			pause.Reset()
			if a.now().Sub(sentAt) < emptyPause {
				retry.Sleep(ctx, emptyPause)
			}
		case errors.Is(err, errKeysWanted):
			notify(a.beatNow)
		default:
			onChange.error("cannot claim jobs", err)
			retry.Sleep(ctx, pause.NextBackOff())
		}
	}
}

// follow gets the runner's configuration if it changed since the last heartbeat. An idle agent sends
// few heartbeats, and the claimed job must start with the configuration that the runner has now.
func (a *Agent) follow(ctx context.Context, c wire.Claim) {
	if c.Configuration == "" || c.Configuration == a.executors.revision() {
		return
	}
	if err := a.beat(ctx, false); err != nil {
		a.log.Warn("cannot get the runner's new configuration; the job starts with the one that the agent has", "job", c.Job, "err", err)
	}
}

// waitForRoom waits until a slot is free. It returns the context for the next poll, which ends when
// the customer's mode forbids new jobs. If ctx ends first, it returns false.
func (a *Agent) waitForRoom(ctx context.Context) (context.Context, bool) {
	for ctx.Err() == nil {
		a.mu.Lock()
		if a.endPoll != nil {
			a.endPoll()
		}
		var polling context.Context
		polling, a.endPoll = context.WithCancel(ctx)
		room := a.customerMode.Mode.TakesJobs() && len(a.steps) < a.executors.capacity()
		a.mu.Unlock()
		if room {
			return polling, true
		}
		a.status.NoRoom()
		select {
		case <-a.freed:
			a.status.NoRoom()
		case <-ctx.Done():
		}
	}
	return nil, false
}
