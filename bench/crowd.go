package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/agent"
)

// crowdStarts is the number of agents that start at the same time.
const crowdStarts = 8

// measureCrowd measures a server with a thousand connected, idle runners. The agents are
// real agents, but run in this process. Separate processes would need 20 GiB, and
// measureCrowd measures only the server.
func measureCrowd(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "crowd")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	running, stop := context.WithCancel(ctx)
	agents, running := errgroup.WithContext(running)
	defer func() {
		stop()
		err = errors.Join(err, agents.Wait())
	}()
	starts, starting := errgroup.WithContext(running)
	starts.SetLimit(crowdStarts)
	for i := range b.counts.crowdRunners {
		starts.Go(func() error {
			name := fmt.Sprint("crowd-", i)
			cfg, err := p.settingsOf(starting, name)
			if err != nil {
				return err
			}
			agents.Go(func() error {
				return agent.Run(running, cfg, slog.New(slog.DiscardHandler), agent.Options{Version: "bench", Environ: os.Environ()})
			})
			return p.untilOnline(starting, name)
		})
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	return b.watchCrowd(running, p.server.pid())
}

// settingsOf creates a runner and returns the configuration of its agent.
func (p *plane) settingsOf(ctx context.Context, runner string) (config.Runner, error) {
	if _, err := p.CreateRunner(ctx, wire.CreateRunnerRequest{Name: runner}); err != nil {
		return config.Runner{}, err
	}
	enrolment, err := p.CreateEnrolment(ctx, runner)
	return config.Runner{URL: p.URL(), Data: filepath.Join(p.dir, runner), EnrolmentToken: enrolment.Token}, err
}

func (p *plane) untilOnline(ctx context.Context, runner string) error {
	return eventually(ctx, func() error {
		r, err := p.GetRunner(ctx, runner)
		if err == nil && r.State != "online" {
			err = fmt.Errorf("runner %s is %s", runner, r.State)
		}
		return err
	})
}

// watchCrowd waits for the duration crowdFor, and then measures for the same duration.
// After the wait all agents have renewed their sessions at least once.
func (b *bench) watchCrowd(ctx context.Context, server int) error {
	if err := sleep(ctx, b.counts.crowdFor); err != nil {
		return err
	}
	before, err := useOf(server)
	if err != nil {
		return err
	}
	own, err := ownTime()
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.counts.crowdFor); err != nil {
		return err
	}
	after, err := useOf(server)
	if err != nil {
		return err
	}
	ownAfter, err := ownTime()
	if err != nil {
		return err
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / b.counts.crowdFor.Seconds() }
	b.set("crowd_server_rss_mib", after.rssMiB)
	b.set("crowd_server_cpu_percent", percent(after.cpu-before.cpu))
	b.set("crowd_agents_cpu_percent", percent(ownAfter-own))
	return nil
}
