// Package agentlog is the plugin whose job's log is what the agent itself has
// said of late. The agent runs it, as nobody else has that.
package agentlog

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Name is the plugin's name in a job spec.
const Name = "agent-log"

// Kept is how much of the agent's log is kept, in bytes: some hundred lines, and
// little beside the memory that an agent takes.
const Kept = 64 << 10

// Recent keeps the end of what is written to it. The zero value is ready. Safe
// for concurrent use.
type Recent struct {
	mu   sync.Mutex
	b    []byte
	lost bool // something before it
}

// Write never fails.
func (r *Recent) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b = append(r.b, p...)
	if len(r.b) > 2*Kept { // seldom, so that a byte is moved about once
		r.b, r.lost = append(r.b[:0], r.b[len(r.b)-Kept:]...), true
	}
	return len(p), nil
}

// lines returns what is kept, from the beginning of a line.
func (r *Recent) lines() (text []byte, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, lost := max(0, len(r.b)-Kept), r.lost
	if lost = lost || from > 0; lost {
		for from < len(r.b) && (from == 0 || r.b[from-1] != '\n') {
			from++
		}
	}
	return append([]byte(nil), r.b[from:]...), lost
}

// Plugin implements plugin.Plugin. Without Recent it tells nothing.
type Plugin struct{ Recent *Recent }

// Operations lists "check": it changes nothing, as a check of the runner.
func (Plugin) Operations() []string { return []string{"check"} }

// Run writes what is kept to the job's log.
func (p Plugin) Run(ctx context.Context, _ plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, fmt.Errorf("agent-log: %w", err)
	}
	if p.Recent == nil {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonLogNotShared, "the agent does not share its log; whoever runs it has it, and FAIRLEAD_SHARE_LOG lets it be asked for")
	}
	text, lost := p.Recent.lines()
	if lost {
		if _, err := io.WriteString(env.Log, "[fairlead: what is older is not kept here]\n"); err != nil {
			return plugin.Result{}, fmt.Errorf("agent-log: write log: %w", err)
		}
	}
	if _, err := env.Log.Write(text); err != nil {
		return plugin.Result{}, fmt.Errorf("agent-log: write log: %w", err)
	}
	return plugin.Result{}, nil
}
