// Command fairlead is the CLI, and the whole product on one machine: `fairlead
// dev` runs a control plane and a runner.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

// version is set when a release is built, with -ldflags '-X main.version=…'.
var version = ""

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 2 && os.Args[1] == "runner" {
		// The agent and the step handle signals themselves, so they run before the
		// CLI installs its own handler.
		switch os.Args[2] {
		case "agent":
			if !cli.IsAgentCommand(os.Args[3:]) {
				return runnerAgent(os.Args[3:])
			}
		case "step":
			return runnerStep(os.Args[3:])
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	env := cli.Env{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdinTTY: isTerminal(os.Stdin), StdoutTTY: isTerminal(os.Stdout), StderrTTY: isTerminal(os.Stderr),
		Width:       width(os.Stdout),
		Getenv:      os.Getenv,
		Now:         time.Now,
		Version:     buildVersion(),
		Interrupts:  interrupts(cancel),
		OpenBrowser: openBrowser,
	}
	connect(&env)
	return cli.Main(ctx, env)
}

// interrupts cancels the program's context on the first Ctrl-C or SIGTERM. For each later
// signal, it sends a value to the returned channel. If no receiver waits for the value,
// the program exits.
func interrupts(cancel context.CancelFunc) <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	again := make(chan struct{})
	go func() {
		<-signals
		cancel()
		for range signals {
			select {
			case again <- struct{}{}:
			default:
				os.Exit(130)
			}
		}
	}()
	return again
}

func isTerminal(f *os.File) bool {
	return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
}

// width returns the number of columns of a terminal, or 0 if the file is not a terminal.
func width(f *os.File) int {
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// buildVersion returns the version of the release. If the program is not a release, it
// returns the version or the revision that the Go toolchain recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}
