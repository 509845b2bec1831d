package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

// checkFor bounds the question whether what starts steps is there.
const checkFor = 2 * time.Second

// launcher starts steps in one way.
type launcher struct {
	setup         launchconfig.Setup
	executor      executor.Executor
	place         executor.Place
	isolated      string                   // by what its steps' tools are, as the wire has it
	configuration *wire.AgentConfiguration // nil: the agent's file alone has said it
}

// executors are the ways in which the agent's steps were and are started: those
// to come as the runner's configuration says now, each of the others as it said
// when it was started. Safe for concurrent use.
type executors struct {
	cfg    config.Runner
	file   runnerspec.Agent
	runner string
	o      Options
	log    *slog.Logger
	kept   func(attemptID string) attempt.Kept

	mu           sync.Mutex
	lastRevision string               // revision of the configuration that was told last; "": none
	now          *launcher            // nil: what was told cannot be followed
	err          error                // why
	of           map[string]*launcher // by attempt
	alone        *launcher            // as the file says; nil: it does not say enough
}

// ReadFile reads an agent's file: path names it, or is the file itself where it
// begins with a brace, for platforms that have variables and no files; "": there
// is none.
func ReadFile(path string) (runnerspec.Agent, error) {
	if path == "" {
		return runnerspec.NoAgentFile(), nil
	}
	name, text := path, []byte(path)
	if strings.HasPrefix(strings.TrimSpace(path), "{") {
		name = "FAIRLEAD_AGENT_CONFIG"
	} else {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return runnerspec.Agent{}, fmt.Errorf("FAIRLEAD_AGENT_CONFIG: %w", err)
		}
	}
	a, problems := runnerspec.ParseAgent(name, text)
	if len(problems) > 0 {
		return a, problems
	}
	return a, nil
}

// openExecutors begins with what the agent's file says. What that lacks the
// configuration may say; what is wrong with it is an error.
func openExecutors(ctx context.Context, cfg config.Runner, runner string, o Options, log *slog.Logger, kept func(string) attempt.Kept) (*executors, error) {
	l := &executors{cfg: cfg, runner: runner, o: o, log: log, kept: kept, of: map[string]*launcher{}}
	if o.Direct != nil { // nothing is ever started beside the control plane
		l.err = errors.New("the runner's configuration was not heard of yet")
		return l, nil
	}
	var err error
	if l.file, err = ReadFile(cfg.Config); err != nil {
		return nil, err
	}
	setup, err := launchconfig.Of(l.file.Runner, nil, false)
	switch {
	case err != nil:
	case o.Executor != nil:
		l.alone = &launcher{setup: setup, executor: o.Executor, place: o.Executor.Place()}
		l.alone.isolated = isolationAt(l.cfg, l.alone.place)
	default:
		l.alone, err = l.open(ctx, setup, nil)
	}
	if err != nil && (!errors.Is(err, executor.ErrIncomplete) || !l.follows()) {
		return nil, err
	}
	l.now, l.err = l.alone, err
	return l, nil
}

// follows reports whether configurations are heeded.
func (l *executors) follows() bool { return l.o.Executor == nil && !l.file.Final }

func (l *executors) open(ctx context.Context, s launchconfig.Setup, configuration *wire.AgentConfiguration) (*launcher, error) {
	e, err := openExecutor(ctx, l.cfg.Data, l.runner, s, l.o)
	if err != nil {
		return nil, err
	}
	by := &launcher{setup: s, executor: e, place: e.Place(), configuration: configuration}
	if by.isolated = isolationAt(l.cfg, by.place); by.isolated == wire.IsolationNone && l.cfg.Isolation == isolationRequired {
		l.close(by)
		return nil, fmt.Errorf("FAIRLEAD_ISOLATION is %s, and this machine has no Landlock to keep what jobs start from the runner: take a Linux kernel of 5.13 or later that has it in its `lsm=`, or have each job in a container (executor docker, kubernetes or ecs)", isolationRequired)
	}
	if err := l.fits(by); err != nil {
		l.close(by)
		return nil, err
	}
	return by, nil
}

// fits refuses certificates that are too many to be passed to a step: no step could be
// started, and each job would say so anew. It tries with the longest names that a job
// may have; of what else makes a step too large the job's own end tells.
func (l *executors) fits(by *launcher) error {
	if l.o.ca == "" || by.place.Shared || by.place.Holds == nil {
		return nil
	}
	env, secrets, err := by.environ()
	if err != nil {
		return nil // the job says it: the file may come
	}
	id, name := strings.Repeat("x", maxID), strings.Repeat("x", fairlead.MaxName)
	in := attempt.Input{URL: l.cfg.URL, Registry: l.cfg.URL, Runner: fairlead.RunnerID(id), Job: fairlead.JobID(id), Epoch: 1, Operation: string(job.OpMigrateState), Plugin: component.ThatDoes(job.OpMigrateState).Name,
		Keys:    []wire.VerificationKey{{ID: id, PublicKey: make([]byte, ed25519.PublicKeySize)}},
		Install: name, InstallID: id, Component: name, PlanJob: id, Grace: time.Hour, StartBefore: time.Now(),
		Tofu: l.cfg.Tofu, PluginCache: l.cfg.PluginCache, CLIConfig: l.cfg.CLIConfig, PassEnv: l.cfg.PassEnv, CA: l.o.ca, PlainHTTP: true}
	s := executor.Step{ID: id, Args: []string{"step", "--dir", path.Join(by.place.Data, stepsFolder, id)}, Env: env,
		Secrets: append(secrets, attempt.TokenVariable+"="+strings.Repeat("x", maxToken))}
	if s.Input, err = attempt.Encode(by.placed(in)); err != nil {
		return err
	}
	if err := by.place.Holds(s); err != nil {
		return fmt.Errorf("the certificates of FAIRLEAD_CA_FILE have %d bytes, and each step gets them: %w. Name a file with the one certificate there that the control plane's is signed by", len(l.o.ca), err)
	}
	return nil
}

// The longest names in a step's input, in bytes.
const (
	maxID    = 40
	maxToken = 300
)

// translate makes a launcher of what was told.
func (l *executors) translate(ctx context.Context, configuration *wire.AgentConfiguration) (*launcher, error) {
	r, err := runnerspec.DecodeRunner(configuration.Runner)
	if err == nil && l.o.Direct != nil {
		r, err = l.unmasked(ctx, configuration.Revision, r)
	}
	if err != nil {
		return nil, err
	}
	file := l.file.Runner
	if l.o.Direct != nil {
		if file, err = l.o.File(r.Kind()); err != nil {
			return nil, err
		}
	}
	s, err := launchconfig.Of(file, r, l.o.Direct != nil)
	if err != nil {
		return nil, err
	}
	return l.open(ctx, s, configuration)
}

// unmasked returns the configuration with the credentials that it is used with
// now, which are never written down. Steps that were started by another revision
// are looked for with those of today.
func (l *executors) unmasked(ctx context.Context, revision string, r runnerspec.Configuration) (runnerspec.Configuration, error) {
	current, raw, err := l.o.Direct(ctx)
	if err != nil {
		return nil, fmt.Errorf("get the runner's credentials: %w", err)
	}
	whole, err := runnerspec.DecodeRunner(raw)
	if err != nil || current == revision {
		return whole, err
	}
	old, ok := r.(*runnerspec.KubernetesRunner)
	if now, same := whole.(*runnerspec.KubernetesRunner); ok && same && old.Cluster != nil && now.Cluster != nil {
		old.Cluster.Auth = now.Cluster.Auth
	}
	return r, nil
}

// update follows a configuration for the steps that are started from now on, and
// reports whether it was news. One that is nil, or was heard, changes nothing.
func (l *executors) update(ctx context.Context, configuration *wire.AgentConfiguration) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if configuration == nil || configuration.Revision == l.lastRevision {
		return false
	}
	l.lastRevision = configuration.Revision
	if !l.follows() {
		return true
	}
	old := l.now
	l.now, l.err = l.translate(ctx, configuration)
	if l.err != nil {
		l.log.Error("the runner's configuration cannot be followed", "revision", configuration.Revision, "err", l.err)
	} else {
		l.log.Info("the runner's configuration is followed", "revision", configuration.Revision, "executor", l.now.setup.Executor())
	}
	l.close(old)
	return true
}

// close lets go of a launcher that nothing uses any more. The caller holds mu.
func (l *executors) close(gone *launcher) {
	if gone == nil || gone == l.now || gone == l.alone || slices.Contains(slices.Collect(maps.Values(l.of)), gone) {
		return
	}
	if c, ok := gone.executor.(interface{ Close() }); ok {
		c.Close()
	}
}

// revision returns that of the configuration that was heard.
func (l *executors) revision() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastRevision
}

// capacity returns how many steps may run at once.
func (l *executors) capacity() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && l.now.setup.Concurrency > 0 {
		return l.now.setup.Concurrency
	}
	// A step mostly waits for a cloud, so a small machine takes more than it has CPUs.
	return max(4, runtime.NumCPU())
}

// isolation names what keeps the tools of the steps to come from the runner and
// from each other; "" if no step could be started.
func (l *executors) isolation() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return ""
	}
	return l.now.isolated
}

// executor names what starts the steps to come.
func (l *executors) executor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return "none"
	}
	return l.now.setup.Executor()
}

// unhealthyReason is what keeps steps from being started; "" if nothing is known of.
func (l *executors) unhealthyReason(ctx context.Context) string {
	l.mu.Lock()
	now, err := l.now, l.err
	l.mu.Unlock()
	if now == nil {
		return fmt.Sprintf("the runner's configuration cannot be followed: %v", err)
	}
	c, ok := now.executor.(executor.Checker)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	if err := c.Check(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// assign says how the step of an attempt is started, for good.
func (l *executors) assign(attemptID string) (*launcher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return nil, &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: l.err}
	}
	l.of[attemptID] = l.now
	return l.now, nil
}

// keep writes down how the step of an attempt was started, for the next agent.
func (l *executors) keep(attemptID string, by *launcher) error {
	if by.configuration == nil {
		return nil
	}
	return l.kept(attemptID).SaveConfiguration(by.configuration)
}

// by returns how the step of an attempt was started, by this agent or the one
// before.
func (l *executors) by(ctx context.Context, attemptID string) (*launcher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by := l.of[attemptID]; by != nil {
		return by, nil
	}
	configuration, err := l.kept(attemptID).Configuration()
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.alone != nil:
		l.of[attemptID] = l.alone
		return l.alone, nil
	case errors.Is(err, fs.ErrNotExist) && l.err != nil:
		return nil, l.err
	case err != nil:
		return nil, err
	}
	for _, other := range append(slices.Collect(maps.Values(l.of)), l.now) {
		if other != nil && other.configuration != nil && other.configuration.Revision == configuration.Revision {
			l.of[attemptID] = other
			return other, nil
		}
	}
	by, err := l.translate(ctx, configuration)
	if err != nil {
		return nil, fmt.Errorf("look for a step as it was started: %w", err)
	}
	l.of[attemptID] = by
	return by, nil
}

// release forgets how the step of an attempt was started: nothing is left of it.
func (l *executors) release(attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.of[attemptID]
	delete(l.of, attemptID)
	l.close(by)
}

// work returns the folder in whose folder work the attempt works, if it is on
// this machine.
func (by *launcher) work(data string) string {
	if r, ok := by.setup.Runner.(*runnerspec.LocalRunner); ok && r.Job.Folder != "" {
		return r.Job.Folder
	}
	return data
}

// environ are the variables that the setup adds to those of a step, and secrets
// those that nobody is to see.
func (by *launcher) environ() (env, secrets []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(by.setup.Environ)) {
		env = append(env, name+"="+by.setup.Environ[name])
	}
	for _, name := range slices.Sorted(maps.Keys(by.setup.SecretFiles)) {
		b, err := os.ReadFile(by.setup.SecretFiles[name])
		if err != nil {
			return nil, nil, &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: fmt.Errorf("the secret %s of the runner's configuration: %w", name, err)}
		}
		secrets = append(secrets, name+"="+strings.TrimRight(string(b), "\r\n"))
	}
	return env, secrets, nil
}
