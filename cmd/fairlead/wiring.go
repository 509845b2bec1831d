package main

import (
	"context"
	"os"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/step"
)

// startServer starts a control plane in this process.
func startServer(ctx context.Context, o cli.ServerOptions) (cli.Server, error) {
	lo := local.Options{Data: o.Data, Listen: o.Listen, Version: o.Version, Storage: o.Storage, Logger: o.Logger}
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
	o := agent.Options{Version: buildVersion(), Stderr: os.Stderr, Environ: os.Environ(), HandleSignals: true}
	if self, err := os.Executable(); err == nil {
		o.StepCommand = []string{self, "runner"}
	}
	return agent.Main(context.Background(), args, o)
}

// runnerStep is `runner step`.
func runnerStep(args []string) int {
	return step.Main(context.Background(), args, step.Options{Version: buildVersion(), Stderr: os.Stderr, Environ: os.Environ()})
}
