package agent

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/plugin"
	"github.com/fairlead/fairlead/runner/internal/plugin/agentlog"
	"github.com/fairlead/fairlead/runner/internal/stepdir"
	runnerstep "github.com/fairlead/fairlead/runner/step"
)

// sendLog runs a job whose log is the agent's own. It is the one job that the
// agent runs itself: in a step elsewhere nobody has what is to be told. All else
// is as in any step: the launch token, the signed spec, the lease, masking, the
// report.
func (a *Agent) sendLog(life context.Context, attempt string, c wire.Claim) {
	in := a.input(c)
	dir, err := a.folders(attempt, in)
	code := stepdir.ExitInternal
	if err == nil {
		code = runnerstep.Run(life, dir, in, c.LaunchToken, a.ownSurroundings())
	}
	a.gone(attempt)
	exit := executor.Exit{Code: &code, Reason: executor.Exited}
	a.count(attempt, code == stepdir.ExitFinished, exit)
	if code == stepdir.ExitFinished {
		a.clear(life, attempt, func(context.Context) error { return a.removeFolders(a.cfg.Data, attempt) }) // no executor knows of it
		return
	}
	d := wire.DiedRequest{Epoch: c.Epoch, Reason: executor.Exited, ExitCode: &code, Message: "the agent could not send its log"}
	if err != nil {
		d.Reason, d.Message = executor.LaunchFailed, err.Error()
	}
	a.settle(life, attempt, c.Epoch, d)
}

// ownSurroundings are those of a step that starts no process, and ends none.
func (a *Agent) ownSurroundings() runnerstep.Surroundings {
	p := agentlog.Plugin{}
	if a.cfg.ShareLog {
		p.Recent = a.options.recent
	}
	transport := a.options.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	return runnerstep.Surroundings{Version: a.options.Version, Plugins: plugin.Registry{agentlog.Name: p}, Log: a.log, Now: a.now, Random: a.options.random(),
		NewID: rand.Text, Transport: transport,
		Signal: func() {}, Kill: func(context.Context) (int, error) { return 0, nil }}
}
