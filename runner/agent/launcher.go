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

// checkFor bounds the health check of an executor.
const checkFor = 2 * time.Second

// launcher starts steps with one configuration and one executor.
type launcher struct {
	setup         launchconfig.Setup
	executor      executor.Executor
	place         executor.Place
	isolated      string                   // how the tools of its steps are isolated; a wire.Isolation constant
	configuration *wire.AgentConfiguration // nil: made from the agent's file alone
	policy        bool                     // whether the agent's file names a policy
}

// executors holds the launchers of the agent's steps. New steps use a launcher that is made from the
// runner's current configuration. Each running step keeps the launcher that started it. Safe for
// concurrent use.
type executors struct {
	cfg    config.Runner
	file   runnerspec.Agent
	runner string
	o      Options
	log    *slog.Logger
	kept   func(attemptID string) attempt.Kept

	mu           sync.Mutex
	lastRevision string               // revision of the newest configuration received; "": none
	now          *launcher            // launcher of new steps; nil: the newest configuration cannot be applied
	err          error                // why now is nil
	of           map[string]*launcher // by attempt ID
	alone        *launcher            // made from the agent's file alone; nil: the file is incomplete
}

// ReadFile reads an agent's file. The parameter path is the file's path. If path begins with a brace,
// it is the file's content: some platforms support variables, but no files. If path is "", there is no
// file.
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
	for key, from := range a.Secrets {
		if s, err := runnerspec.ParseSecret(key, from); err == nil && component.Reserved(s.Environment) {
			return a, fmt.Errorf("%s: secrets has the environment variable %s, which the runner sets itself; for a variable of a component, write var.NAME", name, s.Environment)
		}
	}
	return a, nil
}

// readOwnFile reads the agent's file, and refuses one with a setting that this agent cannot apply. The
// agent of a control plane has no file of its own.
func readOwnFile(cfg config.Runner, o Options) (runnerspec.Agent, error) {
	if o.Direct != nil {
		return runnerspec.Agent{}, nil
	}
	file, err := ReadFile(cfg.Config)
	if err != nil {
		return file, err
	}
	_, err = launchconfig.Of(file.Runner, nil, false)
	return file, err
}

// openExecutors opens the executor of the agent's file. It accepts a file that lacks settings, because
// the control plane's configuration may add them. It refuses a file with an invalid setting.
func openExecutors(ctx context.Context, cfg config.Runner, file runnerspec.Agent, runner string, o Options, log *slog.Logger, kept func(string) attempt.Kept) (*executors, error) {
	l := &executors{cfg: cfg, file: file, runner: runner, o: o, log: log, kept: kept, of: map[string]*launcher{}}
	if o.Direct != nil { // an agent next to the control plane starts no steps before it has a configuration
		l.err = errors.New("the runner's configuration has not arrived yet")
		return l, nil
	}
	setup, err := launchconfig.Of(l.file.Runner, nil, false)
	switch {
	case err != nil:
	case o.Executor != nil:
		l.alone = &launcher{setup: setup, executor: o.Executor, place: o.Executor.Place(), policy: l.file.Policy != ""}
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

// follows reports whether configurations of the control plane are applied.
func (l *executors) follows() bool { return l.o.Executor == nil && !l.file.Final }

func (l *executors) open(ctx context.Context, s launchconfig.Setup, configuration *wire.AgentConfiguration) (*launcher, error) {
	e, err := openExecutor(ctx, l.cfg.Data, l.runner, s, l.o)
	if err != nil {
		return nil, err
	}
	by := &launcher{setup: s, executor: e, place: e.Place(), configuration: configuration, policy: l.file.Policy != ""}
	if by.isolated = isolationAt(l.cfg, by.place); by.isolated == wire.IsolationNone && l.cfg.Isolation == isolationRequired {
		l.close(by)
		return nil, fmt.Errorf("FAIRLEAD_ISOLATION is %s, and this machine has no Landlock, which would isolate the tools of jobs from the runner. Use a Linux kernel 5.13 or later with landlock in its `lsm=` option, or an executor that starts a container for each job (docker, kubernetes or ecs)", isolationRequired)
	}
	if err := l.fits(by); err != nil {
		l.close(by)
		return nil, err
	}
	return by, nil
}

// fits refuses CA certificates and references to secrets that are too large to be passed to a step.
// Without this check no step could start, and each job would report the same error. fits tests with the
// longest names that a job may have. If another input makes a step too large, the job with that input
// fails.
func (l *executors) fits(by *launcher) error {
	if l.o.ca == "" && len(l.file.Secrets) == 0 && l.file.Policy == "" && l.file.InstallKey == "" || by.place.Shared || by.place.Holds == nil {
		return nil
	}
	env, secrets, err := by.environ()
	if err != nil {
		return nil // the job reports the error: the file may appear later
	}
	id, name := strings.Repeat("x", maxID), strings.Repeat("x", fairlead.MaxName)
	in := attempt.Input{URL: l.cfg.URL, Registry: l.cfg.URL, Runner: fairlead.RunnerID(id), Job: fairlead.JobID(id), Epoch: 1, Operation: string(job.OpMigrateState), Plugin: component.ThatDoes(job.OpMigrateState).Name,
		Keys:    []wire.VerificationKey{{ID: id, PublicKey: make([]byte, ed25519.PublicKeySize)}},
		Install: name, InstallID: id, Component: name, PlanJob: id, Grace: time.Hour, StartBefore: time.Now(),
		Tofu: l.cfg.Tofu, Programs: l.cfg.Programs, PluginCache: l.cfg.PluginCache, CLIConfig: l.cfg.CLIConfig, Mirror: l.cfg.ProviderMirror, PassEnv: l.cfg.PassEnv, CA: l.o.ca, PlainHTTP: true, Secrets: l.file.Secrets, Policy: l.file.Policy, Ledger: l.file.Ledger, InstallKey: l.file.InstallKey}
	s := executor.Step{ID: id, Args: []string{"step", "--dir", path.Join(by.place.Data, stepsFolder, id)}, Env: env,
		Secrets: append(secrets, attempt.TokenVariable+"="+strings.Repeat("x", maxToken))}
	if s.Input, err = attempt.Encode(by.placed(in)); err != nil {
		return err
	}
	if err := by.place.Holds(s); err != nil {
		if l.o.ca == "" {
			return fmt.Errorf("the agent's file has %d secrets, and each step gets their references: %w. Store several values in one secret, as fields of a JSON object", len(l.file.Secrets), err)
		}
		return fmt.Errorf("the certificates of FAIRLEAD_CA_FILE have %d bytes, and each step gets them: %w. Set it to a file that holds only the certificate that signed the control plane's", len(l.o.ca), err)
	}
	return nil
}

// The longest names in a step's input, in bytes.
const (
	maxID    = 40
	maxToken = 300
)

// translate makes a launcher from a configuration of the control plane.
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
	if l.file.Policy != "" {
		if err := runnerspec.Settled(file, r); err != nil {
			return nil, err
		}
	}
	s, err := launchconfig.Of(file, r, l.o.Direct != nil)
	if err != nil {
		return nil, err
	}
	return l.open(ctx, s, configuration)
}

// unmasked returns the configuration with the current credentials, which are never written to disk. A
// configuration of an older revision gets the current credentials too: the agent needs it to find the
// steps that were started with it.
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

// update applies a configuration to the steps that start from now on, and reports whether its
// revision was new. If configuration is nil or has the latest revision, update changes nothing.
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
		l.log.Error("cannot apply the runner's configuration; no jobs start until it is corrected", "revision", configuration.Revision, "err", l.err)
	} else {
		l.log.Info("applied the runner's configuration", "revision", configuration.Revision, "executor", l.now.setup.Executor())
	}
	l.close(old)
	return true
}

// close closes a launcher that no step and no new job uses. The caller holds mu.
func (l *executors) close(gone *launcher) {
	if gone == nil || gone == l.now || gone == l.alone || slices.Contains(slices.Collect(maps.Values(l.of)), gone) {
		return
	}
	if c, ok := gone.executor.(interface{ Close() }); ok {
		c.Close()
	}
}

// revision returns the revision of the newest configuration received.
func (l *executors) revision() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastRevision
}

// capacity returns the number of slots.
func (l *executors) capacity() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != nil && l.now.setup.Concurrency > 0 {
		return l.now.setup.Concurrency
	}
	// A step mostly waits for a cloud, so a small machine takes more than it has CPUs.
	return max(4, runtime.NumCPU())
}

// current returns the launcher of new steps, or why there is none.
func (l *executors) current() (*launcher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return nil, l.err
	}
	return l.now, nil
}

// isolation returns the mechanism that isolates the tools of new steps from the runner and from
// each other; "" if no step could start.
func (l *executors) isolation() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return ""
	}
	return l.now.isolated
}

// executor returns the name of the executor that starts new steps.
func (l *executors) executor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return "none"
	}
	return l.now.setup.Executor()
}

// unhealthyReason returns why no step can start; "" if no reason is known.
func (l *executors) unhealthyReason(ctx context.Context) string {
	l.mu.Lock()
	now, err := l.now, l.err
	l.mu.Unlock()
	if now == nil {
		return fmt.Sprintf("cannot apply the runner's configuration: %v", err)
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

// assign assigns the current launcher to an attempt. The attempt keeps this launcher to its end.
func (l *executors) assign(attemptID string) (*launcher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return nil, &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: l.err}
	}
	l.of[attemptID] = l.now
	return l.now, nil
}

// share gives an attempt the launcher of the warm step that runs it.
func (l *executors) share(warm, attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[attemptID] = l.of[warm]
}

// ahead reports whether new steps are started ahead, and how many for first jobs; 0 if the configuration does not set it.
func (l *executors) ahead() (starts bool, first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || l.now.place.Shared {
		return false, 0
	}
	return l.now.place.StartsAhead, l.now.setup.WarmTasks
}

// finder returns the executor of new steps if it finds steps without the agent's disk; otherwise nil.
func (l *executors) finder() executor.Finder {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return nil
	}
	f, _ := l.now.executor.(executor.Finder)
	return f
}

// keep records on disk how the step of an attempt was started, for the next agent.
func (l *executors) keep(attemptID string, by *launcher) error {
	if by.configuration == nil {
		return nil
	}
	return l.kept(attemptID).SaveConfiguration(by.configuration)
}

// by returns the launcher of an attempt's step, which this agent or an earlier one started.
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
		return nil, fmt.Errorf("apply the configuration that the step was started with: %w", err)
	}
	l.of[attemptID] = by
	return by, nil
}

// release forgets which launcher an attempt has. It is called after all files of the attempt were
// removed.
func (l *executors) release(attemptID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.of[attemptID]
	delete(l.of, attemptID)
	l.close(by)
}

// runsIn refuses an image of a job's own that this launcher cannot start, or must not start. "" is the runner's image.
func (by *launcher) runsIn(image string) error {
	if image == "" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &executor.LaunchError{Cause: fairlead.CauseImageRefused, Err: fmt.Errorf(format, args...)}
	}
	permitted := by.setup.Images
	switch {
	case by.policy && len(permitted) == 0:
		return refuse("the component runs in the image %s, and the customer's policy permits only images that runner_configuration.job.images of the agent's file lists", image)
	case !by.place.OwnImages:
		return refuse("the component runs in the image %s, and the executor %s of this runner cannot start a job in an image of its own", image, by.setup.Executor())
	case !runnerspec.PermitsImage(permitted, image):
		return refuse("the component runs in the image %s, and runner_configuration.job.images of the agent's file permits only %s", image, strings.Join(permitted, ", "))
	}
	return nil
}

// work returns the folder that contains the attempts' work folder: the folder of a local runner's
// configuration, or else data.
func (by *launcher) work(data string) string {
	if r, ok := by.setup.Runner.(*runnerspec.LocalRunner); ok && r.Job.Folder != "" {
		return r.Job.Folder
	}
	return data
}

// environ returns the variables that the setup adds to a step's environment. The variables in secrets
// have values that the step must redact in the log.
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
