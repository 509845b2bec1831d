package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/agentstatus"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/workspace"
)

// passes reports whether a step gets a variable of the agent's environment. A step gets the variables
// that the operator names and the variables for the network. A step on the agent's own machine also
// gets the variables that programs need, such as PATH.
func (a *Agent) passes(by *launcher, name string) bool {
	switch name {
	case attempt.TokenVariable, executor.InputVariable:
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

// jobOf returns the job ID and the epoch of an attempt.
func jobOf(attemptID string) (string, int64) {
	job, epoch, err := attempt.ParseID(attemptID)
	if err != nil {
		return attemptID, 0
	}
	return string(job), epoch
}

func (a *Agent) dir(attemptID string) attempt.Dir {
	return attempt.Dir(filepath.Join(a.cfg.Data, stepsFolder, attemptID))
}

func (a *Agent) kept(attemptID string) attempt.Kept {
	return attempt.Kept(filepath.Join(a.cfg.Data, attemptsFolder, attemptID))
}

// folders makes the folders of an attempt. The agent's own record comes first: without it, the next
// agent could not find the attempt that a step's folder belongs to.
func (a *Agent) folders(attemptID string, in attempt.Input) (attempt.Dir, error) {
	if _, err := attempt.Keep(string(a.kept(attemptID)), in); err != nil {
		return "", err
	}
	return attempt.Create(string(a.dir(attemptID)), in)
}

// reserve counts the claim's step as running before it is started.
func (a *Agent) reserve(c wire.Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := attempt.ID(fairlead.JobID(c.Job), c.Epoch)
	if a.steps[id] != nil {
		return // its warm step found the claim first
	}
	a.steps[id] = &step{kind: kindOf(c), of: componentOf(c.InstallID, c.Component), over: make(chan struct{})}
}

// componentOf returns a name that is unique among all components of the runner, or "" if the job has
// no component.
func componentOf(install, component string) string {
	if install == "" || component == "" {
		return ""
	}
	return install + "/" + component
}

// add records a started step as running. If the agent is stopping or disabled, it interrupts the step.
func (a *Agent) add(agentCtx context.Context, h executor.Handle, by *launcher, in attempt.Input) {
	grace := in.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	s := &step{handle: h, of: componentOf(in.InstallID, in.Component), grace: grace, kind: agentstatus.Kind{Plugin: in.Plugin, Operation: in.Operation}, killFor: by.place.KillFor, over: make(chan struct{})}
	a.mu.Lock()
	a.steps[h.ID()] = s
	stopping := a.stopping || a.customerMode.Mode == fairlead.ModeDisabled
	a.mu.Unlock()
	if stopping {
		a.interruptWithRetry(agentCtx, s)
	}
}

// gone removes a step that has ended, or that did not start, from the running steps. It frees the
// step's slot.
func (a *Agent) gone(attemptID string) {
	a.mu.Lock()
	if s := a.steps[attemptID]; s != nil {
		close(s.over)
	}
	delete(a.steps, attemptID)
	a.mu.Unlock()
	notify(a.freed)
}

// launch starts the step of a claim and watches it to its end.
func (a *Agent) launch(agentCtx context.Context, c wire.Claim) {
	attemptID := attempt.ID(fairlead.JobID(c.Job), c.Epoch)
	log := a.log.With("job", c.Job, "epoch", c.Epoch)
	if err := errors.Join(attempt.CheckID(c.Job), checkEpoch(c.Epoch)); err != nil {
		a.gone(attemptID)
		log.Error("claim refused", "err", err)
		return
	}
	if !a.begins() {
		// The claim arrived after draining or a mode change.
		a.release(agentCtx, attemptID, c)
		return
	}
	if c.WarmStep != "" {
		a.assign(agentCtx, attemptID, c)
		return
	}
	if c.Operation == string(job.OpAgentLog) {
		a.sendLog(agentCtx, attemptID, c)
		return
	}
	h, err := a.start(agentCtx, attemptID, c)
	if err != nil {
		// The agent does not release the claim. A release does not count as an attempt, so a runner
		// that cannot start steps would claim and release the job forever.
		a.gone(attemptID)
		a.status.Ended(kindOf(c), string(launchCause(err)), attempt.Tally{})
		log.Error("cannot start a step; its job is reported as failed", "err", err)
		a.reportDeath(agentCtx, attemptID, c.Epoch, wire.DiedRequest{Epoch: c.Epoch, Reason: string(launchCause(err).Reported()), Message: err.Error(), DiskFull: workspace.DiskFull(err)})
		return
	}
	log.Debug("step launched", "operation", c.Operation, "component", c.Component)
	a.watch(agentCtx, h, c.Epoch)
}

// release returns a claimed job to the queue, so that another agent can claim it at once.
func (a *Agent) release(agentCtx context.Context, attemptID string, c wire.Claim) {
	a.gone(attemptID)
	a.status.Ended(kindOf(c), "released", attempt.Tally{})
	if err := a.session.do(agentCtx, func(cl *client.Client) error { return cl.Release(agentCtx, c.Job, c.Epoch) }); err != nil {
		a.log.Warn("cannot release the claim; the job is claimable again when its lease expires", "job", c.Job, "epoch", c.Epoch, "err", err)
	}
}

func checkEpoch(epoch int64) error {
	if epoch < 1 {
		return fmt.Errorf("epoch %d is less than 1", epoch)
	}
	return nil
}

// begins reports whether the agent may start a step now.
func (a *Agent) begins() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.draining && a.customerMode.Mode.TakesJobs()
}

// input returns the input of the claim's step, without its role and its place.
func (a *Agent) input(c wire.Claim) attempt.Input {
	in := attempt.Input{
		URL: a.id.URL, Registry: a.session.registryHost(), Runner: a.id.RunnerID, Keys: a.id.Keys,
		Data: a.cfg.Data, Tofu: a.cfg.Tofu, Programs: a.cfg.Programs, PluginCache: a.cfg.PluginCache, CLIConfig: a.cfg.CLIConfig, Mirror: a.cfg.ProviderMirror, PassEnv: a.cfg.PassEnv,
		CA: a.options.ca, PlainHTTP: a.cfg.AllowPlainHTTP, Secrets: a.executors.file.Secrets, Policy: a.executors.file.Policy, Ledger: a.executors.file.Ledger,
	}
	return in.WithJob(c)
}

// placed returns the input with the values that depend on where the step runs.
func (by *launcher) placed(in attempt.Input) attempt.Input {
	in.Data, in.Work = by.place.Data, by.work("")
	in.Policy, _, _ = policyOf(in.Policy)
	if in.Policy != "" && in.Ledger == "" && by.place.Machine {
		in.Ledger = runnerspec.StoreFile + ":" + path.Join(in.Data, ledgerFolder)
	}
	in.SecretEnv = by.setup.SecretEnv
	in.PassEnv = slices.Concat(in.PassEnv, by.place.PassEnv, in.SecretEnv)
	in.URL = cmp.Or(by.setup.StepURL, in.URL)
	in.WholeRoles = by.setup.WholeRoles
	return in
}

func (a *Agent) start(ctx context.Context, attemptID string, c wire.Claim) (executor.Handle, error) {
	role, identity, err := operationRole(a.options.Stack, environment(a.environ, "AWS_REGION"), c)
	if err != nil {
		return nil, err
	}
	by, err := a.executors.assign(attemptID)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(by.runsIn(c.Image), a.admit(ctx, by, c)); err != nil {
		return nil, err
	}
	in := by.placed(a.input(c))
	in.InstallKey, in.KeyByDefault = a.seedReference(by), a.seedByDefault(by)
	in.Role, in.Confined = role, a.confined(by)
	if by.place.Shared {
		a.awaitBefore(ctx, attemptID)
		in.Providers = a.cache.Usable(c.InstallID)
	}
	token := boundToken(c.LaunchToken, identity, c.Bindable)
	s, err := a.describe(by, attemptID, in, token)
	if err != nil {
		return nil, err
	}
	s.Identity, s.Image, s.Light = identity, c.Image, isLight(c, in, token)
	s.Role, _ = claimedRole(c) // The step refuses an operation that the type does not have.
	sized(&s, c.Size)
	if s.Folders, err = foldersOf(attemptID, in); err != nil {
		return nil, err
	}
	// The agent makes the folder even if the step does not see it: the next agent needs the folder to
	// find the attempt.
	if _, err := a.folders(attemptID, in); err != nil {
		return nil, err
	}
	if err := a.executors.keep(attemptID, by); err != nil {
		return nil, err
	}
	h, err := by.executor.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	a.add(ctx, h, by, in)
	return h, nil
}

// sized gives a step the size that its job asks for; nil: none.
func sized(s *executor.Step, size *wire.JobSize) {
	if size != nil {
		s.CPU, s.Memory = runnerspec.CPU(size.CPU), runnerspec.Size(size.Memory)
	}
}

// describe returns the step that an executor starts, without its folders.
func (a *Agent) describe(by *launcher, id string, in attempt.Input, token string) (executor.Step, error) {
	added, secrets, err := by.environ()
	if err != nil {
		return executor.Step{}, err
	}
	seed, err := a.seedFor(by, in)
	if err != nil {
		return executor.Step{}, err
	}
	secrets = append(secrets, seed...)
	s := executor.Step{ID: id, Args: []string{"step", "--dir", path.Join(by.place.Data, stepsFolder, id)},
		Env: added, Site: workspace.SiteOf(in.InstallID, in.Component), Secrets: append(secrets, attempt.TokenVariable+"="+token)}
	if _, name, key := policyOf(a.executors.file.Policy); name != "" {
		s.ConfigMap, s.ConfigKey = name, key
	}
	if s.Stored, err = storedFor(in, by.place.Store); err != nil {
		return executor.Step{}, err
	}
	if !by.place.Shared {
		if s.Input, err = attempt.Encode(in); err != nil {
			return executor.Step{}, err
		}
	}
	for _, v := range a.environ {
		name, _, _ := strings.Cut(v, "=")
		if _, overridden := by.setup.Environ[name]; overridden || slices.Contains(in.SecretEnv, name) {
			continue
		}
		if a.passes(by, name) || (in.Role != nil || len(in.Secrets) > 0 || in.Policy != "" || in.InstallKey != "") && by.place.Machine && slices.Contains(passedForAWS, name) {
			s.Env = append(s.Env, v)
		}
	}
	return s, nil
}

// ledgerFolder is the folder of the ledger in the data folder of a runner whose steps run on the agent's machine.
const ledgerFolder = "ledger"

// policyOf returns the reference with which a step reads the policy of the agent's file, and the ConfigMap and key that its pod
// mounts. The agent has checked the reference at its start; one that is not valid stays as it is, and the step starts nothing.
func policyOf(from string) (text, configMap, key string) {
	ref, err := runnerspec.ParsePolicy(from)
	if err != nil {
		return from, "", ""
	}
	return ref.InPod()
}

// storedFor returns the variables with the seed and the customer's secrets that the place reads from its store for the job of a step. A job of the
// runner itself gets none, except a build, which gets those that belong to no component.
func storedFor(in attempt.Input, store string) (map[string]string, error) {
	op := job.Operation(in.Operation)
	stored := map[string]string{}
	if seed, err := runnerspec.ParseReference(in.InstallKey); err == nil && store != "" && seed.Store == store && !op.OfRunner() {
		stored[seed.Variable()] = seed.Name
	}
	if store == "" || len(in.Secrets) == 0 || op.OfRunner() && op != job.OpBuild || op == job.OpMigrateState {
		return stored, nil
	}
	of := in.Component
	if op == job.OpBuild {
		of = ""
	}
	secrets, err := runnerspec.SecretsOf(in.Secrets, of)
	if err != nil {
		return nil, fmt.Errorf("read the secrets of the agent's file: %w", err)
	}
	for _, s := range secrets {
		if s.From.Store == store {
			stored[s.From.Variable()] = s.From.Name
		}
	}
	return stored, nil
}

// watch waits for the step's end and removes the step's files. If the step ended without a report,
// watch reports the death.
func (a *Agent) watch(agentCtx context.Context, h executor.Handle, epoch int64) {
	exit, err := h.Wait(agentCtx)
	if err != nil {
		return // the agent ends; the next one continues
	}
	dir := a.dir(h.ID())
	by, err := a.executors.by(agentCtx, h.ID())
	if err != nil {
		a.log.Error("cannot find out how a step was started; it is not watched", "attempt", h.ID(), "err", err)
		return
	}
	// If the agent does not see the step's folder, the exit code alone shows that the step sent its
	// report.
	clean := exit.Code != nil && *exit.Code == attempt.ExitFinished && (dir.Finished() || !by.place.Shared)
	survived := proctree.None
	if !clean {
		if survived = a.waitForToolToSave(agentCtx, by, h.ID(), exit); agentCtx.Err() != nil {
			return // the next agent continues
		}
		// Every process of the step must have ended before its death is reported: the control plane
		// may start another attempt in response.
		if a.killAll(agentCtx, by, h); agentCtx.Err() != nil {
			return // the next agent continues
		}
	}
	a.keepProviders(by, h.ID())
	a.gone(h.ID())
	a.count(h.ID(), clean, exit)
	if clean || dir.Finished() {
		a.remove(agentCtx, h.ID())
		return
	}
	d := a.deathReason(agentCtx, by, h, epoch, exit)
	switch survived {
	case proctree.Ended:
		d.Message += "\nThe tool was interrupted with its step, had time to save its state, and has ended."
	case proctree.Working:
		d.Message += "\nThe tool was interrupted with its step, did not end in time, and was killed: its state may lack its last changes."
	}
	kept, err := workspace.Salvage(by.work(a.cfg.Data), h.ID())
	d.Salvaged = kept
	if err != nil {
		a.log.Error("cannot copy a state that the tool could not save; copy it from the step's workspace before it is removed", "attempt", h.ID(), "err", err)
		d.Message += "\nThe tool left a state that it could not save: " + err.Error()
	} else if kept != nil {
		d.Message += "\nThe tool left a state that it could not save; the runner keeps it in " + kept.Path + " of its data folder."
	}
	a.reportDeath(agentCtx, h.ID(), epoch, d)
}

// earlierStepTimeout bounds the wait for an earlier step of the same component.
const earlierStepTimeout = 10 * time.Second

// awaitBefore waits until earlier steps of the same component have ended, so that this step can use
// the providers that the earlier steps downloaded. The control plane may see the end of an earlier
// step before this agent sees it. After earlierStepTimeout the agent continues without these
// providers.
func (a *Agent) awaitBefore(ctx context.Context, attemptID string) {
	ctx, cancel := context.WithTimeout(ctx, earlierStepTimeout)
	defer cancel()
	a.mu.Lock()
	var before []chan struct{}
	if mine := a.steps[attemptID]; mine != nil && mine.of != "" {
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

// keepProviders adds the providers that a job downloaded to the cache. No process of its step runs.
func (a *Agent) keepProviders(by *launcher, attemptID string) {
	if !by.place.Shared {
		return
	}
	in, err := a.kept(attemptID).Input()
	if err != nil {
		a.log.Warn("cannot cache the providers of a job; the next job downloads them again", "attempt", attemptID, "err", err)
		return
	}
	a.cache.Take(a.dir(attemptID).Path(providers.Private), in.InstallID)
}

// killAll returns when no process of the step is left, or when agentCtx ends. A process cannot be
// killed if the kernel blocks it or another user owns it. As long as such a process exists, its step
// uses a slot. If the process still exists when the lease expires, the control plane marks the job
// lost.
func (a *Agent) killAll(agentCtx context.Context, by *launcher, h executor.Handle) {
	onChange := &change{log: a.log.With("attempt", h.ID())}
	_ = retry.Run(agentCtx, patient(a.options), func(ctx context.Context) error {
		kill, cancel := context.WithTimeout(ctx, by.place.KillFor)
		defer cancel()
		err := h.Kill(kill)
		if agentCtx.Err() == nil {
			onChange.error("a process of the step still runs, so its end is not reported yet; the agent tries again", err)
		}
		return err
	})
}

// count updates the agent's metrics with a step that has ended.
func (a *Agent) count(attemptID string, clean bool, exit executor.Exit) {
	if a.status == nil {
		return
	}
	dir := a.dir(attemptID)
	in, err := a.kept(attemptID).Input()
	if err != nil {
		a.log.Debug("cannot read a step's input; it is counted without plugin and operation", "err", err)
	}
	t, result := dir.Tally(), string(exit.Cause)
	switch {
	case t.Outcome != "":
		result = t.Outcome
	case clean || dir.Finished():
		result = "reported"
	}
	a.status.Ended(agentstatus.Kind{Plugin: in.Plugin, Operation: in.Operation}, result, t)
}

// launchCause returns why a step was not started.
func launchCause(err error) fairlead.Cause {
	if e, ok := errors.AsType[*executor.LaunchError](err); ok {
		return e.Cause
	}
	return fairlead.CauseLaunchFailed
}
