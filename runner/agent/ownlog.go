package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/plugin"
	runnerstep "github.com/fairlead/fairlead/runner/step"
)

// sendLog runs a job whose log is the agent's own log. The agent runs this operation itself, without
// a plugin, because a step in a container cannot read the agent's log. Everything else is the same as
// in every step: launch token, signed spec, lease, redaction and report.
func (a *Agent) sendLog(agentCtx context.Context, attemptID string, c wire.Claim) {
	in := a.input(c)
	dir, err := a.folders(attemptID, in)
	code := attempt.ExitInternal
	if err == nil {
		code = runnerstep.Run(agentCtx, dir, in, c.LaunchToken, a.ownLogEnv())
	}
	a.gone(attemptID)
	exit := executor.Exit{Code: &code, Cause: fairlead.CauseExited}
	a.count(attemptID, code == attempt.ExitFinished, exit)
	if code == attempt.ExitFinished {
		a.clear(agentCtx, attemptID, func(context.Context) error { return a.removeFolders(a.cfg.Data, attemptID) }) // no executor started a process for this attempt
		return
	}
	d := wire.DiedRequest{Epoch: c.Epoch, Reason: string(fairlead.CauseExited), ExitCode: &code, Message: "the agent could not send its log; see the agent's log"}
	if err != nil {
		d.Reason, d.Message = string(fairlead.CauseLaunchFailed), err.Error()
	}
	a.reportDeath(agentCtx, attemptID, c.Epoch, d)
}

// ownLogEnv is the environment of a step that starts no process and kills none.
func (a *Agent) ownLogEnv() runnerstep.Env {
	var shared *recent
	if a.cfg.ShareLog {
		shared = a.options.recent
	}
	transport := a.options.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return runnerstep.Env{Version: a.options.Version, Plugins: ownLog{shared}, Log: a.log, Now: a.now, Random: a.options.random(),
		NewID: rand.Text, Transport: transport,
		Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}
}

// ownLog is the work of a job that sends the agent's log. If recent is nil, the job is refused.
type ownLog struct{ recent *recent }

// Operations implements runnerstep.Work.
func (ownLog) Operations(string) []string { return []string{string(job.OpAgentLog)} }

// Names implements runnerstep.Work.
func (ownLog) Names() string { return "its own log" }

// Run writes the kept end of the agent's log to the job's log.
func (l ownLog) Run(ctx context.Context, _ plugin.Spec, env plugin.Env) (plugin.Result, error) {
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, fmt.Errorf("agent-log: %w", err)
	}
	if l.recent == nil {
		return plugin.Result{}, plugin.Errorf(fairlead.ReasonLogNotShared, "the agent does not share its log. Ask the agent's operator for it; FAIRLEAD_SHARE_LOG=true lets the control plane request it")
	}
	text, lost := l.recent.lines()
	if lost {
		if _, err := io.WriteString(env.Log, "[fairlead: older lines were dropped]\n"); err != nil {
			return plugin.Result{}, fmt.Errorf("agent-log: write log: %w", err)
		}
	}
	if _, err := env.Log.Write(text); err != nil {
		return plugin.Result{}, fmt.Errorf("agent-log: write log: %w", err)
	}
	return plugin.Result{}, nil
}
