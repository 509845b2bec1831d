package agent

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/agentlog"
	runnerstep "github.com/fairlead/fairlead/runner/step"
)

// sendLog runs a job whose log is the agent's own. It is the one job that the
// agent runs itself: in a step elsewhere nobody has what is to be told. All else
// is as in any step: the launch token, the signed spec, the lease, masking, the
// report.
func (a *Agent) sendLog(life context.Context, attemptID string, c wire.Claim) {
	in := a.input(c)
	dir, err := a.folders(attemptID, in)
	code := attempt.ExitInternal
	if err == nil {
		code = runnerstep.Run(life, dir, in, c.LaunchToken, a.ownLogEnv())
	}
	a.gone(attemptID)
	exit := executor.Exit{Code: &code, Cause: fairlead.CauseExited}
	a.count(attemptID, code == attempt.ExitFinished, exit)
	if code == attempt.ExitFinished {
		a.clear(life, attemptID, func(context.Context) error { return a.removeFolders(a.cfg.Data, attemptID) }) // no executor knows of it
		return
	}
	d := wire.DiedRequest{Epoch: c.Epoch, Reason: string(fairlead.CauseExited), ExitCode: &code, Message: "the agent could not send its log"}
	if err != nil {
		d.Reason, d.Message = string(fairlead.CauseLaunchFailed), err.Error()
	}
	a.settle(life, attemptID, c.Epoch, d)
}

// ownLogEnv are those of a step that starts no process, and ends none.
func (a *Agent) ownLogEnv() runnerstep.Env {
	p := agentlog.Plugin{}
	if a.cfg.ShareLog {
		p.Recent = a.options.recent
	}
	transport := a.options.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return runnerstep.Env{Version: a.options.Version, Plugins: plugin.Registry{agentlog.Name: p}, Log: a.log, Now: a.now, Random: a.options.random(),
		NewID: rand.Text, Transport: transport,
		Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}
}
