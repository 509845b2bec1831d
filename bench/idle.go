package main

import (
	"context"
	"errors"
	"time"
)

// idleFor is how long server and agent have nothing to do before they are
// looked at: their runtimes have given back by then what they give back.
const idleFor = 60 * time.Second

// measureIdle looks at a server and an agent that have run some jobs and wait.
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
	for range 20 {
		j, err := p.CheckRunner(ctx, "local")
		if err != nil {
			return err
		}
		if _, err := awaitJob(ctx, p.Client, j.ID); err != nil {
			return err
		}
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
	case <-time.After(idleFor):
	}
	after, err := useOfAll(agent.pid(), p.server.pid())
	if err != nil {
		return err
	}
	for i, who := range []string{"agent", "server"} {
		b.set(who+"_rss_mib", after[i].rssMiB)
		b.set(who+"_idle_cpu_percent", 100*(after[i].cpu-before[i].cpu).Seconds()/idleFor.Seconds())
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
