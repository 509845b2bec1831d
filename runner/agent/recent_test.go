package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

func sendRecent(t *testing.T, r *recent) (string, error) {
	t.Helper()
	var log bytes.Buffer
	_, err := ownLog{r}.Run(t.Context(), plugin.Spec{}, plugin.Env{Log: &log})
	return log.String(), err
}

func TestKeptLogStartsAtALine(t *testing.T) {
	r := &recent{}
	for i := range 20000 {
		fmt.Fprintf(r, "line %d\n", i)
		if i == 2 {
			if text, err := sendRecent(t, r); err != nil || text != "line 0\nline 1\nline 2\n" {
				t.Errorf("after three lines the log is %q (%v)", text, err)
			}
		}
	}
	text, err := sendRecent(t, r)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if err != nil || len(text) > keptLog+100 || len(text) < keptLog/2 || !strings.HasPrefix(lines[0], "[fairlead: ") || !strings.HasPrefix(lines[1], "line ") || lines[len(lines)-1] != "line 19999" {
		t.Errorf("the log has %d bytes; lines 1 and 2 are %q and %q, the last is %q (%v)", len(text), lines[0], lines[1], lines[len(lines)-1], err)
	}
	// After a line that is longer than keptLog, no complete line is left.
	fmt.Fprintf(r, "%s\n", strings.Repeat("x", 3*keptLog))
	if text, err := sendRecent(t, r); err != nil || strings.Contains(text, "x") {
		t.Errorf("the log holds a part of a line; it has %d bytes (%v)", len(text), err)
	}
}

func TestAnAgentThatDoesNotShareItsLogSendsNothing(t *testing.T) {
	text, err := sendRecent(t, nil)
	if e, ok := errors.AsType[*plugin.Error](err); text != "" || !ok || e.Reason != fairlead.ReasonLogNotShared {
		t.Errorf("the agent sent %q (%v), want reason %s", text, err, fairlead.ReasonLogNotShared)
	}
}

func TestACanceledJobSendsNoLog(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log bytes.Buffer
	if _, err := (ownLog{&recent{b: []byte("line\n")}}).Run(ctx, plugin.Spec{}, plugin.Env{Log: &log}); !errors.Is(err, context.Canceled) || log.Len() > 0 {
		t.Errorf("the agent sent %q (%v), want nothing and context.Canceled", &log, err)
	}
}
