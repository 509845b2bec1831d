package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

const (
	// checks is how many check jobs are sent one after the other.
	checks = 50
	// noopJobs is how many check jobs are sent at once, for each concurrency.
	noopJobs = 600
	// noopCallers is how many requests create them at a time.
	noopCallers = 2
)

// measureCheck sends jobs that do nothing through a real runner, one by one.
func measureCheck(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "check")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", 0, b.tool); err != nil {
		return err
	}
	var whole, launch []float64
	for range checks {
		j, err := p.CheckRunner(ctx, "local")
		if err != nil {
			return err
		}
		if j, err = awaitJob(ctx, p.Client, j.ID); err != nil {
			return err
		}
		whole = append(whole, ms(j.FinishedAt.Sub(j.CreatedAt)))
		launch = append(launch, ms(j.StartedAt.Sub(*j.ClaimedAt)))
	}
	b.set("check_ms_p50", quantile(whole, 0.5))
	b.set("check_launch_ms_p50", quantile(launch, 0.5))
	return nil
}

// awaitJob follows the job's log to its end, which needs no polling, and
// returns the job.
func awaitJob(ctx context.Context, cl *client.Client, id string) (wire.Job, error) {
	for epoch, offset := int64(0), int64(0); ; {
		chunk, err := cl.ReadJobLog(ctx, id, epoch, offset, 20*time.Second)
		if err != nil {
			return wire.Job{}, err
		}
		if chunk.Done {
			break
		}
		epoch, offset = chunk.Epoch, chunk.Next
	}
	j, err := cl.GetJob(ctx, id)
	if err == nil && j.State != "succeeded" {
		err = fmt.Errorf("job %s %s: %s", id, j.State, j.Message)
	}
	return j, err
}

// measureNoop sends many jobs at once and counts how many a second are done,
// at several concurrencies of the agent; the best counts. Creating the jobs is
// part of it.
func measureNoop(ctx context.Context, b *bench) error {
	best, at := 0.0, 0
	for _, concurrency := range []int{4, 8, 16} {
		rate, err := noopRate(ctx, b, concurrency)
		if err != nil {
			return err
		}
		b.note("%d steps at once: %.0f jobs a second", concurrency, rate)
		if rate > best {
			best, at = rate, concurrency
		}
	}
	b.set("noop_jobs_per_s", best)
	b.set("noop_concurrency", float64(at))
	return nil
}

func noopRate(ctx context.Context, b *bench, concurrency int) (_ float64, err error) {
	p, err := startPlane(ctx, b, fmt.Sprintf("noop-%d", concurrency))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if _, err := p.startAgent(ctx, "local", concurrency, b.tool); err != nil {
		return 0, err
	}
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(noopCallers)
	ids := make([]string, noopJobs)
	for i := range ids {
		g.Go(func() error {
			j, err := p.CheckRunner(gctx, "local")
			ids[i] = j.ID
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	var last time.Time
	for _, id := range ids {
		j, err := awaitJob(ctx, p.Client, id)
		if err != nil {
			return 0, err
		}
		if j.FinishedAt.After(last) {
			last = *j.FinishedAt
		}
	}
	return noopJobs / last.Sub(began).Seconds(), nil
}
