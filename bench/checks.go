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

// noopCallers is the number of concurrent requests that create the jobs of measureNoop.
const noopCallers = 2

// measureCheck runs check jobs, which do nothing, one by one on a real runner.
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
	for range b.counts.checks {
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

// awaitJob reads the job's log until the log ends, which needs no polling. Then it returns
// the job, or an error if the job did not succeed.
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

// measureNoop creates many check jobs at once and measures the jobs per second, with
// several concurrencies of the agent. It records the best result. The time includes the
// creation of the jobs.
func measureNoop(ctx context.Context, b *bench) error {
	var best noopRun
	for _, concurrency := range b.counts.noopConcurrency {
		r, err := noopAt(ctx, b, concurrency)
		if err != nil {
			return err
		}
		b.note("%d concurrent steps: %.0f jobs a second", concurrency, r.rate)
		if r.rate > best.rate {
			best = r
		}
	}
	b.set("noop_jobs_per_s", best.rate)
	b.set("noop_concurrency", float64(best.concurrency))
	b.set("noop_server_cpu_ms", best.server)
	b.set("noop_agent_cpu_ms", best.agent)
	b.set("noop_step_cpu_ms", best.step)
	return nil
}

// noopRun is the measurement of many check jobs.
type noopRun struct {
	concurrency         int
	rate                float64 // jobs per second
	server, agent, step float64 // CPU time for each job, in milliseconds
}

func noopAt(ctx context.Context, b *bench, concurrency int) (_ noopRun, err error) {
	p, err := startPlane(ctx, b, fmt.Sprintf("noop-%d", concurrency), unlimited()...)
	if err != nil {
		return noopRun{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	agent, err := p.startAgent(ctx, "local", concurrency, b.tool)
	if err != nil {
		return noopRun{}, err
	}
	before, err := useOfAll(p.server.pid(), agent.pid())
	if err != nil {
		return noopRun{}, err
	}
	began := time.Now()
	ids, err := sendChecks(ctx, p.Client, b.counts.noopJobs)
	if err != nil {
		return noopRun{}, err
	}
	// When the newest job is done, nearly all other jobs are done, too. Read the jobs only
	// after that, because each request costs the server CPU time.
	if _, err := awaitJob(ctx, p.Client, ids[len(ids)-1]); err != nil {
		return noopRun{}, err
	}
	after, err := useOfAll(p.server.pid(), agent.pid())
	if err != nil {
		return noopRun{}, err
	}
	var last time.Time
	for _, id := range ids {
		j, err := awaitJob(ctx, p.Client, id)
		if err != nil {
			return noopRun{}, err
		}
		if j.FinishedAt.After(last) {
			last = *j.FinishedAt
		}
	}
	jobs := float64(b.counts.noopJobs)
	each := func(d time.Duration) float64 { return ms(d) / jobs }
	return noopRun{concurrency: concurrency, rate: jobs / last.Sub(began).Seconds(),
		server: each(after[0].cpu - before[0].cpu), agent: each(after[1].cpu - before[1].cpu),
		step: each(after[1].children - before[1].children)}, nil
}

// sendChecks creates n check jobs and returns their identifiers.
func sendChecks(ctx context.Context, cl *client.Client, n int) ([]string, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(noopCallers)
	ids := make([]string, n)
	for i := range ids {
		g.Go(func() error {
			j, err := cl.CheckRunner(ctx, "local")
			ids[i] = j.ID
			return err
		})
	}
	return ids, g.Wait()
}
