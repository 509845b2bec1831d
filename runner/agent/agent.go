// Package agent keeps a runner's session with the control plane, claims jobs, and starts and
// watches a step for each job. The agent never runs a tool itself, and steps survive their agent:
// when an agent is killed, the next agent finds the steps and continues to watch them.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/agentstatus"
	"github.com/fairlead/fairlead/runner/internal/modeparameter"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	stepsFolder = "steps"
	// attemptsFolder holds the agent's own records of each attempt. It is separate from stepsFolder
	// because a step in a container has access to its own folder in stepsFolder.
	attemptsFolder = "attempts"
	// claimWait is the longest wait for a job in one request. It is the API's limit.
	claimWait = 20 * time.Second
	// claimSlack is the time that a response may take in addition to claimWait.
	claimSlack = 15 * time.Second
	// emptyPause is the pause after an empty response that arrived early.
	emptyPause = time.Second
	// defaultBeat is the heartbeat period until the control plane sets one.
	defaultBeat = 15 * time.Second
	// beatTimeout bounds one session heartbeat. An agent with jobs is lost after 55 s at the latest.
	// So there is time for further heartbeats if one gets no response.
	beatTimeout = 8 * time.Second
	// reportTimeout bounds one request that reports a step's death.
	reportTimeout = 20 * time.Second
	// shutdownTimeout bounds each of the last requests of an agent that stops.
	shutdownTimeout = 5 * time.Second
	// defaultGrace is the time that an interrupted step has to end if its claim does not set one.
	defaultGrace = 2 * time.Minute
	// graceSlack is the time that a step has for its report after its tool's grace.
	graceSlack = 15 * time.Second
)

// Agent is one agent on one data folder. The function open makes it. Its method run may be called
// once.
type Agent struct {
	cfg           config.Runner
	options       Options
	log           *slog.Logger
	now           func() time.Time
	environ       []string
	executors     *executors
	session       *session
	work          *work
	cache         *providers.Store
	id            identity
	lock          *os.File
	status        *agentstatus.Status      // nil: no status address is configured
	startMode     fairlead.CustomerMode    // from the environment
	parameter     *modeparameter.Parameter // with the customer's mode; nil: none
	parameterRead chan struct{}            // signalled when the mode of the parameter was read
	modeRead      change                   // logs whether the agent can read the customer's mode
	modeConfirmed change                   // logs whether the agent can record that it applied the mode

	mu            sync.Mutex
	wanted        string                // version that the control plane wants for this agent; "": any
	customerMode  fairlead.CustomerMode // the effective mode
	parameterMode fairlead.CustomerMode // the last mode of the SSM parameter; zero: there is no such parameter
	endPoll       context.CancelFunc    // cancels the current poll for a job; nil: no poll has started
	steps         map[string]*step      // by attempt
	warm          map[string]*warmStep  // steps that were started ahead and have no job, by ID
	warned        map[string]bool       // texts of the situations that were logged
	draining      bool
	stopping      bool          // steps are being interrupted
	freed         chan struct{} // signalled when a step ended or draining began
	beatNow       chan struct{}
	gotJob        chan struct{} // signalled when a job was claimed
	beats         beats
	aheadNow      chan struct{}  // signalled when warm steps for first jobs may be missing
	oneAhead      sync.Mutex     // held while the agent asks which steps to start ahead
	running       sync.WaitGroup // counts the goroutines that watch a step or report its end
	background    sync.WaitGroup // counts the goroutines for which run waits at most shutdownTimeout
}

// step is a running step.
type step struct {
	handle  executor.Handle // nil: the step is being started
	of      string          // its install and component; "": the job has no component
	grace   time.Duration
	kind    agentstatus.Kind
	killFor time.Duration // how long a kill may take
	over    chan struct{} // closed when the step has ended

	interrupting bool // a goroutine retries the interrupt
	accepted     bool // the executor accepted the interrupt
}

// open locks the data folder, enrols the runner if it has no identity, and opens its executors.
func open(ctx context.Context, cfg config.Runner, o Options, log *slog.Logger) (*Agent, error) {
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	cfg.Data = data
	for _, dir := range []string{"", stepsFolder, attemptsFolder, workspace.Root} {
		if err := os.MkdirAll(filepath.Join(data, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the data folder: %w", err)
		}
	}
	if err := checkIsolation(cfg); err != nil {
		return nil, err
	}
	if _, err := providers.ParseMirror(cfg.ProviderMirror); err != nil {
		return nil, fmt.Errorf("FAIRLEAD_PROVIDER_MIRROR: %w", err)
	}
	lock, err := takeLock(data)
	if err != nil {
		return nil, err
	}
	startMode, err := fairlead.ParseRunnerMode(cfg.Mode)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("FAIRLEAD_MODE: %w", err)
	}
	id, err := loadIdentity(ctx, cfg, o, log)
	if err != nil {
		lock.Close()
		return nil, err
	}
	kept := func(attemptID string) attempt.Kept {
		return attempt.Kept(filepath.Join(data, attemptsFolder, attemptID))
	}
	executors, err := openExecutors(ctx, cfg, string(id.RunnerID), o, log, kept)
	if err != nil {
		lock.Close()
		return nil, err
	}
	base, err := newClient(id.URL, o)
	if err != nil {
		lock.Close()
		return nil, err
	}
	s := newSession(base, id, instance(), o, executors, time.Now)
	a := &Agent{
		cfg: cfg, options: o, log: log, now: time.Now, environ: o.Environ, id: id, lock: lock,
		executors: executors, session: s,
		cache: providers.Open(cmp.Or(cfg.PluginCache, filepath.Join(data, "plugin-cache")), filepath.Join(data, "providers.json"), log),
		steps: map[string]*step{}, freed: make(chan struct{}, 1), beatNow: make(chan struct{}, 1), gotJob: make(chan struct{}, 1), parameterRead: make(chan struct{}, 1),
		warm: map[string]*warmStep{}, aheadNow: make(chan struct{}, 1),
		startMode: fairlead.CustomerMode{Mode: startMode}, modeRead: change{log: log}, modeConfirmed: change{log: log},
	}
	s.report, s.reported = a.report, a.reported
	a.work = newWork(s, log, time.Now, a.startsAhead)
	if cfg.ModeParameter != "" {
		aws, err := awsconfig.LoadDefaultConfig(ctx)
		if err != nil {
			lock.Close()
			return nil, fmt.Errorf("read the customer's mode in an SSM parameter: %w", err)
		}
		a.parameter = modeparameter.New(aws, cfg.ModeParameter)
		a.parameterMode = a.parameter.Unread()
	}
	a.customerMode, _ = a.readCustomerMode() // must precede the first claim
	if cfg.StatusAddress != "" {
		a.status = agentstatus.New(agentstatus.Options{Version: o.Version, Runner: string(id.RunnerID), Executor: a.executors.executor, Look: a.look, Clock: a.now})
	}
	return a, nil
}

const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// takeLock ensures that only one agent uses the data folder. The kernel releases the lock when the
// process ends, even after a crash.
func takeLock(data string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(data, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range lockTries { // agentRuns may hold it briefly
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent uses the data folder %s. Stop that agent, or set FAIRLEAD_RUNNER_DATA to another folder", data)
		}
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return f, nil
}

// agentRuns reports whether an agent uses the data folder.
func agentRuns(data string) bool {
	f, err := os.Open(filepath.Join(data, lockFile))
	if err != nil {
		return false
	}
	defer f.Close() // releases the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// run returns after stop or ctx has stopped the agent and every step has ended. The first value on
// stop drains the agent: it claims no more jobs, and running steps continue. The second value, or the
// end of ctx, interrupts the steps. The third value kills the steps.
func (a *Agent) run(ctx context.Context, stop <-chan os.Signal) error {
	defer a.lock.Close()
	if a.status != nil {
		closeStatus, err := a.status.Serve(a.cfg.StatusAddress, a.log)
		if err != nil {
			return err
		}
		defer closeStatus()
	}
	// The agent's goroutines outlive ctx, so that they can stop in order.
	agentCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := a.reattach(agentCtx); err != nil {
		return err
	}
	claiming, drain := context.WithCancel(agentCtx)
	defer drain()
	var claims, beats sync.WaitGroup
	beats.Go(func() { a.watchCustomerMode(agentCtx) })
	beats.Go(func() { a.watchModeParameter(agentCtx) })
	// beating outlives agentCtx: the response to a heartbeat must arrive before the agent sends its
	// last heartbeat, or the control plane could receive the last one first.
	beating, stopBeats := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeats()
	// The first heartbeat opens the session, so the first claim waits for the heartbeat's response or
	// error. If heartbeat and claim ran at once, each of them could open the session, and one seed of
	// the simulator would give two different runs.
	firstBeat := make(chan struct{})
	beats.Go(func() { a.heartbeatLoop(agentCtx, beating, sync.OnceFunc(func() { close(firstBeat) })) })
	claims.Go(func() {
		select {
		case <-firstBeat:
		case <-claiming.Done():
		}
		a.claimLoop(claiming, agentCtx)
	})
	claims.Go(func() { a.keepFirst(claiming, agentCtx) })
	a.logReady()

	over := ctx.Done()
	select {
	case <-stop:
	case <-over:
	}
	a.startDraining(drain)
	claims.Wait() // after this line, no step is added
	idle := make(chan struct{})
	go func() { a.running.Wait(); close(idle) }()
	if !a.options.LeaveSteps {
		a.awaitSteps(ctx, agentCtx, stop, idle)
	}

	end()
	if a.options.LeaveSteps {
		select {
		case <-idle: // no goroutine watches a step
		case <-time.After(shutdownTimeout):
		}
	}
	limit := time.AfterFunc(shutdownTimeout, stopBeats)
	beats.Wait()
	limit.Stop()
	backgroundDone := make(chan struct{})
	go func() { a.background.Wait(); close(backgroundDone) }()
	select {
	case <-backgroundDone:
	case <-time.After(shutdownTimeout): // an executor that does not answer must not block the stop
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := a.beat(last, true); err != nil {
		a.log.Debug("the last heartbeat was not delivered; the control plane marks the runner lost when its heartbeats time out", "err", err)
	}
	a.log.Info("stopped")
	return nil
}

// logReady logs what the agent is and how it isolates the tools of jobs.
func (a *Agent) logReady() {
	isolation := a.executors.isolation()
	a.log.Info("ready", "runner", a.id.Name, "url", a.id.URL, "concurrency", a.executors.capacity(), "version", a.options.Version, "isolation", isolation)
	if isolation == wire.IsolationNone {
		a.log.Warn("isolation: none. The tools of jobs can read the runner's key and every install's state. Use a kernel with Landlock, or an executor that starts a container for each job")
	}
}

func (a *Agent) startDraining(drain context.CancelFunc) {
	a.mu.Lock()
	a.draining = true
	n := len(a.steps)
	a.mu.Unlock()
	drain()
	notify(a.beatNow)
	if n > 0 {
		a.log.Info("draining: the agent claims no more jobs; a second signal interrupts the running steps", "running", n)
	}
}

// awaitSteps returns when idle is closed. After it has killed the steps, it waits for idle at most
// shutdownTimeout. The agent reports the deaths of the steps in this time.
func (a *Agent) awaitSteps(ctx, agentCtx context.Context, stop <-chan os.Signal, idle <-chan struct{}) {
	var drainLimit <-chan time.Time
	if a.cfg.DrainFor > 0 {
		drainLimit = time.After(a.cfg.DrainFor)
	}
	select {
	case <-idle:
		return
	case <-stop:
	case <-ctx.Done():
	case <-drainLimit:
	}
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	grace := a.interrupt(agentCtx)
	select {
	case <-idle:
		return
	case <-stop:
	case <-time.After(grace + graceSlack):
	}
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.killFor())
	defer cancel()
	for _, s := range a.launched() {
		a.log.Info("killing step", "attempt", s.handle.ID())
		if err := s.handle.Kill(kill); err != nil {
			a.log.Error("cannot kill a step; the next agent on this data folder kills it", "attempt", s.handle.ID(), "err", err)
		}
	}
	select {
	case <-idle:
	case <-time.After(shutdownTimeout): // the reports are on disk: the next agent sends them
	}
}

// killFor returns the longest time that the kill of a remaining step may take.
func (a *Agent) killFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var longest time.Duration
	for _, s := range a.steps {
		longest = max(longest, s.killFor)
	}
	return longest
}

// look returns the agent's values for its status page and metrics.
func (a *Agent) look() agentstatus.Now {
	n := a.session.look()
	n.Capacity, n.Running = a.executors.capacity(), map[agentstatus.Kind]int{}
	a.mu.Lock()
	defer a.mu.Unlock()
	n.Warm = len(a.warm)
	n.Draining, n.Customer, n.Wanted = a.draining, string(a.customerMode.Mode), a.wanted
	for _, s := range a.steps {
		n.Running[s.kind]++
	}
	return n
}

func kindOf(c wire.Claim) agentstatus.Kind {
	return agentstatus.Kind{Plugin: c.Plugin, Operation: c.Operation}
}

// launched returns the steps that were started. A step whose start has not finished is not in the
// result: the method add interrupts that step later.
func (a *Agent) launched() []*step {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*step
	for _, s := range a.steps {
		if s.handle != nil {
			all = append(all, s)
		}
	}
	return all
}

// interrupt interrupts every step and returns the longest of their graces.
func (a *Agent) interrupt(agentCtx context.Context) time.Duration {
	var grace time.Duration
	for _, s := range a.launched() {
		a.interruptWithRetry(agentCtx, s)
		grace = max(grace, s.grace)
	}
	return grace
}

// interruptWithRetry interrupts a step and retries until the executor accepts the interrupt. It
// retries because a stop signal or a mode change arrives only once: at that time the step's container
// may not exist yet, or the executor may not answer. It stops retrying when the step or the agent
// ends, or when the agent does not stop and the mode is no longer disabled.
func (a *Agent) interruptWithRetry(agentCtx context.Context, s *step) {
	a.mu.Lock()
	mine := !s.interrupting && !s.accepted
	s.interrupting = s.interrupting || mine
	a.mu.Unlock()
	if !mine {
		return
	}
	a.log.Info("interrupting step", "attempt", s.handle.ID())
	a.background.Go(func() {
		onChange := &change{log: a.log.With("attempt", s.handle.ID())}
		pause := patient(a.options).Pauses()
		for {
			err := s.handle.Interrupt()
			a.mu.Lock()
			s.accepted = err == nil
			s.interrupting = err != nil && (a.stopping || a.customerMode.Mode == fairlead.ModeDisabled)
			on := s.interrupting
			a.mu.Unlock()
			onChange.error("cannot interrupt a step yet; the agent tries again", err)
			if !on {
				return
			}
			select {
			case <-time.After(pause.NextBackOff()):
			case <-s.over:
				return
			case <-agentCtx.Done():
				return
			}
		}
	})
}

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

// beats is the schedule of the agent's heartbeats. Safe for concurrent use.
type beats struct {
	mu           sync.Mutex
	at           time.Time     // of the last accepted heartbeat, or of the session that carried it
	count        int           // number of accepted heartbeats
	period, idle time.Duration // between heartbeats, with jobs and without
	busy         bool          // the last heartbeat named jobs
}

// accepted notes the answer to a heartbeat.
func (b *beats) accepted(at time.Time, sent wire.SessionHeartbeat, st wire.SessionStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.busy = at, len(sent.Running) > 0
	b.count++
	if st.HeartbeatSeconds > 0 {
		b.period = time.Duration(st.HeartbeatSeconds) * time.Second
		b.idle = max(b.period, time.Duration(st.IdleHeartbeatSeconds)*time.Second)
	}
}

// longest returns the longest wait after a failed heartbeat.
func (b *beats) longest() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.period, defaultBeat)
}

func (b *beats) number() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

// wait returns the time until the next heartbeat. An agent that has jobs, or whose last heartbeat
// named jobs, sends heartbeats more often.
func (b *beats) wait(now time.Time, jobs bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	period := cmp.Or(b.period, defaultBeat)
	if b.busy {
		return b.at.Add(period).Sub(now)
	}
	idle := b.at.Add(max(period, b.idle)).Sub(now)
	if jobs {
		return min(idle, period) // the claim of the first job showed that the agent is alive
	}
	return idle
}

// heartbeatLoop sends heartbeats until ctx ends. The requests use the context sending. After a failed
// heartbeat it waits for a short pause instead of a full period: otherwise the control plane could
// mark the runner lost after one lost response. It calls the function sent after each heartbeat,
// successful or failed.
func (a *Agent) heartbeatLoop(ctx, sending context.Context, sent func()) {
	onChange := &change{log: a.log}
	soon := patient(a.options).Pauses()
	for {
		err := a.beat(sending, false)
		sent()
		if ctx.Err() != nil {
			return
		}
		a.status.Beat(err)
		onChange.error("cannot send heartbeats; the agent tries again", err)
		var pause time.Duration
		if err != nil {
			pause = soon.NextBackOff()
		} else {
			soon.Reset()
		}
		if !a.awaitBeat(ctx, pause) {
			return
		}
	}
}

// awaitBeat waits until the next heartbeat is due; pause is the longest wait, if it is not 0. It
// returns false if ctx ends first.
func (a *Agent) awaitBeat(ctx context.Context, pause time.Duration) bool {
	for {
		a.mu.Lock()
		jobs := len(a.steps) > 0
		a.mu.Unlock()
		seen := a.beats.number()
		wait := a.beats.wait(time.Now(), jobs) // monotonic times
		if pause > 0 {
			wait = min(pause, a.beats.longest())
		}
		select {
		case <-time.After(wait):
		case <-a.beatNow:
			return true
		case <-a.gotJob:
			continue // the next heartbeat may be due sooner
		case <-ctx.Done():
			return false
		}
		if pause > 0 || a.beats.number() == seen {
			return true
		}
		// Meanwhile the session was renewed, and the renewal was a heartbeat.
	}
}

// report returns the agent's heartbeat.
func (a *Agent) report(ctx context.Context) wire.SessionHeartbeat {
	unhealthyReason := a.executors.unhealthyReason(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	in := wire.SessionHeartbeat{Capacity: a.executors.capacity(), Running: []string{}, Draining: a.draining, Customer: a.reportedMode(),
		Configuration: a.executors.revision(), Unhealthy: unhealthyReason, Isolation: a.executors.isolation(), WarmSteps: len(a.warm)}
	for _, s := range a.steps {
		if s.handle != nil {
			job, _ := jobOf(s.handle.ID())
			in.Running = append(in.Running, job)
		}
	}
	return in
}

// reported applies the answer to a heartbeat.
func (a *Agent) reported(ctx context.Context, sent wire.SessionHeartbeat, st wire.SessionStatus) {
	a.beats.accepted(time.Now(), sent, st) // a monotonic time
	a.want(st.Wanted)
	a.warn(st.Situations)
	// Only a new configuration triggers another heartbeat. If a repeated configuration did so
	// too, the agent would send heartbeats without a pause. The response that opened the session
	// can also contain a configuration. This heartbeat did not report that configuration yet.
	if a.executors.update(ctx, st.Configuration) || a.executors.revision() != sent.Configuration {
		notify(a.freed) // the new configuration may allow more slots
		notify(a.aheadNow)
		notify(a.beatNow) // report at once whether the configuration can be applied
	}
}

// beat sends a heartbeat. If it must open a session first, the session carries the heartbeat.
func (a *Agent) beat(ctx context.Context, ending bool) error {
	request, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	before := a.beats.number()
	return a.session.do(request, func(c *client.Client) error {
		if !ending && a.beats.number() != before {
			return nil // the session was opened with this heartbeat
		}
		in := a.report(ctx)
		in.Ending = ending
		st, err := c.HeartbeatSession(request, in)
		if err == nil {
			a.reported(ctx, in, st)
		}
		return err
	})
}

// warn logs the situations that the operator should know. The control plane repeats them in its
// responses, so warn logs each situation once per agent process.
func (a *Agent) warn(situations []wire.Situation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range situations {
		if a.warned[s.What] {
			continue
		}
		if a.warned == nil {
			a.warned = map[string]bool{}
		}
		a.warned[s.What] = true
		a.log.Warn(s.What, "situation", s.Kind, "known", strings.Join(s.Known, " "))
	}
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
