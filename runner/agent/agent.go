// Package agent keeps a runner's session with the control plane, claims jobs,
// and launches and watches a step for each. It never runs a tool itself, and
// no step's life hangs on it: an agent that is killed is replaced by the next
// one, which finds the steps of the one before and watches on.
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

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/agentstatus"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/workspace"
)

const (
	stepsFolder = "steps"
	// attemptsFolder has what an agent keeps of each attempt for itself. It is
	// apart from stepsFolder, of which a step in a container sees its part.
	attemptsFolder = "attempts"
	// claimWait is the longest wait for a job in one request: the API's limit.
	claimWait = 20 * time.Second
	// claimSlack is what an answer may take beyond it.
	claimSlack = 15 * time.Second
	// emptyPause is kept after an empty answer that came without waiting.
	emptyPause = time.Second
	// defaultBeat stands in until the control plane says how often to call.
	defaultBeat = 15 * time.Second
	// beatTimeout bounds one session heartbeat. Where they are rarest, 36 s apart
	// with death at 55 s, it leaves time for another when one got no answer.
	beatTimeout = 8 * time.Second
	// reportTimeout bounds one try to report a death.
	reportTimeout = 20 * time.Second
	// shutdownTimeout bounds what is still sent when the agent ends.
	shutdownTimeout = 5 * time.Second
	// defaultGrace is how long an interrupted step may take if its claim does
	// not say.
	defaultGrace = 2 * time.Minute
	// graceSlack is what a step needs beyond its tool's grace, to report.
	graceSlack = 15 * time.Second
)

// Agent is one agent on one data folder. Make it with New, run it once.
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
	status        *agentstatus.Status   // nil: nobody asks
	startMode     fairlead.CustomerMode // of the environment
	modeRead      change                // whether the customer's mode can be read
	modeConfirmed change                // whether it can be recorded that it is applied

	mu           sync.Mutex
	wanted       string                // version that this agent is to run; "": any
	customerMode fairlead.CustomerMode // that holds
	endPoll      context.CancelFunc    // ends the poll for work that is under way; nil: there was none
	steps        map[string]*step      // by attempt
	warned       map[string]bool       // of these situations, by what was logged
	draining     bool
	stopping     bool          // steps are to be interrupted
	freed        chan struct{} // signalled when a step has gone or draining began
	beatNow      chan struct{}
	running      sync.WaitGroup // one for each goroutine that watches or reports
	background   sync.WaitGroup // one for each that nobody waits for: it ends soon after the agent's life
}

// step is a step that is alive.
type step struct {
	handle  executor.Handle // nil: it is being launched
	of      string          // its install and component; "": of none
	grace   time.Duration
	kind    agentstatus.Kind
	killFor time.Duration // how long its killing may take
	over    chan struct{} // closed when it is alive no more

	interrupting bool // somebody has it interrupted, and will not let go
	accepted     bool // the interrupt has reached it
}

// open takes the data folder and enrols if need be.
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
		executors: executors, session: s, work: newWork(s, log, time.Now),
		cache: providers.Open(cmp.Or(cfg.PluginCache, filepath.Join(data, "plugin-cache")), filepath.Join(data, "providers.json"), log),
		steps: map[string]*step{}, freed: make(chan struct{}, 1), beatNow: make(chan struct{}, 1),
		startMode: fairlead.CustomerMode{Mode: startMode}, modeRead: change{log: log}, modeConfirmed: change{log: log},
	}
	a.customerMode, _ = a.readCustomerMode() // before anything is claimed
	if cfg.StatusAddress != "" {
		a.status = agentstatus.New(agentstatus.Options{Version: o.Version, Runner: string(id.RunnerID), Executor: a.executors.executor, Look: a.look, Clock: a.now})
	}
	return a, nil
}

const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// takeLock makes sure that one agent alone uses the data folder. The lock goes
// with the process, however that ends.
func takeLock(data string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(data, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range lockTries { // agentRuns may hold it for a moment
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent uses the data folder %s; stop it, or give this one a folder of its own", data)
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
	defer f.Close() // which gives the lock back
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// run works until it was told to stop and every step has gone. The first value
// on stop drains: no job is claimed any more, running steps go on. The second,
// or the end of ctx, interrupts the steps. A third kills them.
func (a *Agent) run(ctx context.Context, stop <-chan os.Signal) error {
	defer a.lock.Close()
	if a.status != nil {
		closeStatus, err := a.status.Serve(a.cfg.StatusAddress, a.log)
		if err != nil {
			return err
		}
		defer closeStatus()
	}
	// What is under way does not end with ctx: it is wound up in order.
	agentCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := a.reattach(agentCtx); err != nil {
		return err
	}
	claiming, drain := context.WithCancel(agentCtx)
	defer drain()
	var claims, beats sync.WaitGroup
	beats.Go(func() { a.watchCustomerMode(agentCtx) })
	// A heartbeat that was sent must have its answer before the last one is
	// sent, or the control plane hears of the end first.
	beating, stopBeats := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeats()
	// The first heartbeat opens the session, so the first claim waits until it has
	// its answer or its error. With both at once, either would open it, and a seed of
	// the simulator would be one of two runs.
	introduced := make(chan struct{})
	beats.Go(func() { a.heartbeatLoop(agentCtx, beating, sync.OnceFunc(func() { close(introduced) })) })
	claims.Go(func() {
		select {
		case <-introduced:
		case <-claiming.Done():
		}
		a.claimLoop(claiming, agentCtx)
	})
	a.log.Info("ready", "runner", a.id.Name, "url", a.id.URL, "concurrency", a.executors.capacity(), "version", a.options.Version, "isolation", a.executors.isolation())
	if a.executors.isolation() == wire.IsolationNone {
		a.log.Warn("isolation: none. What jobs start can read the runner's key and every install's state: let Landlock, or a container for each job, keep them apart")
	}

	over := ctx.Done()
	select {
	case <-stop:
	case <-over:
	}
	a.startDraining(drain)
	claims.Wait() // from here on nothing is added to those that run
	idle := make(chan struct{})
	go func() { a.running.Wait(); close(idle) }()
	if !a.options.LeaveSteps {
		a.awaitSteps(ctx, agentCtx, stop, idle)
	}

	end()
	if a.options.LeaveSteps {
		select {
		case <-idle: // nobody watches any more
		case <-time.After(shutdownTimeout):
		}
	}
	impatience := time.AfterFunc(shutdownTimeout, stopBeats)
	beats.Wait()
	impatience.Stop()
	backgroundDone := make(chan struct{})
	go func() { a.background.Wait(); close(backgroundDone) }()
	select {
	case <-backgroundDone:
	case <-time.After(shutdownTimeout): // an executor that does not answer holds up nothing
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := a.beat(bye, true); err != nil {
		a.log.Debug("the control plane does not hear of our end", "err", err)
	}
	a.log.Info("stopped")
	return nil
}

func (a *Agent) startDraining(drain context.CancelFunc) {
	a.mu.Lock()
	a.draining = true
	n := len(a.steps)
	a.mu.Unlock()
	drain()
	notify(a.beatNow)
	if n > 0 {
		a.log.Info("draining: no job is claimed any more; a second signal interrupts those that run", "running", n)
	}
}

// awaitSteps returns when idle is closed, or when all steps were killed and the
// control plane had its chance to update of it.
func (a *Agent) awaitSteps(ctx, agentCtx context.Context, stop <-chan os.Signal, idle <-chan struct{}) {
	var patience <-chan time.Time
	if a.cfg.DrainFor > 0 {
		patience = time.After(a.cfg.DrainFor)
	}
	select {
	case <-idle:
		return
	case <-stop:
	case <-ctx.Done():
	case <-patience:
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
			a.log.Error("a step is not killed", "attempt", s.handle.ID(), "err", err)
		}
	}
	select {
	case <-idle:
	case <-time.After(shutdownTimeout): // reports are kept, and made by the next agent
	}
}

// killFor is how long the killing of the steps that are left may take.
func (a *Agent) killFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	var longest time.Duration
	for _, s := range a.steps {
		longest = max(longest, s.killFor)
	}
	return longest
}

// look is the agent as its status tells it.
func (a *Agent) look() agentstatus.Now {
	n := a.session.look()
	n.Capacity, n.Running = a.executors.capacity(), map[agentstatus.Kind]int{}
	a.mu.Lock()
	defer a.mu.Unlock()
	n.Draining, n.Customer, n.Wanted = a.draining, string(a.customerMode.Mode), a.wanted
	for _, s := range a.steps {
		n.Running[s.kind]++
	}
	return n
}

func kindOf(c wire.Claim) agentstatus.Kind {
	return agentstatus.Kind{Plugin: c.Plugin, Operation: c.Operation}
}

// launched returns the steps that run. One that is being launched is interrupted
// when it has been.
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

// interrupt interrupts every step and returns the longest grace of them.
func (a *Agent) interrupt(agentCtx context.Context) time.Duration {
	var grace time.Duration
	for _, s := range a.launched() {
		a.interruptWithRetry(agentCtx, s)
		grace = max(grace, s.grace)
	}
	return grace
}

// interruptWithRetry interrupts a step, and again until the interrupt has reached it: the word
// is said to the agent once, and there may be no container yet that could update
// it, or an executor that does not answer. It lets go when the step is over, or
// the word was taken back.
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
			onChange.error("a step is not interrupted yet", err)
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

// claimLoop claims jobs while there is room for another step.
func (a *Agent) claimLoop(ctx, agentCtx context.Context) {
	onChange := &change{log: a.log}
	pause := patient(a.options).Pauses()
	for {
		polling, ok := a.waitForRoom(ctx)
		if !ok {
			return
		}
		asked := a.now()
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
			go func() {
				defer a.running.Done()
				a.launch(agentCtx, claim)
			}()
		case polling.Err() != nil:
			// Told to drain, or by the customer to begin nothing. A claim whose answer
			// is lost runs out by itself.
		case errors.Is(err, client.ErrNoWork):
			onChange.error("", nil)
			pause.Reset()
			if a.now().Sub(asked) < emptyPause {
				retry.Sleep(ctx, emptyPause)
			}
		default:
			onChange.error("cannot claim jobs", err)
			retry.Sleep(ctx, pause.NextBackOff())
		}
	}
}

// waitForRoom waits until another step may run. A poll for it is to go on no
// longer than the context that is returned. False when ctx has ended.
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

// heartbeatLoop sends heartbeats until ctx ends; each is sent under sending. One
// that failed is sent again soon: had it to wait its turn, a single lost answer
// would look like death. After each heartbeat, answered or not, it calls sent.
func (a *Agent) heartbeatLoop(ctx, sending context.Context, sent func()) {
	onChange := &change{log: a.log}
	period := defaultBeat
	soon := patient(a.options).Pauses()
	for {
		err := a.beatWith(sending, false, &period)
		sent()
		if ctx.Err() != nil {
			return
		}
		a.status.Beat(err)
		onChange.error("the control plane does not take heartbeats", err)
		wait := period
		if err != nil {
			wait = min(soon.NextBackOff(), period)
		} else {
			soon.Reset()
		}
		select {
		case <-time.After(wait):
		case <-a.beatNow:
		case <-ctx.Done():
			return
		}
	}
}

func (a *Agent) beat(ctx context.Context, ending bool) error {
	var ignored time.Duration
	return a.beatWith(ctx, ending, &ignored)
}

func (a *Agent) beatWith(ctx context.Context, ending bool, period *time.Duration) error {
	unhealthyReason := a.executors.unhealthyReason(ctx)
	a.mu.Lock()
	in := wire.SessionHeartbeat{Capacity: a.executors.capacity(), Running: []string{}, Draining: a.draining, Ending: ending, Customer: a.reportedMode(),
		Configuration: a.executors.revision(), Unhealthy: unhealthyReason, Isolation: a.executors.isolation()}
	for _, s := range a.steps {
		if s.handle != nil {
			job, _ := jobOf(s.handle.ID())
			in.Running = append(in.Running, job)
		}
	}
	a.mu.Unlock()
	request, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return a.session.do(request, func(c *client.Client) error {
		st, err := c.HeartbeatSession(request, in)
		if err == nil && st.HeartbeatSeconds > 0 {
			*period = time.Duration(st.HeartbeatSeconds) * time.Second
		}
		if err == nil {
			a.want(st.Wanted)
			a.warn(st.Situations)
		}
		// One that repeats what is known calls for nothing: its answer might repeat it
		// again, and the agent would call without a pause.
		// What the session's opening told meanwhile was not in this one yet.
		if err == nil && (a.executors.update(ctx, st.Configuration) || a.executors.revision() != in.Configuration) {
			notify(a.freed)   // there may be more room
			notify(a.beatNow) // whether it can be followed is told at once
		}
		return err
	})
}

// warn logs what the agent's operator is to know, each once in the agent's life:
// each session begins with it again.
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
