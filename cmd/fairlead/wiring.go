//go:build !light

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead/fairlead/pkg/approval"
	approvalkms "github.com/fairlead/fairlead/pkg/approval/kms"
	"github.com/fairlead/fairlead/pkg/awsrestore"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/runner/agent"
	"github.com/fairlead/fairlead/runner/agent/direct"
	ledgers3 "github.com/fairlead/fairlead/runner/ledger/s3"
	"github.com/fairlead/fairlead/runner/step"
	"github.com/fairlead/fairlead/runner/step/parts"
)

// connect adds the parts of the program that bring servers and clients of AWS.
func connect(env *cli.Env) {
	env.StartServer, env.AfterRestore, env.KMSKey, env.Replay, env.BucketLedger = startServer, afterRestore, kmsKey, replay, ledgers3.Open
}

// serverGC is the GOGC percentage of a server. The live heap is a few MiB, and the heap
// grows to five times the live heap before a garbage collection. With Go's default, the
// heap grows only to twice the live heap, and under load the garbage collector takes a
// tenth of the CPU time.
const serverGC = 400

// startServer starts a control plane in this process.
func startServer(ctx context.Context, o cli.ServerOptions) (cli.Server, error) {
	debug.SetGCPercent(serverGC)
	if os.Getenv("GOMEMLIMIT") == "" { // the operator's own limit stays
		go limitMemory(ctx)
	}
	lo := local.Options{Data: o.Data, Listen: o.Listen, URL: o.URL, TLSCert: o.TLSCert, TLSKey: o.TLSKey, Version: o.Version, Storage: o.Storage, Builds: o.Builds, Logger: o.Logger,
		StackTemplateURL: o.StackTemplateURL, RunnerImage: o.RunnerImage, RegistryProgram: registryProgram(o.Registry), LoopbackIssuers: o.LoopbackIssuers, FirstLogin: o.FirstLogin, Direct: executors() != nil}
	l := o.Limits
	lo.Bounds.Connections = l.Connections
	lo.Callers.Rate, lo.Callers.Burst, lo.Callers.Requests, lo.Callers.Waits = l.Rate, l.Burst, l.AtOnce, l.Waits
	lo.Callers.OrgRate, lo.Callers.OrgBurst, lo.Callers.OrgRequests = l.OrgRate, l.OrgBurst, l.OrgAtOnce
	lo.Callers.WrongRate, lo.Callers.WrongBurst = l.WrongRate, l.WrongAt
	lo.LogBurst, lo.LogPerHour, lo.Quotas = l.LogBurst, l.LogPerHour, l.Quotas
	lo.CheckpointEvery = o.Checkpoints
	lo.Terms.LeaseTTL, lo.Terms.Grace, lo.Terms.NoOutput = o.Lease, o.Grace, o.NoOutput
	lo.Terms.StartTimeout = min(o.Lease, 20*time.Second) // a step that is being launched cannot report yet
	s, err := local.Start(ctx, lo)
	if err != nil {
		return nil, err // s is a nil *local.Server; returned as an interface, it would not be nil
	}
	return besides(ctx, s, o), nil
}

// registryProgram returns the path of the program that serves the registry of images: the given one, else that beside this program.
func registryProgram(given string) string {
	if given != "" {
		return given
	}
	self, err := os.Executable()
	if err != nil {
		return "" // requests for images name what is missing
	}
	return filepath.Join(filepath.Dir(self), "fairlead-registry")
}

// afterRestore makes a restored data folder, or a restored table on AWS, safe to serve.
func afterRestore(ctx context.Context, o cli.RestoreOptions) (cli.AfterRestore, error) {
	if o.Table == "" {
		r, err := local.AfterRestore(ctx, o.Data)
		return cli.AfterRestore{Generation: r.Generation, Installs: r.Installs, Components: r.Components, Deployments: r.Deployments}, err
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(o.Region))
	if err != nil {
		return cli.AfterRestore{}, fmt.Errorf("find your AWS configuration: %w", err)
	}
	r, err := awsrestore.Table(ctx, cfg, o.Stage, o.Table, o.Blobs)
	return cli.AfterRestore{Table: o.Table, Generation: r.Generation, Installs: r.Installs, Components: r.Components, Deployments: r.Deployments, Queues: r.Queues, Blobs: r.Blobs, Lost: r.Lost}, err
}

// kmsKey opens a key that signs approvals, with the person's own AWS credentials.
func kmsKey(ctx context.Context, arn string) (approval.Signer, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("find your AWS configuration: %w", err)
	}
	key, err := approvalkms.Open(ctx, cfg, arn)
	if err != nil {
		return nil, err
	}
	return key, nil
}

// withAgents is a control plane with agents that run in the same process.
type withAgents struct {
	*local.Server
	stop   context.CancelFunc
	agents sync.WaitGroup
}

// besides runs agents in the process of the server. These agents are for the runners whose
// jobs run on compute that the server reaches. The log distinguishes the agents.
func besides(ctx context.Context, s *local.Server, o cli.ServerOptions) cli.Server {
	if executors() == nil {
		if left, err := s.DirectRunners(ctx); err == nil && len(left) > 0 {
			o.Logger.Warn("some runners are to be served from beside the control plane, which this build cannot: it takes -tags clusters", "runners", len(left))
		}
		return s
	}
	w := &withAgents{Server: s}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.agents.Go(func() {
		direct.Serve(ctx, s, direct.Options{Data: filepath.Join(o.Data, "direct"), Version: o.Version, StepURL: o.URL, Image: o.RunnerImage,
			Environ: os.Environ(), Log: o.Logger, Executors: executors()})
	})
	return w
}

// Close stops the agents and then the control plane. The agents' steps continue.
func (w *withAgents) Close(ctx context.Context) error {
	w.stop()
	w.agents.Wait()
	return w.Server.Close(ctx)
}

// runnerAgent runs `runner agent`. Its steps are processes of this program's `runner step`.
func runnerAgent(args []string) int {
	o := agent.Options{Version: buildVersion(), Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), HandleSignals: true, Executors: executors()}
	if self, err := os.Executable(); err == nil {
		o.StepCommand = []string{self, "runner"}
	}
	return agent.Main(context.Background(), args, o)
}

// runnerStep runs `runner step`.
func runnerStep(args []string) int {
	return step.Main(context.Background(), args, step.Options{Version: buildVersion(), Stderr: os.Stderr, Environ: os.Environ(), Parts: parts.All()})
}
