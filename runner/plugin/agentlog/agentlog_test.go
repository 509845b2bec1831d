package agentlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/agentlog"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlugin(t *testing.T) {
	plugintest.Run(t, plugintest.Subject{
		New: func(string) plugin.Plugin {
			r := &agentlog.Recent{}
			fmt.Fprintln(r, "it was ready")
			return agentlog.Plugin{Recent: r}
		},
		Good: func(int) plugin.Spec {
			return plugin.Spec{Plugin: agentlog.Name, Operation: "check", Job: "job_1", Epoch: 1}
		},
	})
}

func run(t *testing.T, r *agentlog.Recent) (string, error) {
	t.Helper()
	var log bytes.Buffer
	_, err := agentlog.Plugin{Recent: r}.Run(t.Context(), plugin.Spec{}, plugin.Env{Log: &log})
	return log.String(), err
}

func TestTheEndIsKeptFromTheBeginningOfALine(t *testing.T) {
	r := &agentlog.Recent{}
	for i := range 20000 {
		fmt.Fprintf(r, "line %d\n", i)
		if i == 2 {
			if text, err := run(t, r); err != nil || text != "line 0\nline 1\nline 2\n" {
				t.Errorf("of three lines it tells %q (%v)", text, err)
			}
		}
	}
	text, err := run(t, r)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if err != nil || len(text) > agentlog.Kept+100 || len(text) < agentlog.Kept/2 || !strings.HasPrefix(lines[0], "[fairlead: ") || !strings.HasPrefix(lines[1], "line ") || lines[len(lines)-1] != "line 19999" {
		t.Errorf("%d bytes, from %q over %q to %q (%v)", len(text), lines[0], lines[1], lines[len(lines)-1], err)
	}
	// One line that is longer than all that is kept leaves nothing whole.
	fmt.Fprintf(r, "%s\n", strings.Repeat("x", 3*agentlog.Kept))
	if text, err := run(t, r); err != nil || strings.Contains(text, "x") {
		t.Errorf("of half a line it tells %d bytes (%v)", len(text), err)
	}
}

func TestWhoDoesNotShareTellsNothing(t *testing.T) {
	text, err := run(t, nil)
	if e, ok := errors.AsType[*plugin.Error](err); text != "" || !ok || e.Reason != fairlead.ReasonLogNotShared {
		t.Errorf("it told %q (%v)", text, err)
	}
}
