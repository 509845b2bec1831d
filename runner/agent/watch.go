package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/logship"
	"github.com/fairlead/fairlead/runner/internal/mode"
	"github.com/fairlead/fairlead/runner/internal/pause"
	"github.com/fairlead/fairlead/runner/internal/plugin/agentlog"
	"github.com/fairlead/fairlead/runner/internal/plugin/terraform"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/internal/status"
	"github.com/fairlead/fairlead/runner/internal/stepdir"
	"github.com/fairlead/fairlead/runner/internal/survivor"
	"github.com/fairlead/fairlead/runner/internal/workspace"
)

// passes reports whether a step gets the variable of the agent's environment:
// what the operator names, and what the network takes to be reached; on the
// agent's own machine also what programs need to be found there.
func (a *Agent) passes(by *launcher, name string) bool {
	switch name {
	case stepdir.TokenVariable, executor.InputVariable:
		return false
	case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "LANG", "LC_ALL", "TZ":
		return true
	case "PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR":
		if by.place.Machine {
			return true
		}
	}
	return slices.Contains(a.cfg.PassEnv, name)
}

func jobOf(attempt string) (string, int64) {
	job, epoch, err := stepdir.ParseID(attempt)
	if err != nil {
		return attempt, 0
	}
	return string(job), epoch
}

func (a *Agent) dir(attempt string) stepdir.Dir {
	return stepdir.Dir(filepath.Join(a.cfg.Data, stepsFolder, attempt))
}

func (a *Agent) kept(attempt string) stepdir.Kept {
	return stepdir.Kept(filepath.Join(a.cfg.Data, attemptsFolder, attempt))
}

// folders makes the folders of an attempt. The agent's own is there first: a
// step's folder without it would be one of which nothing is known.
func (a *Agent) folders(attempt string, in stepdir.Input) (stepdir.Dir, error) {
	if _, err := stepdir.Keep(string(a.kept(attempt)), in); err != nil {
		return "", err
	}
	return stepdir.Create(string(a.dir(attempt)), in)
}

// reserve counts the claim's step as running before it is launched.
func (a *Agent) reserve(c wire.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps[stepdir.ID(fairlead.JobID(c.Job), c.Epoch)] = &step{kind: kindOf(c), of: componentOf(c.InstallID, c.Component), over: make(chan struct{})}
}

// componentOf names a component among all of a runner's; "" if a job is of none.
func componentOf(install, component string) string {
	if install == "" || component == "" {
		return ""
	}
	return install + "/" + component
}

func (a *Agent) add(life context.Context, h executor.Handle, by *launcher, in stepdir.Input) {
	grace := in.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	s := &step{handle: h, of: componentOf(in.InstallID, in.Component), grace: grace, kind: status.Kind{Plugin: in.Plugin, Operation: in.Operation}, killFor: by.place.KillFor, over: make(chan struct{})}
	a.mu.Lock()
	a.steps[h.ID()] = s
	stopping := a.stopping || a.word.Mode == mode.Disabled
	a.mu.Unlock()
	if stopping {
		a.urge(life, s)
	}
}

func (a *Agent) gone(attempt string) {
	a.mu.Lock()
	if s := a.steps[attempt]; s != nil {
		close(s.over)
	}
	delete(a.steps, attempt)
	a.mu.Unlock()
	notify(a.freed)
}

// launch starts the step of a claim and watches it to its end.
func (a *Agent) launch(life context.Context, c wire.Claim) {
	attempt := stepdir.ID(fairlead.JobID(c.Job), c.Epoch)
	log := a.log.With("job", c.Job, "epoch", c.Epoch)
	if err := errors.Join(stepdir.CheckID(c.Job), check(c.Epoch)); err != nil {
		a.gone(attempt)
		log.Error("claim refused", "err", err)
		return
	}
	if !a.begins() {
		// Claimed at the last moment: another agent can have it at once.
		a.gone(attempt)
		a.status.Ended(kindOf(c), "released", stepdir.Tally{})
		if err := a.session.do(life, func(cl *client.Client) error { return cl.Release(life, c.Job, c.Epoch) }); err != nil {
			log.Warn("the claim was not given back; it runs out by itself", "err", err)
		}
		return
	}
	if c.Plugin == agentlog.Name {
		a.sendLog(life, attempt, c)
		return
	}
	h, err := a.start(life, attempt, c)
	if err != nil {
		// Not given back: that costs no attempt, so a runner that can launch
		// nothing would claim and release for ever.
		a.gone(attempt)
		a.status.Ended(kindOf(c), launchReason(err), stepdir.Tally{})
		log.Error("step not launched", "err", err)
		a.settle(life, attempt, c.Epoch, wire.DiedRequest{Epoch: c.Epoch, Reason: launchReason(err), Message: err.Error(), DiskFull: workspace.DiskFull(err)})
		return
	}
	log.Debug("step launched", "operation", c.Operation, "component", c.Component)
	a.watch(life, h, c.Epoch)
}

func check(epoch int64) error {
	if epoch < 1 {
		return fmt.Errorf("epoch %d", epoch)
	}
	return nil
}

// begins reports whether a step may be begun.
func (a *Agent) begins() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.draining && a.word.Mode.Takes()
}

// input is what a step of the claim is told, but for its role and where it is.
func (a *Agent) input(c wire.Claim) stepdir.Input {
	in := stepdir.Input{
		URL: a.id.URL, Registry: a.session.registryHost(), Runner: a.id.RunnerID, Keys: a.id.Keys,
		Job: fairlead.JobID(c.Job), Epoch: c.Epoch, Operation: c.Operation, Plugin: c.Plugin,
		Install: c.Install, InstallID: c.InstallID, Component: c.Component, PlanJob: c.PlanJob, Grace: time.Duration(c.GraceSeconds) * time.Second, StartBefore: c.StartBefore,
		Data: a.cfg.Data, Tofu: a.cfg.Tofu, PluginCache: a.cfg.PluginCache, CLIConfig: a.cfg.CLIConfig, PassEnv: a.cfg.PassEnv,
		CA: a.options.ca, PlainHTTP: a.cfg.AllowPlainHTTP,
	}
	return in
}

// placed adds where the step is, and what differs there.
func (by *launcher) placed(in stepdir.Input) stepdir.Input {
	in.Data, in.Work = by.place.Data, by.work("")
	in.SecretEnv = by.setup.SecretEnv
	in.PassEnv = slices.Concat(in.PassEnv, by.place.PassEnv, in.SecretEnv)
	in.URL = cmp.Or(by.setup.StepURL, in.URL)
	return in
}

func (a *Agent) start(ctx context.Context, attempt string, c wire.Claim) (executor.Handle, error) {
	role, err := operationRole(a.options.Stack, environment(a.environ, "AWS_REGION"), c)
	if err != nil {
		return nil, err
	}
	by, err := a.ways.assign(attempt)
	if err != nil {
		return nil, err
	}
	added, secrets, err := by.environ()
	if err != nil {
		return nil, err
	}
	in := by.placed(a.input(c))
	in.Role, in.Confined = role, a.confined(by)
	if by.place.Shared {
		a.awaitBefore(ctx, attempt)
		in.Providers = a.cache.Usable(c.InstallID)
	}
	folders, err := foldersOf(attempt, in)
	if err != nil {
		return nil, err
	}
	// Made for a step that does not see it, too: it is by this folder that the
	// next agent knows of the attempt.
	if _, err := a.folders(attempt, in); err != nil {
		return nil, err
	}
	if err := a.ways.keep(attempt, by); err != nil {
		return nil, err
	}
	s := executor.Step{ID: attempt, Args: []string{"step", "--dir", path.Join(by.place.Data, stepsFolder, attempt)},
		Env: added, Folders: folders, Site: workspace.SiteOf(c.InstallID, c.Component), Secrets: append(secrets, stepdir.TokenVariable+"="+c.LaunchToken)}
	if !by.place.Shared {
		b, err := stepdir.Encode(in)
		if err != nil {
			return nil, err
		}
		s.Input = b
	}
	for _, v := range a.environ {
		name, _, _ := strings.Cut(v, "=")
		if _, said := by.setup.Environ[name]; said || slices.Contains(in.SecretEnv, name) {
			continue
		}
		if a.passes(by, name) || role != nil && by.place.Machine && slices.Contains(passedForRole, name) {
			s.Env = append(s.Env, v)
		}
	}
	h, err := by.executor.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	a.add(ctx, h, by, in)
	return h, nil
}

// watch waits for the step's end and settles what it leaves.
func (a *Agent) watch(life context.Context, h executor.Handle, epoch int64) {
	exit, err := h.Wait(life)
	if err != nil {
		return // the agent ends; the next one watches on
	}
	dir := a.dir(h.ID())
	by, err := a.ways.by(life, h.ID())
	if err != nil {
		a.log.Error("nobody knows how a step was started", "attempt", h.ID(), "err", err)
		return
	}
	// Of a step whose folder is elsewhere the exit code says it.
	clean := exit.Code != nil && *exit.Code == stepdir.ExitFinished && (dir.Finished() || !by.place.Shared)
	survived := survivor.None
	if !clean {
		if survived = a.letSave(life, by, h.ID(), exit); life.Err() != nil {
			return // the next agent waits on
		}
		// Whatever the step has started must be gone before anybody hears that
		// the step is: the answer to the report may be another attempt.
		if a.killAll(life, by, h); life.Err() != nil {
			return // the next agent does
		}
	}
	a.keepProviders(by, h.ID())
	a.gone(h.ID())
	a.count(h.ID(), clean, exit)
	if clean || dir.Finished() {
		a.remove(life, h.ID())
		return
	}
	d := a.obituary(life, by, h, epoch, exit)
	switch survived {
	case survivor.Ended:
		d.Message += "\nThe tool was interrupted with its step, had time to save its state, and has ended."
	case survivor.Working:
		d.Message += "\nThe tool was interrupted with its step, did not end in time, and was killed: its state may lack what it made last."
	}
	kept, err := workspace.Salvage(by.work(a.cfg.Data), h.ID())
	d.Salvaged = kept
	if err != nil {
		a.log.Error("a state that the tool could not save is at risk", "attempt", h.ID(), "err", err)
		d.Message += "\nThe tool had left a state that it could not save: " + err.Error()
	} else if kept != nil {
		d.Message += "\nThe tool had left a state that it could not save; the runner keeps it in " + kept.Path + " of its data folder."
	}
	a.settle(life, h.ID(), epoch, d)
}

// settleFor bounds the wait for the step before.
const settleFor = 10 * time.Second

// awaitBefore waits until an earlier step of the same component is over, whose end
// the control plane may hear of before we do: what it has fetched need not be
// fetched again. One that goes on all the same is waited for no longer.
func (a *Agent) awaitBefore(ctx context.Context, attempt string) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	a.mu.Lock()
	var before []chan struct{}
	if mine := a.steps[attempt]; mine != nil && mine.of != "" {
		for _, s := range a.steps {
			if s != mine && s.of == mine.of {
				before = append(before, s.over)
			}
		}
	}
	a.mu.Unlock()
	for _, over := range before {
		select {
		case <-over:
		case <-ctx.Done():
			return
		}
	}
}

// keepProviders keeps the providers that a job has fetched. Nothing of its step is
// alive.
func (a *Agent) keepProviders(by *launcher, attempt string) {
	if !by.place.Shared {
		return
	}
	in, err := a.kept(attempt).Input()
	if err != nil {
		a.log.Warn("the providers of a job are not kept", "attempt", attempt, "err", err)
		return
	}
	a.cache.Take(a.dir(attempt).Path(providers.Private), in.InstallID)
}

// killAll returns when nothing of the step is left, or with the agent's life.
// What cannot be killed, as a process that the kernel holds up or one of another
// user, keeps its place; if it does for longer than the lease, the control plane
// gives the job up.
func (a *Agent) killAll(life context.Context, by *launcher, h executor.Handle) {
	told := &change{log: a.log.With("attempt", h.ID())}
	pauses := patient(a.options)
	for {
		kill, cancel := context.WithTimeout(life, by.place.KillFor)
		err := h.Kill(kill)
		cancel()
		if life.Err() != nil {
			return
		}
		told.error("something of the step is still alive, so its end is not reported yet", err)
		if err == nil {
			return
		}
		sleep(life, pauses.NextBackOff())
	}
}

// count counts a step that has ended.
func (a *Agent) count(attempt string, clean bool, exit executor.Exit) {
	if a.status == nil {
		return
	}
	dir := a.dir(attempt)
	in, err := a.kept(attempt).Input()
	if err != nil {
		a.log.Debug("a step is counted without its kind", "err", err)
	}
	t, result := dir.Tally(), exit.Reason
	switch {
	case t.Outcome != "":
		result = t.Outcome
	case clean || dir.Finished():
		result = "reported"
	}
	a.status.Ended(status.Kind{Plugin: in.Plugin, Operation: in.Operation}, result, t)
}

// launchReason says why a step was not launched.
func launchReason(err error) string {
	if e, ok := errors.AsType[*executor.LaunchError](err); ok {
		return e.Reason
	}
	return executor.LaunchFailed
}

// letSave waits for the tool of a step that died, if it is one that has a state
// to save: the death of its step has interrupted it. Nobody hears of the death
// meanwhile, because nothing that could be done about it may be done before
// the tool has ended.
func (a *Agent) letSave(life context.Context, by *launcher, attempt string, exit executor.Exit) survivor.Outcome {
	if !by.place.Machine {
		return survivor.None // a container ends with the step, which is its first process
	}
	if exit.Code != nil {
		switch *exit.Code {
		case stepdir.ExitFinished, stepdir.ExitStale, stepdir.ExitNotStarted, stepdir.ExitUndelivered, stepdir.ExitDiskFull:
			return survivor.None // it has ended its tool itself
		}
	}
	limit := a.saveTime(attempt)
	os.Remove(filepath.Join(workspace.Path(by.work(a.cfg.Data), attempt), workspace.Reserve)) // it may be what the tool needs now; most have none
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	began := a.now()
	o, err := a.options.awaitTool()(ctx, workspace.Path(by.work(a.cfg.Data), attempt))
	if err != nil {
		a.log.Error("the tool of a dead step gets no time to save its state", "attempt", attempt, "err", err)
	}
	if o != survivor.None {
		a.log.Info("a step died; its tool was interrupted", "attempt", attempt, "ended", o == survivor.Ended, "took", a.now().Sub(began), "limit", limit)
	}
	return o
}

// maxSave is how long a tool whose step has died may take to save its state.
const maxSave = 20 * time.Second

// saveTime bounds letSave. A lease lasts three periods of renewal, so two are
// left at least when the step dies; a third of them is kept for the killing, the
// rest of the log, and the report. With a lease of 45 s that makes 20 s.
func (a *Agent) saveTime(attempt string) time.Duration {
	in, err := a.kept(attempt).Input()
	if err != nil {
		return 0
	}
	limit := maxSave
	if in.Grace > 0 {
		limit = min(limit, in.Grace)
	}
	if renew := a.dir(attempt).Renew(); renew > 0 {
		limit = min(limit, renew*4/3)
	}
	return limit
}

// maxLastWords is how much of a dead step's own output is reported, in bytes.
const maxLastWords = 2 << 10

// outputFor bounds the reading of a dead step's own output.
const outputFor = 10 * time.Second

func (a *Agent) obituary(life context.Context, by *launcher, h executor.Handle, epoch int64, exit executor.Exit) wire.DiedRequest {
	d := wire.DiedRequest{Epoch: epoch, ExitCode: exit.Code, Signal: exit.Signal, Reason: exit.Reason, Message: exit.Message,
		DiskFull: exit.Code != nil && *exit.Code == stepdir.ExitDiskFull}
	var said string
	if by.place.Shared {
		said = a.dir(h.ID()).Tail(stepdir.StderrFile, maxLastWords)
	}
	if said == "" {
		ctx, cancel := context.WithTimeout(life, outputFor)
		defer cancel()
		var err error
		if said, err = h.Output(ctx, maxLastWords); err != nil {
			a.log.Warn("what a dead step has said is not known", "attempt", h.ID(), "err", err)
		}
	}
	if words := strings.TrimSpace(redact.New().String(said)); words != "" {
		if d.Message != "" {
			d.Message += "\n"
		}
		d.Message += words
	}
	return d
}

// wireReason is what the control plane calls a Reason. It tells apart what
// another attempt may mend; the message says the rest.
func wireReason(reason string) string {
	if reason == executor.ImagePull {
		return executor.LaunchFailed
	}
	return reason
}

// settle reports a death until the control plane has heard it, then removes
// what the attempt has left. The report is on disk first: if this agent ends,
// the next one makes it.
func (a *Agent) settle(life context.Context, attempt string, epoch int64, d wire.DiedRequest) {
	job, _ := jobOf(attempt)
	kept := a.kept(attempt)
	d.Reason = wireReason(d.Reason)
	if _, err := os.Stat(string(kept)); err == nil {
		if err := kept.SaveDied(d); err != nil {
			a.log.Error("the report is not kept", "attempt", attempt, "err", err)
		}
	}
	if by, err := a.ways.by(life, attempt); err != nil || !by.place.Shared {
		d.Log = nil // the step has sent all that there is to be had of it
	} else if d.Log = a.rescueLog(life, attempt, epoch); d.Reason == executor.Vanished && d.Log != nil && d.Log.Size == 0 {
		d.Log = nil // the machine may have been down, and have lost what was not on its disk
	}
	told := &change{log: a.log}
	_, err := backoff.Retry(life, func() (struct{}, error) {
		request, cancel := context.WithTimeout(life, reportTimeout)
		defer cancel()
		err := a.session.do(request, func(c *client.Client) error { return c.Died(request, job, d) })
		if err != nil && settled(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		if err != nil {
			a.status.Failed("report", err)
		}
		told.error("the death of a step cannot be reported yet", err)
		return struct{}{}, err
	}, backoff.WithBackOff(patient(a.options)), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil:
		a.log.Warn("a step died", "job", job, "epoch", epoch, "reason", d.Reason, "signal", d.Signal)
	case settled(err):
		// Stale: the job has gone on without this attempt. That is settled, too.
		a.log.Info("the death of a step is old news", "job", job, "epoch", epoch, "err", err)
	default:
		return // the agent ends
	}
	a.remove(life, attempt)
}

// rescueFor bounds the sending of a dead step's log. The report of its death
// waits for it, because a log cannot grow after its attempt is over.
const rescueFor = 10 * time.Second

// rescueLog sends what the step had kept of its log and not sent, and describes
// the log if nothing is missing. If that does not succeed soon the log ends
// early and is marked so.
func (a *Agent) rescueLog(life context.Context, attempt string, epoch int64) *wire.WholeLog {
	ctx, cancel := context.WithTimeout(life, rescueFor)
	defer cancel()
	job, _ := jobOf(attempt)
	err := logship.Rescue(ctx, a.dir(attempt).Path(stepdir.LogFile), func(ctx context.Context, offset int64, data []byte) (next int64, err error) {
		err = a.session.do(ctx, func(c *client.Client) error {
			next, err = c.RescueLog(ctx, job, epoch, offset, data)
			return err
		})
		if e, ok := errors.AsType[*client.Error](err); ok && e.Code() == "log-offset" {
			if want, perr := strconv.ParseInt(e.Details["want"], 10, 64); perr == nil {
				return 0, &logship.OffsetError{Want: want}
			}
		}
		return next, err
	})
	if err != nil {
		if !settled(err) {
			a.log.Warn("the end of a dead step's log is lost", "attempt", attempt, "err", err)
		}
		return nil
	}
	end, whole := a.dir(attempt).LogEnd()
	if !whole {
		return nil
	}
	sum, err := logship.Sum(a.dir(attempt).Path(stepdir.LogFile), end.Size)
	if err != nil {
		a.log.Warn("the log of a dead step cannot be read", "attempt", attempt, "err", err)
		return nil
	}
	return &wire.WholeLog{Size: end.Size, CRC32: sum}
}

// removeFor bounds the removal of what an executor keeps of a step.
const removeFor = 30 * time.Second

// remove removes what an attempt has left, of which nobody has to hear any more.
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

// reattach finds what an earlier agent has left: steps that run, steps that
// have ended meanwhile, reports that were not made.
func (a *Agent) reattach(life context.Context) error {
	entries, err := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder))
	if err != nil {
		return fmt.Errorf("look for steps of an earlier agent: %w", err)
	}
	known := map[string]bool{}
	for _, e := range entries {
		_, epoch, err := stepdir.ParseID(e.Name())
		if err != nil {
			a.log.Warn("not a step's folder", "name", e.Name())
			continue
		}
		known[e.Name()] = true
		a.running.Go(a.recoverStep(life, e.Name(), epoch))
	}
	for folder, remove := range map[string]func(attempt string) error{
		workspace.Root: func(attempt string) error { return workspace.Remove(a.cfg.Data, attempt) },
		attemptsFolder: func(attempt string) error { return a.kept(attempt).Remove() },
	} {
		left, err := os.ReadDir(filepath.Join(a.cfg.Data, folder))
		if err != nil {
			return fmt.Errorf("look for what an earlier agent has left in %s: %w", folder, err)
		}
		for _, e := range left {
			if known[e.Name()] {
				continue
			}
			if err := remove(e.Name()); err != nil {
				a.log.Error("something of a finished step is left", "attempt", e.Name(), "err", err)
			}
		}
	}
	return nil
}

// recoverStep returns what is to be done about one folder. A step that runs
// counts as running when it returns.
func (a *Agent) recoverStep(life context.Context, attempt string, epoch int64) func() {
	kept := a.kept(attempt)
	if kept.Over() {
		return func() { a.remove(life, attempt) }
	}
	if d, ok := kept.Died(); ok {
		return func() { a.settle(life, attempt, epoch, d) }
	}
	in, inErr := kept.Input()
	by, err := a.ways.by(life, attempt)
	var h executor.Handle
	if err == nil {
		h, err = by.executor.Attach(life, attempt)
	}
	switch {
	case err == nil:
		a.log.Info("watching a step of an earlier agent", "attempt", attempt)
		a.add(life, h, by, in)
		return func() { a.watch(life, h, epoch) }
	case errors.Is(err, executor.ErrGone):
		if inErr != nil {
			return func() {
				a.settle(life, attempt, epoch, wire.DiedRequest{Epoch: epoch, Reason: executor.LaunchFailed,
					Message: "the agent was restarted before it could start the step"})
			}
		}
		return func() { a.watch(life, h, epoch) } // Wait returns at once
	default:
		return func() { a.log.Error("nothing is known of a step", "attempt", attempt, "err", err) }
	}
}
