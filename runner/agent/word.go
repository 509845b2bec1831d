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
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/mode"
)

// verbs are the customer's commands, and what each makes of an agent.
func verbs() map[string]mode.Mode {
	return map[string]mode.Mode{"enable": mode.Enabled, "pause": mode.Paused, "drain": mode.Draining, "disable": mode.Disabled}
}

// showVerb prints what was said.
const showVerb = "mode"

// isVerb reports whether the first argument of the agent is one of the
// customer's commands.
func isVerb(arg string) bool {
	_, ok := verbs()[arg]
	return ok || arg == showVerb
}

// drainLook is the time between two looks at what still runs.
const drainLook = time.Second

const (
	// obeyFor is how long the agent has to obey: it looks every two seconds.
	obeyFor = 6 * time.Second
	// obeyLook is the time between two looks at whether it has.
	obeyLook = 20 * time.Millisecond
)

// say runs a command of the customer's. It writes to the data folder, and waits
// until the agent there has obeyed. One that is not there obeys when it starts;
// one that has not obeyed in time is a failure.
func say(verb string, args []string, o Options) int {
	fs := flag.NewFlagSet("agent "+verb, flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	var cfg config.RunnerMode
	reason := fs.String("reason", "", "why, in a line; the vendor reads it")
	wait := fs.Bool("wait", false, "wait until nothing runs any more")
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
		w := mode.Word{Mode: m, Since: time.Now().UTC().Truncate(time.Second), Reason: mode.Line(*reason)}
		if err := mode.Write(cfg.Data, w); err != nil {
			fmt.Fprintln(o.Stderr, err)
			return exitError
		}
		if !awaitObeyed(cfg.Data, w) {
			fmt.Fprintf(o.Stderr, "The agent has not obeyed within %s: until it does, it may begin jobs. Its log may say why; an agent of an older version obeys and does not confirm it.\n", obeyFor)
			code = exitError
		}
	}
	if err := tell(out, cfg); err != nil {
		fmt.Fprintln(o.Stderr, err)
		return exitError
	}
	if *wait {
		return max(code, awaitIdle(out, o.Stderr, cfg.Data))
	}
	return code
}

// awaitObeyed waits until the agent on the data folder obeys the word, and
// reports whether it does. Where no agent runs, none can begin anything.
func awaitObeyed(data string, w mode.Word) bool {
	for limit := time.Now().Add(obeyFor); agentRuns(data); time.Sleep(obeyLook) {
		if mode.Obeyed(data, w) {
			return true
		}
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

// tell prints the word that counts.
func tell(out io.Writer, cfg config.RunnerMode) error {
	if _, err := os.Stat(cfg.Data); err != nil {
		return fmt.Errorf("find the agent's data folder: %w", err)
	}
	w, err := mode.Read(cfg.Data)
	if err != nil {
		return err
	}
	line := string(w.Mode)
	if !w.Since.IsZero() && !w.Mode.Takes() {
		line += " since " + w.Since.Format(time.RFC3339)
	}
	if w.Reason != "" {
		line += " (" + w.Reason + ")"
	}
	fmt.Fprintln(out, line)
	if !agentRuns(cfg.Data) {
		fmt.Fprintln(out, "No agent runs on this data folder. One that starts obeys it.")
	}
	if given, err := mode.Parse(cfg.Mode); err == nil && mode.Stricter(w, mode.Word{Mode: given}) != w {
		fmt.Fprintf(out, "FAIRLEAD_MODE is %s here: an agent that was started with it keeps to that.\n", given)
	}
	return nil
}

// awaitIdle waits until the control plane has the last report. What is then left
// of a step that could not be removed holds up nobody.
func awaitIdle(out, log io.Writer, data string) int {
	for told := -1; ; {
		n, err := atWork(data)
		if err != nil {
			fmt.Fprintln(log, err)
			return exitError
		}
		if n == 0 {
			fmt.Fprintln(out, "Nothing runs.")
			return exitOK
		}
		if n != told {
			fmt.Fprintf(out, "Still at work: %d. Waiting.\n", n)
			told = n
		}
		time.Sleep(drainLook)
	}
}

// atWork counts the attempts whose end the control plane does not know yet.
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
