package main

import (
	"context"
	"errors"
	"time"
)

// checkOften runs n check jobs, which do nothing, on a runner.
func checkOften(ctx context.Context, p *plane, runner string, n int) error {
	for range n {
		j, err := p.CheckRunner(ctx, runner)
		if err != nil {
			return err
		}
		if _, err := awaitJob(ctx, p.Client, j.ID); err != nil {
			return err
		}
	}
	return nil
}

// measureIdle measures an idle server and its idle agents after they have run some jobs.
func measureIdle(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "idle")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	agent, err := p.startAgent(ctx, "local", 0, b.tool)
	if err != nil {
		return err
	}
	if err := p.publish(ctx, b.path("examples/hello")); err != nil {
		return err
	}
	clusters, err := p.startWith(ctx, "clusters", agentOptions{program: b.path("bin/fairlead-runner-clusters"), tool: b.tool})
	if err != nil {
		return err
	}
	if err := errors.Join(checkOften(ctx, p, "local", b.counts.idleChecks), checkOften(ctx, p, "clusters", b.counts.idleChecks)); err != nil {
		return err
	}
	if _, err := deployRun(ctx, p, "idle", "local"); err != nil {
		return err
	}
	before, err := useOfAll(agent.pid(), p.server.pid())
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.counts.idleFor):
	}
	after, err := useOfAll(agent.pid(), p.server.pid(), clusters.pid())
	if err != nil {
		return err
	}
	b.set("clusters_agent_rss_mib", after[2].rssMiB)
	for i, who := range []string{"agent", "server"} {
		b.set(who+"_rss_mib", after[i].rssMiB)
		b.set(who+"_idle_cpu_percent", 100*(after[i].cpu-before[i].cpu).Seconds()/b.counts.idleFor.Seconds())
	}
	return nil
}

func useOfAll(pids ...int) ([]processUse, error) {
	var uses []processUse
	for _, pid := range pids {
		u, err := useOf(pid)
		if err != nil {
			return nil, err
		}
		uses = append(uses, u)
	}
	return uses, nil
}
