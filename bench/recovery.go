package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

const (
	// sweptFor is the longest time until the sweep has found all expired leases.
	sweptFor = 5 * time.Minute
	// probePause is the pause between two timed claims while the sweep works.
	probePause = 50 * time.Millisecond
)

// measureRecovery measures two recoveries. First it kills a server with many queued jobs
// while callers create more, and measures the time from its next start to the first
// claim. Then it starts all jobs, kills the server, and measures the time until the
// sweep has marked all of them lost. Meanwhile it times claims of another runner.
func measureRecovery(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "recovery")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	w, err := newWorker(ctx, p.Client, "local", "bench")
	if err != nil {
		return err
	}
	if err := recoverQueued(ctx, b, p, w); err != nil {
		return err
	}
	return expireAll(ctx, b, p, w)
}

// recoverQueued kills and restarts the server several times. It records the median and the
// maximum of the times. There are too few samples for other quantiles.
func recoverQueued(ctx context.Context, b *bench, p *plane, w *worker) error {
	if err := each(ctx, b.counts.recoveryJobs, func(ctx context.Context) error {
		_, err := p.CheckRunner(ctx, "local")
		return err
	}); err != nil {
		return fmt.Errorf("queue jobs: %w", err)
	}
	var took []float64
	for range b.counts.recoveries {
		one, err := recoverOnce(ctx, p, w)
		if err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		took = append(took, ms(one))
	}
	b.set("recovery_ms_p50", quantile(took, 0.5))
	b.set("recovery_ms_max", quantile(took, 1))
	return nil
}

// recoverOnce kills the server during commits and returns the time from its next start
// to an agent's first claim. The agent tries to claim once a millisecond, so its pauses
// hardly affect the figure.
func recoverOnce(ctx context.Context, p *plane, w *worker) (time.Duration, error) {
	var created atomic.Int64
	var busy sync.WaitGroup
	load, stop := context.WithCancel(ctx)
	defer stop()
	for range controlCallers {
		busy.Go(func() {
			for load.Err() == nil {
				if _, err := p.CheckRunner(load, "local"); err == nil {
					created.Add(1)
				}
			}
		})
	}
	if err := eventually(ctx, func() error {
		if n := created.Load(); n < 100 {
			return fmt.Errorf("only %d jobs were created, want 100", n)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	p.server.kill()
	stop()
	busy.Wait()

	eager, err := client.New(p.URL(), w.session.Token(), client.Options{Retries: -1})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := p.launchServer(); err != nil {
		return 0, err
	}
	var c wire.Claim
	for {
		c, err = eager.Claim(ctx, time.Second, false)
		if err == nil {
			break
		}
		if _, down := errors.AsType[*client.UnreachableError](err); !down || time.Since(began) > startFor {
			return 0, errors.Join(err, p.server.failed())
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	return took, w.finish(ctx, c)
}

// expireAll starts all jobs, kills the server, and measures how they expire.
func expireAll(ctx context.Context, b *bench, p *plane, w *worker) error {
	var mu sync.Mutex
	var ids []string
	if err := each(ctx, b.counts.recoveryJobs, func(ctx context.Context) error {
		c, err := w.claim(ctx)
		if err != nil {
			return err
		}
		_, err = w.start(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, c.Job)
		return err
	}); err != nil {
		return fmt.Errorf("start jobs: %w", err)
	}
	if _, err := p.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "other"}); err != nil {
		return err
	}
	other, err := newWorker(ctx, p.Client, "other", "bench")
	if err != nil {
		return err
	}
	p.server.kill()
	if err := p.startServer(ctx); err != nil {
		return err
	}
	// After a restart the server extends all leases by the length of a lease. So all jobs
	// expire at the same moment, which is the worst case.
	began := time.Now()
	if err := sleep(ctx, b.counts.lease-time.Second); err != nil {
		return err
	}
	took, err := whileExpiring(ctx, p, other, ids)
	if err != nil {
		return err
	}
	b.set("expire_last_s", time.Since(began).Seconds())
	b.set("expire_claim_ms_p50", quantile(took, 0.5))
	b.set("expire_claim_ms_p95", quantile(took, 0.95))
	return nil
}

// whileExpiring runs jobs of another runner until no job in ids is running. It returns the
// times from the creation to the claim of the other runner's jobs, in milliseconds. It
// omits the times before the first job in ids has expired.
func whileExpiring(ctx context.Context, p *plane, other *worker, ids []string) ([]float64, error) {
	const sampled = 50 // number of checked jobs; requests for all jobs would put load on the server
	var pending []string
	for i := 0; i < len(ids); i += max(1, len(ids)/sampled) {
		pending = append(pending, ids[i])
	}
	all, first := len(pending), true
	var took []float64
	for began := time.Now(); time.Since(began) < sweptFor; {
		one, err := probe(ctx, p, other)
		if err != nil {
			return nil, err
		}
		if pending, err = p.stillRunning(ctx, pending); err != nil {
			return nil, err
		}
		if len(pending) == 0 {
			if pending, err = p.allRunning(ctx); err != nil {
				return nil, err
			}
			if len(pending) == 0 {
				return append(took, one), nil
			}
			all = len(pending) + 1
		}
		if !first || len(pending) < all {
			took, first = append(took, one), false
		}
		if err := sleep(ctx, probePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d jobs are still running %s after their leases expired, for example %s", len(pending), sweptFor, pending[0])
}

// probe creates a job and returns the time until its claim, in milliseconds.
func probe(ctx context.Context, p *plane, w *worker) (float64, error) {
	began := time.Now()
	if _, err := p.CheckRunner(ctx, w.runner); err != nil {
		return 0, err
	}
	c, err := w.claim(ctx)
	took := ms(time.Since(began))
	if err != nil {
		return 0, err
	}
	return took, w.finish(ctx, c)
}

// stillRunning removes jobs from the start of ids until it finds a running job. It does
// not check the later jobs, because they are probably still running: the sweep works in
// the order of age.
func (p *plane) stillRunning(ctx context.Context, ids []string) ([]string, error) {
	for len(ids) > 0 {
		j, err := p.GetJob(ctx, ids[0])
		if err != nil || j.State == "running" {
			return ids, err
		}
		ids = ids[1:]
	}
	return nil, nil
}

// allRunning returns all running jobs.
func (p *plane) allRunning(ctx context.Context) ([]string, error) {
	jobs, err := client.All(ctx, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Job], error) {
		o.Limit = 200
		return p.ListJobs(ctx, client.JobFilter{}, o)
	})
	var ids []string
	for _, j := range jobs {
		if j.State == "running" {
			ids = append(ids, j.ID)
		}
	}
	return ids, err
}

// each calls fn n times from controlCallers concurrent callers.
func each(ctx context.Context, n int, fn func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(controlCallers)
	for range n {
		g.Go(func() error { return fn(ctx) })
	}
	return g.Wait()
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
