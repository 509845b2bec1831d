// Package agent keeps a runner's session with the control plane, claims jobs, and starts and
// watches a step for each job. The agent never runs a tool itself, and steps survive their agent:
// when an agent is killed, the next agent finds the steps and continues to watch them.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
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
	// reportTimeout bounds one request that reports a step's death.
	reportTimeout = 20 * time.Second
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

	seedReport seedReport

	serving sync.Mutex // held while the agent reads and writes which install it serves

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

// makeFolders makes the data folder, and if seed is true, in a new one the seed of the install keys.
func makeFolders(data string, seed bool) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	if seed {
		if err := makeSeed(data); err != nil {
			return err
		}
	}
	for _, dir := range []string{stepsFolder, attemptsFolder, workspace.Root} {
		if err := os.MkdirAll(filepath.Join(data, dir), 0o700); err != nil {
			return fmt.Errorf("make the data folder: %w", err)
		}
	}
	return nil
}

// open locks the data folder, enrols the runner if it has no identity, and opens its executors.
func open(ctx context.Context, cfg config.Runner, o Options, log *slog.Logger) (*Agent, error) {
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	cfg.Data = data
	if err := makeFolders(data, cfg.MakeSeed); err != nil {
		return nil, err
	}
	if err := checkIsolation(cfg); err != nil {
		return nil, err
	}
	if _, err := providers.ParseMirror(cfg.ProviderMirror); err != nil {
		return nil, fmt.Errorf("FAIRLEAD_PROVIDER_MIRROR: %w", err)
	}
	// A broken file must stop the agent before it enrols: enrolling uses up the token, and an agent
	// whose data folder is lost when it ends could never enrol again.
	file, err := readOwnFile(cfg, o)
	if err != nil {
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
	if err := keepUpgraded(data); err != nil {
		lock.Close()
		return nil, err
	}
	id, err := loadIdentity(ctx, cfg, o, log)
	if err != nil {
		lock.Close()
		return nil, err
	}
	kept := func(attemptID string) attempt.Kept {
		return attempt.Kept(filepath.Join(data, attemptsFolder, attemptID))
	}
	executors, err := openExecutors(ctx, cfg, file, string(id.RunnerID), o, log, kept)
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
	a.work = newWork(s, log, time.Now, a.startsAhead, a.hasSeed)
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
	claims.Go(func() { a.adoptOthers(claiming, agentCtx, firstBeat) })
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
	leave := a.options.LeaveSteps || a.awaitSteps(ctx, agentCtx, stop, idle)

	end()
	if leave {
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

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
