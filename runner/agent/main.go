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
	"github.com/fairlead/fairlead/pkg/tracing"
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

// idleHeap is the memory limit of the Go runtime in bytes: near the limit it collects garbage more
// often. An idle agent must use less than 30 MiB of memory in all. Its heap has a few MiB, even with a
// hundred steps.
const idleHeap = 16 << 20

// Options of Main and Run.
type Options struct {
	Version string
	Stdout  io.Writer // output of the customer's commands; nil: discarded
	Stderr  io.Writer // for the log
	Environ []string  // "name=value"
	// StepCommand is the program that runs a step, and the arguments before "step --dir DIR". If it is
	// empty, this program runs the steps, without such arguments. If the runner is a subcommand of
	// this program, StepCommand contains the subcommand.
	StepCommand []string
	// HandleSignals lets SIGTERM and SIGINT drain the agent, and a second signal interrupt its
	// steps. Without it only the context stops the agent.
	HandleSignals bool
	// Executors are the executors in addition to process and docker, by name. Each program chooses
	// them, because their clients need a quarter of an agent's memory even if the agent does not use
	// them.
	Executors map[string]OpenExecutor
	// The fields below replace parts of the process's environment, in tests and in the control plane.
	// Each field is optional.
	Executor  executor.Executor // nil: the executor of the configuration
	Transport http.RoundTripper // for the agent's requests; nil: a transport with default limits
	Stop      <-chan os.Signal  // signals from another source than HandleSignals
	Random    func() float64    // in [0, 1), varies pauses; nil: math/rand
	// Stack is the part of the customer's stack that its runner reports; nil: the runner belongs to
	// no stack, and its steps assume no roles.
	Stack *config.RunnerStack
	// Direct returns the runner's configuration with its secrets, and the configuration's revision. It
	// is set for an agent next to the control plane. If it is nil, the agent runs where its steps run.
	Direct func(ctx context.Context) (revision string, runner json.RawMessage, err error)
	// File returns the agent file for runners of a kind, for an agent next to the control plane.
	// Required with Direct, ignored without it.
	File func(k runnerspec.Kind) (runnerspec.Configuration, error)
	// LeaveSteps lets steps continue when the agent ends; the next agent finds them.
	LeaveSteps bool
	// AwaitTool waits for the tool that a dead step left running in its workspace; nil:
	// proctree.AwaitSurvivor.
	AwaitTool func(ctx context.Context, workspace string) (proctree.Outcome, error)

	light     string // program of light steps; "": there is none
	ca        string // certificates, in PEM, that signed the control plane's certificate
	plainHTTP bool   // allow http:// to another machine

	orphans *shim.Orphans // processes that jobs left to this process; nil: none are adopted
	recent  *recent       // the end of the log, for job agent-log; nil: not kept
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

// Main runs `runner agent` until it is stopped, and returns its exit code: 0 if the agent stopped in
// order, 1 if it cannot work, 2 if the arguments are wrong. If the first argument is pause, drain,
// disable, enable or mode, Main sets or shows the customer's mode instead.
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
		fmt.Fprintf(o.Stderr, "FAIRLEAD_LOG_LEVEL: %q is not one of debug, info, warn, error\n", cfg.LogLevel)
		return exitUsage
	}
	if err := proctree.Hide(); err != nil { // tools run as the same user
		fmt.Fprintln(o.Stderr, err)
	}
	// When a shim is killed, this process adopts the processes that the shim kept.
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

// Run runs an agent until ctx ends. Then it interrupts the agent's steps and waits for their end. The
// error is the reason why the agent could not start.
func Run(ctx context.Context, cfg config.Runner, log *slog.Logger, o Options) error {
	if len(o.StepCommand) == 0 && o.Executor == nil {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the runner's own program, which runs the steps: %w", err)
		}
		o.StepCommand = []string{self}
	}
	if o.Executor == nil && o.Direct == nil {
		o.light = findLight(ctx, o.Version, log)
	}
	o.plainHTTP = cfg.AllowPlainHTTP || o.Direct != nil // a control plane next to the agent is on this machine, even if its URL names another host
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
	tracer, err := tracing.New(o.Environ, "fairlead-runner", o.Version, log)
	if err != nil {
		return err
	}
	if tracer != nil {
		defer tracer.Close(ctx)
		if o.Transport == nil {
			if o.Transport, err = transport.New(""); err != nil {
				return err
			}
		}
		o.Transport = tracer.Transport(o.Transport)
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
		if begin.Err() != nil && ctx.Err() == nil { // the signal came before Notify was called here
			signals <- syscall.SIGTERM
		}
	}
	if o.Stop != nil {
		return a.run(ctx, o.Stop)
	}
	return a.run(ctx, signals)
}

// instance returns a name for this process that differs from all others with the same identity.
func instance() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails (crypto/rand)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + hex.EncodeToString(b)
}
