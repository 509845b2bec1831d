package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/transport"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/process"
	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/runner/proctree"
)

// Exit codes of the agent.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// idleHeap is what the agent's memory is held to, in bytes, by collecting more
// often: an idle agent is to take less than 30 MiB in all, and its heap is a
// few MiB even with a hundred steps.
const idleHeap = 16 << 20

// Options of Main and Run.
type Options struct {
	Version string
	Stdout  io.Writer // for what the customer's commands print; nil: nowhere
	Stderr  io.Writer // for the log
	Environ []string  // "name=value"
	// StepCommand is the program that runs a step, and the arguments that come
	// before "step --dir DIR"; empty: this program, without any. A program that
	// mounts the runner below a subcommand names that here.
	StepCommand []string
	// HandleSignals lets SIGTERM and SIGINT drain the agent, and a second one
	// interrupt its steps. Without it only the context ends the agent.
	HandleSignals bool
	// Executors are those beside process and docker, by name.
	// They are the program's to name, because their clients cost an agent that
	// does not use them a quarter of its memory.
	Executors map[string]OpenExecutor
	// Env that are not those of a process on a machine; each may be
	// left out.
	Executor  executor.Executor // nil: that of the configuration
	Transport http.RoundTripper // of what the agent sends; nil: one with sane limits
	Stop      <-chan os.Signal  // as HandleSignals, from elsewhere
	Random    func() float64    // in [0, 1), varies pauses; nil: math/rand
	// Stack is what the customer's stack tells its runner; nil: the runner is in
	// none, and its steps take no roles.
	Stack *config.RunnerStack
	// Direct returns the runner's configuration with its secrets, and its revision,
	// to an agent beside the control plane; nil: the agent is where its steps are.
	Direct func(ctx context.Context) (revision string, runner json.RawMessage, err error)
	// File returns the file of an agent beside the control plane for runners of a
	// kind; needed with Direct, and else not used.
	File func(k runnerspec.Kind) (runnerspec.Configuration, error)
	// LeaveSteps has steps go on when the agent ends, for the next one to find.
	LeaveSteps bool
	// AwaitTool waits for the tool that a dead step has left in its workspace;
	// nil: proctree.AwaitSurvivor.
	AwaitTool func(ctx context.Context, workspace string) (proctree.Outcome, error)

	ca        string // what the control plane's certificate is signed by, in PEM
	plainHTTP bool   // the control plane may be on another machine, without TLS

	orphans *shim.Orphans // what the process inherits of jobs; nil: nothing
	recent  *recent       // of the log, for who asks for it; nil: none is kept
}

func (o Options) random() func() float64 {
	if o.Random != nil {
		return o.Random
	}
	return mathrand.Float64
}

func (o Options) awaitTool() func(context.Context, string) (proctree.Outcome, error) {
	if o.AwaitTool != nil {
		return o.AwaitTool
	}
	return proctree.AwaitSurvivor
}

// Main runs `runner agent` until it is told to stop and returns its exit code:
// 0 it has stopped in order, 1 it cannot work, 2 it was called wrongly. With
// pause, drain, disable, enable or mode it sets or shows the customer's mode instead.
func Main(ctx context.Context, args []string, o Options) int {
	if len(args) > 0 && isVerb(args[0]) {
		return modeCommand(args[0], args[1:], o)
	}
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	var cfg config.Runner
	switch err := config.Load(&cfg, fs, args, o.Environ); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(o.Stderr, err)
		return exitUsage
	}
	if err := config.Replaced(o.Environ); err != nil {
		fmt.Fprintln(o.Stderr, err)
		return exitUsage
	}
	if environment(o.Environ, config.StackVariable) != "" {
		o.Stack = &config.RunnerStack{}
		if err := config.Load(o.Stack, flag.NewFlagSet("stack", flag.ContinueOnError), nil, o.Environ); err != nil {
			fmt.Fprintln(o.Stderr, err)
			return exitUsage
		}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		fmt.Fprintf(o.Stderr, "FAIRLEAD_LOG_LEVEL: %q is none of debug, info, warn, error\n", cfg.LogLevel)
		return exitUsage
	}
	if err := proctree.Hide(); err != nil { // tools run as the same user
		fmt.Fprintln(o.Stderr, err)
	}
	// A shim that is killed leaves what it has kept to the agent.
	if err := proctree.BecomeSubreaper(); err != nil {
		fmt.Fprintln(o.Stderr, err)
	} else {
		o.orphans = shim.NewOrphans(process.Groups)
	}
	debug.SetMemoryLimit(idleHeap)
	debug.SetGCPercent(50)
	o.HandleSignals, o.recent = true, &recent{}
	if err := Run(ctx, cfg, slog.New(slog.NewTextHandler(io.MultiWriter(o.Stderr, o.recent), &slog.HandlerOptions{Level: level})), o); err != nil {
		fmt.Fprintln(o.Stderr, err)
		return exitError
	}
	return exitOK
}

// Run runs an agent until ctx ends, and then interrupts its steps and waits for
// them. The error says why it could not begin.
func Run(ctx context.Context, cfg config.Runner, log *slog.Logger, o Options) error {
	if len(o.StepCommand) == 0 && o.Executor == nil {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find our own program, which runs the steps: %w", err)
		}
		o.StepCommand = []string{self}
	}
	o.plainHTTP = cfg.AllowPlainHTTP || o.Direct != nil // that is on this machine, whatever it is called
	if cfg.CAFile != "" {
		var err error
		if o.ca, err = transport.ReadCA(cfg.CAFile); err != nil {
			return err
		}
		way, err := transport.New(o.ca)
		if err != nil {
			return err
		}
		if o.Transport == nil {
			o.Transport = way
		}
	}
	begin, stopped := context.WithCancel(ctx)
	defer stopped()
	var signals chan os.Signal
	if o.HandleSignals {
		signals = make(chan os.Signal, 4)
		var cancel context.CancelFunc
		begin, cancel = signal.NotifyContext(begin, syscall.SIGTERM, syscall.SIGINT) // ends a wait for the control plane
		defer cancel()
	}
	a, err := open(begin, cfg, o, log)
	if err != nil {
		return err
	}
	if o.HandleSignals {
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(signals)
		if begin.Err() != nil && ctx.Err() == nil { // it came before we listened here
			signals <- syscall.SIGTERM
		}
	}
	if o.Stop != nil {
		return a.run(ctx, o.Stop)
	}
	return a.run(ctx, signals)
}

// instance names this process among those that have run with one identity.
func instance() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails (crypto/rand)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + hex.EncodeToString(b)
}
