package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	// aheadFor bounds one request for steps to start ahead, and one request that ends a warm step.
	aheadFor = 15 * time.Second
	// maxAhead is the largest number of warm steps. It is the API's limit.
	maxAhead = 50
	// keepEvery is how often the agent tries to replace missing warm steps for first jobs.
	keepEvery = 30 * time.Second
	// chainAhead is how many steps an agent may have at once to start the jobs of a chain together: the first job of a
	// chain of four components, and the seven that follow. More slots allow more.
	chainAhead = 8
	// endedByAgent is how long after its time the agent ends a warm step that did not end itself.
	endedByAgent = 2 * time.Minute
)

// warmStep is a step that was started before its job was known.
type warmStep struct {
	wire.WarmStep
	assigned chan wire.Claim // receives the claim of its job; capacity 1
	surplus  chan struct{}   // closed when the step is not needed
}

// startsAhead reports whether the agent may have steps that wait for a job. A claim is a long poll: the agent
// may start a warm step while the poll waits, so the poll does not report what the agent has when it begins.
func (a *Agent) startsAhead() bool {
	starts, _ := a.executors.ahead()
	return starts
}

// afterClaim starts steps for the next jobs of the claimed job's deployment. It returns before they have started, but
// after the agent knows them, so that the next claim can use them.
func (a *Agent) afterClaim(ctx, agentCtx context.Context, c wire.Claim) {
	if c.WarmStep == "" {
		a.makeRoom()
	}
	if err := a.startAhead(ctx, agentCtx, wire.AheadRequest{Job: c.Job, Epoch: c.Epoch}); err != nil && ctx.Err() == nil {
		a.log.Warn("cannot start steps ahead; the next jobs start steps of their own", "job", c.Job, "err", err)
	}
}

// room returns the largest number of running and warm steps together. A warm step holds no job, so it does not use a slot
// of the jobs; but it costs as much as a running step. So both together are at most twice the slots, and no more than a
// chain of four components needs: more could exceed the account's quota. An agent with more slots than that starts no more
// steps than it has slots. With four slots, one job can have seven warm steps.
func room(slots int) int { return max(slots, min(2*slots, chainAhead)) }

// makeRoom ends a warm step if the agent has more steps than room: a job that exists is more important.
func (a *Agent) makeRoom() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.steps)+len(a.warm) <= room(a.executors.capacity()) {
		return
	}
	for _, w := range a.warm {
		select {
		case <-w.surplus:
		default:
			close(w.surplus)
			return
		}
	}
}

// keepFirst keeps the configured number of warm steps for first jobs until ctx ends. A warm step whose time is over is
// replaced.
func (a *Agent) keepFirst(ctx, agentCtx context.Context) {
	onChange := &change{log: a.log}
	for {
		_, first := a.executors.ahead()
		var again <-chan time.Time
		if first = cmp.Or(first, a.cfg.WarmTasks); first > 0 {
			err := a.startAhead(ctx, agentCtx, wire.AheadRequest{First: min(first, maxAhead)})
			if ctx.Err() == nil {
				onChange.error("cannot start steps ahead for first jobs; they start steps of their own", err)
			}
			again = time.After(keepEvery)
		}
		select {
		case <-a.aheadNow:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// startAhead asks which steps to start ahead, and starts them, if there is room.
func (a *Agent) startAhead(ctx, agentCtx context.Context, in wire.AheadRequest) error {
	if starts, _ := a.executors.ahead(); !starts || !a.begins() {
		return nil
	}
	a.oneAhead.Lock() // two requests at once would not know the steps of each other
	defer a.oneAhead.Unlock()
	a.mu.Lock()
	in.Most = min(room(a.executors.capacity())-len(a.steps), maxAhead) - len(a.warm)
	first := 0
	for id, w := range a.warm {
		in.Have = append(in.Have, id)
		if w.Deployment == "" {
			first++
		}
	}
	a.mu.Unlock()
	if in.Most <= 0 || in.Job == "" && first >= in.First {
		return nil
	}
	slices.Sort(in.Have)
	var steps []wire.WarmStep
	request, cancel := context.WithTimeout(ctx, aheadFor)
	defer cancel()
	err := a.session.do(request, func(c *client.Client) (err error) {
		steps, err = c.StartAhead(request, in)
		return err
	})
	for _, s := range steps {
		w := &warmStep{WarmStep: s, assigned: make(chan wire.Claim, 1), surplus: make(chan struct{})}
		a.mu.Lock()
		a.warm[w.ID] = w
		a.mu.Unlock()
		a.running.Go(func() { a.tend(ctx, agentCtx, w) })
	}
	return err
}

// tend starts a warm step and waits until a job is assigned to it or it ends. From its assignment on, it is the step of
// an attempt like any other.
func (a *Agent) tend(claiming, agentCtx context.Context, w *warmStep) {
	log := a.log.With("warm", w.ID, "role", w.Role)
	h, err := a.startWarm(agentCtx, w)
	if err != nil {
		log.Warn("cannot start a step ahead; its job starts a step of its own", "err", err)
		h = unstarted(w.ID)
	} else {
		log.Debug("step started ahead", "deployment", w.Deployment)
	}
	waiting, stop := context.WithCancel(agentCtx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = h.Wait(waiting) // the exit matters only if a job was assigned: watch waits again
	}()
	expired := time.NewTimer(w.ExpiresAt.Sub(a.now()) + endedByAgent)
	defer expired.Stop()
	select {
	case c := <-w.assigned:
		a.adopt(agentCtx, h, w.ID, c)
		return
	case <-ended:
	case <-claiming.Done():
	case <-w.surplus:
	case <-expired.C:
	}
	a.settle(agentCtx, h, w.ID)
	select {
	case c := <-w.assigned: // its claim no longer held, or settle found it first
		a.gone(attempt.ID(fairlead.JobID(c.Job), c.Epoch))
	default:
	}
}

// settle ends a warm step of this agent, or of an earlier one. If a job was assigned to it, settle watches it instead:
// the answer to the claim may have been lost. Only after the control plane has confirmed that the step gets no job, its
// processes are killed.
func (a *Agent) settle(agentCtx context.Context, h executor.Handle, id string) {
	onChange := &change{log: a.log.With("warm", id)}
	c, err := retry.Do(agentCtx, patient(a.options), func(ctx context.Context) (c wire.Claim, err error) {
		ctx, cancel := context.WithTimeout(ctx, aheadFor)
		defer cancel()
		err = a.session.do(ctx, func(cl *client.Client) (err error) {
			c, err = cl.EndWarmStep(ctx, id)
			return err
		})
		if errors.Is(err, client.ErrNoWork) || client.HasCode(err, fairlead.CodeWarmStepNotFound) {
			return wire.Claim{}, nil
		}
		if agentCtx.Err() == nil {
			onChange.error("cannot end a warm step yet; the agent tries again", err)
		}
		return c, err
	})
	switch {
	case err != nil:
		return // the agent ends; the next one continues
	case c.Job != "":
		a.adopt(agentCtx, h, id, c)
		return
	}
	if by, err := a.executors.by(agentCtx, id); err == nil {
		a.killAll(agentCtx, by, h)
	}
	if agentCtx.Err() != nil {
		return
	}
	a.forgetWarm(id)
	a.removeWarm(agentCtx, id)
	a.log.Debug("a step that was started ahead got no job", "warm", id)
}

func (a *Agent) forgetWarm(id string) {
	a.mu.Lock()
	delete(a.warm, id)
	a.mu.Unlock()
	notify(a.aheadNow)
}

// startWarm starts a step that waits for a job of its role.
func (a *Agent) startWarm(ctx context.Context, w *warmStep) (executor.Handle, error) {
	if err := attempt.CheckID(w.ID); err != nil {
		return nil, err
	}
	by, err := a.executors.assign(w.ID)
	if err != nil {
		return nil, err
	}
	in := by.placed(a.input(wire.Claim{InstallID: w.InstallID}))
	in.InstallKey, in.KeyByDefault = a.seedReference(by), a.seedByDefault(by)
	in.Warm = &attempt.Warm{ID: w.ID, Role: component.Role(w.Role), Expires: w.ExpiresAt}
	var identity string
	if in.Role, identity = roleOf(a.options.Stack, environment(a.environ, "AWS_REGION"), component.Role(w.Role)); in.Role != nil && in.Role.ARN == "" {
		return nil, fmt.Errorf("the customer's stack has no role %q", w.Role)
	}
	if _, err := a.folders(w.ID, in); err != nil {
		return nil, err
	}
	if err := a.executors.keep(w.ID, by); err != nil {
		return nil, err
	}
	s, err := a.describe(by, w.ID, in, boundToken(w.Token, identity, w.Bindable))
	if err != nil {
		return nil, err
	}
	s.Identity, s.Role = identity, component.Role(w.Role)
	sized(&s, w.Size)
	return by.executor.Start(ctx, s)
}

// assign hands a claim to the warm step that it names. If this agent has no such step, it releases the claim.
func (a *Agent) assign(agentCtx context.Context, attemptID string, c wire.Claim) {
	a.mu.Lock()
	s, w := a.steps[attemptID], a.warm[c.WarmStep]
	found := s != nil && s.handle != nil // the end of the warm step found the claim first
	if w != nil && !found {
		found = true
		w.assigned <- c // a warm step gets one claim
	}
	a.mu.Unlock()
	if !found {
		a.release(agentCtx, attemptID, c)
	}
}

// unstarted is the handle of a step that did not start.
type unstarted string

// ID returns the step's ID.
func (u unstarted) ID() string { return string(u) }

// Wait returns at once.
func (u unstarted) Wait(context.Context) (executor.Exit, error) {
	return executor.Never(fairlead.CauseLaunchFailed, "the step could not be started ahead"), nil
}

// Interrupt does nothing: the step does not run.
func (u unstarted) Interrupt() error { return nil }

// Kill does nothing: the step does not run.
func (u unstarted) Kill(context.Context) error { return nil }

// Output is empty.
func (u unstarted) Output(context.Context, int) (string, error) { return "", nil }

// assignedHandle is the step of an attempt that its executor knows under the ID of a warm step.
type assignedHandle struct {
	executor.Handle
	attemptID string
}

// ID returns the attempt's ID.
func (h assignedHandle) ID() string { return h.attemptID }

// adopt makes a warm step the step of the claimed job's attempt, and watches it to its end.
func (a *Agent) adopt(agentCtx context.Context, h executor.Handle, id string, c wire.Claim) {
	attemptID := attempt.ID(fairlead.JobID(c.Job), c.Epoch)
	by, err := a.executors.by(agentCtx, id)
	var in attempt.Input
	if err == nil {
		in, err = a.kept(id).Input()
	}
	if err == nil {
		in = in.WithJob(c)
		err = a.keepAssigned(attemptID, id, by, in)
	}
	if err != nil {
		a.log.Error("cannot record the job of a warm step; if this agent ends, the end of the step is noticed when its lease expires", "warm", id, "attempt", attemptID, "err", err)
	}
	if by == nil {
		a.gone(attemptID)
		a.forgetWarm(id)
		return
	}
	a.add(agentCtx, assignedHandle{h, attemptID}, by, in)
	a.forgetWarm(id)
	a.watch(agentCtx, assignedHandle{h, attemptID}, c.Epoch)
}

// keepAssigned records that a warm step runs an attempt. The step's folder comes last: the next agent looks for
// attempts there, and ends a warm step without an attempt as if it had no job, which finds the claim again.
func (a *Agent) keepAssigned(attemptID, warm string, by *launcher, in attempt.Input) error {
	a.executors.share(warm, attemptID)
	kept, err := attempt.Keep(string(a.kept(attemptID)), in)
	if errors.Is(err, fs.ErrExist) {
		kept, err = a.kept(attemptID), nil // an earlier agent began to record it
	}
	if err == nil {
		err = kept.SaveWarm(warm)
	}
	if err == nil {
		err = a.executors.keep(attemptID, by)
	}
	if err == nil {
		_, err = attempt.Create(string(a.dir(attemptID)), in)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// stepID returns the ID under which the executor knows an attempt's step.
func (a *Agent) stepID(attemptID string) string { return cmp.Or(a.kept(attemptID).Warm(), attemptID) }

// removeWarm removes what the agent and its executor keep of a warm step.
func (a *Agent) removeWarm(agentCtx context.Context, id string) {
	a.clear(agentCtx, id, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, removeFor)
		defer cancel()
		by, err := a.executors.by(ctx, id)
		if err == nil {
			err = by.executor.Remove(ctx, id)
		}
		if err == nil {
			err = a.removeWarmFolders(id)
		}
		return err
	})
}

// removeWarmFolders removes the folders of a warm step, which its executor has removed.
func (a *Agent) removeWarmFolders(id string) error {
	err := workspace.RemoveTree(string(a.dir(id)))
	if err == nil {
		err = a.kept(id).Remove()
	}
	if err == nil {
		a.executors.release(id)
	}
	return err
}

// isWarm reports whether the folder of that name is of a warm step.
func (a *Agent) isWarm(name string) bool {
	in, err := a.kept(name).Input()
	return err == nil && in.Warm != nil && in.Warm.ID == name
}

// warmOf returns the IDs of the warm steps that run no attempt, of the folders of steps.
func (a *Agent) warmOf(folders []os.DirEntry) []string {
	taken := map[string]bool{}
	for _, e := range folders {
		taken[a.kept(e.Name()).Warm()] = true
	}
	var warm []string
	for _, e := range folders {
		if name := e.Name(); a.isWarm(name) && !taken[name] {
			warm = append(warm, name)
		}
	}
	return warm
}

// recoverWarm ends a warm step that an earlier agent started, or watches it if it has a job.
func (a *Agent) recoverWarm(agentCtx context.Context, id string) {
	by, err := a.executors.by(agentCtx, id)
	var h executor.Handle
	if err == nil {
		h, err = by.executor.Attach(agentCtx, id)
	}
	if err != nil && !errors.Is(err, executor.ErrGone) {
		a.log.Error("cannot find out whether a warm step of an earlier agent runs; it ends when its time is over", "warm", id, "err", err)
		return
	}
	a.settle(agentCtx, h, id)
}
