package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/step"
)

// serverGC lets a server's heap of a few MiB grow to five times what is live
// before it is collected: at the usual twice, collecting takes a tenth of the
// CPU under load.
const serverGC = 400

// startServer starts a control plane in this process.
func startServer(ctx context.Context, o cli.ServerOptions) (cli.Server, error) {
	debug.SetGCPercent(serverGC)
	lo := local.Options{Data: o.Data, Listen: o.Listen, URL: o.URL, Version: o.Version, Storage: o.Storage, Logger: o.Logger,
		StackTemplateURL: o.StackTemplateURL, RunnerImage: o.RunnerImage, LoopbackIssuers: o.LoopbackIssuers}
	lo.Terms.LeaseTTL, lo.Terms.Grace = o.Lease, o.Grace
	lo.Terms.StartTTL = min(o.Lease, 20*time.Second) // the launch is silent, too
	s, err := local.Start(ctx, lo)
	if err != nil {
		return nil, err // not a nil *local.Server in an interface that is not nil
	}
	return s, nil
}

// runnerAgent is `runner agent`. Its steps are this program's `runner step`.
func runnerAgent(args []string) int {
	o := agent.Options{Version: buildVersion(), Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), HandleSignals: true}
	if self, err := os.Executable(); err == nil {
		o.StepCommand = []string{self, "runner"}
	}
	return agent.Main(context.Background(), args, o)
}

// runnerStep is `runner step`.
func runnerStep(args []string) int {
	return step.Main(context.Background(), args, step.Options{Version: buildVersion(), Stderr: os.Stderr, Environ: os.Environ()})
}
