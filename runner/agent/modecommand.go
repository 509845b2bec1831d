package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/modefile"
)

// verbs maps each command of the customer to the mode that it sets.
func verbs() map[string]fairlead.RunnerMode {
	return map[string]fairlead.RunnerMode{"enable": fairlead.ModeEnabled, "pause": fairlead.ModePaused, "drain": fairlead.ModeDraining, "disable": fairlead.ModeDisabled}
}

// showVerb is the command that prints the mode.
const showVerb = "mode"

// isVerb reports whether the agent's first argument is one of the customer's commands.
func isVerb(arg string) bool {
	_, ok := verbs()[arg]
	return ok || arg == showVerb
}

// drainLook is the pause between two checks for running steps.
const drainLook = time.Second

const (
	// applyFor is how long the agent has to apply a mode; it reads the mode every two seconds.
	applyFor = 6 * time.Second
	// applyLook is the pause between two checks whether the agent has applied the mode.
	applyLook = 20 * time.Millisecond
)

// modeCommand runs one of the customer's commands. It writes the mode to the data folder and waits
// until the agent there has applied it. Without a running agent it succeeds: the next agent applies
// the mode when it starts. If a running agent does not apply the mode in time, the command fails.
func modeCommand(verb string, args []string, o Options) int {
	fs := flag.NewFlagSet("agent "+verb, flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	var cfg config.RunnerMode
	reason := fs.String("reason", "", "why, in one line; the vendor sees it")
	wait := fs.Bool("wait", false, "wait until no step runs")
	switch err := config.Load(&cfg, fs, args, o.Environ); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(o.Stderr, err)
		return exitUsage
	}
	out := o.Stdout
	if out == nil {
		out = io.Discard
	}
	code := exitOK
	if m, ok := verbs()[verb]; ok {
		w := fairlead.CustomerMode{Mode: m, Since: time.Now().UTC().Truncate(time.Second), Reason: modefile.Line(*reason)}
		if err := modefile.Write(cfg.Data, w); err != nil {
			fmt.Fprintln(o.Stderr, err)
			return exitError
		}
		if !awaitApplied(cfg.Data, w) {
			fmt.Fprintf(o.Stderr, "The agent did not confirm the mode within %s and may still start jobs. See the agent's log for the reason. An agent of an older version applies the mode without confirming it.\n", applyFor)
			code = exitError
		}
	}
	if err := printMode(out, cfg); err != nil {
		fmt.Fprintln(o.Stderr, err)
		return exitError
	}
	if *wait {
		return max(code, awaitIdle(out, o.Stderr, cfg.Data))
	}
	return code
}

// awaitApplied waits until the agent on the data folder has applied the mode. It returns true if the
// agent has applied the mode in time, or if no agent runs: without an agent no job can start.
func awaitApplied(data string, w fairlead.CustomerMode) bool {
	for limit := time.Now().Add(applyFor); agentRuns(data); time.Sleep(applyLook) {
		if modefile.Confirmed(data, w) {
			return true
		}
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

// printMode prints the effective mode.
func printMode(out io.Writer, cfg config.RunnerMode) error {
	if _, err := os.Stat(cfg.Data); err != nil {
		return fmt.Errorf("find the agent's data folder: %w", err)
	}
	w, err := modefile.Read(cfg.Data)
	if err != nil {
		return err
	}
	line := string(w.Mode)
	if !w.Since.IsZero() && !w.Mode.TakesJobs() {
		line += " since " + w.Since.Format(time.RFC3339)
	}
	if w.Reason != "" {
		line += " (" + w.Reason + ")"
	}
	fmt.Fprintln(out, line)
	if !agentRuns(cfg.Data) {
		fmt.Fprintln(out, "No agent runs on this data folder. The next agent applies this mode when it starts.")
	}
	if given, err := fairlead.ParseRunnerMode(cfg.Mode); err == nil && given.Compare(w.Mode) > 0 {
		fmt.Fprintf(out, "FAIRLEAD_MODE is %s here and is stricter: an agent that was started with it uses %[1]s.\n", given)
	}
	return nil
}

// awaitIdle waits until the control plane has the report of every step. It does not wait for the
// removal of the steps' files.
func awaitIdle(out, log io.Writer, data string) int {
	for shown := -1; ; {
		n, err := atWork(data)
		if err != nil {
			fmt.Fprintln(log, err)
			return exitError
		}
		if n == 0 {
			fmt.Fprintln(out, "No step runs.")
			return exitOK
		}
		if n != shown {
			fmt.Fprintf(out, "Waiting for %d running steps.\n", n)
			shown = n
		}
		time.Sleep(drainLook)
	}
}

// atWork counts the attempts whose end is not reported to the control plane yet.
func atWork(data string) (n int, err error) {
	entries, err := os.ReadDir(filepath.Join(data, stepsFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("look for steps: %w", err)
	}
	for _, e := range entries {
		if !attempt.Kept(filepath.Join(data, attemptsFolder, e.Name())).Over() {
			n++
		}
	}
	return n, nil
}
