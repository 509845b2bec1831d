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
	// sweptFor bounds how long all leases may take to be found expired.
	sweptFor = 5 * time.Minute
	// probePause is between two claims that are timed while the sweep works.
	probePause = 50 * time.Millisecond
)

// measureRecovery kills a server that has a crowd of queued jobs while more are
// asked for, and times its next start up to the first claim. Then all of the
// crowd runs, dies with the server, and it is timed how long the sweep takes to
// find it dead, and what claims of another runner cost meanwhile.
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

// recoverQueued kills and starts the server again and again. The median is of
// few, so the slowest is told, too.
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

// recoverOnce kills the server in the middle of commits and returns the time
// from its next start to an agent's first claim. The agent asks once a
// millisecond: its own pauses are no part of the figure.
func recoverOnce(ctx context.Context, p *plane, w *worker) (time.Duration, error) {
	var made atomic.Int64
	var busy sync.WaitGroup
	load, stop := context.WithCancel(ctx)
	defer stop()
	for range controlCallers {
		busy.Go(func() {
			for load.Err() == nil {
				if _, err := p.CheckRunner(load, "local"); err == nil {
					made.Add(1)
				}
			}
		})
	}
	if err := eventually(ctx, func() error {
		if n := made.Load(); n < 100 {
			return fmt.Errorf("%d jobs were made", n)
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
		c, err = eager.Claim(ctx, time.Second)
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

// expireAll runs all jobs, and lets them die with the server.
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
	// The server holds all leases for as long as one lasts from here on, so the
	// whole crowd is overdue at the same moment: that is the worst there is.
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

// whileExpiring takes jobs of another runner through until none of ids runs any
// more, and returns what each took from its creation to its claim in
// milliseconds, beginning with the first that was found dead.
func whileExpiring(ctx context.Context, p *plane, other *worker, ids []string) ([]float64, error) {
	const sampled = 50 // asking for all of them each time would be a load of its own
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
	return nil, fmt.Errorf("%d jobs still run %s after their leases were over, %s among them", len(pending), sweptFor, pending[0])
}

// probe makes a job and returns how long it took until it was claimed, in
// milliseconds.
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

// stillRunning returns those of ids that run, up to the first that does: the
// sweep goes by age, so the others will hardly be over before it.
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

// allRunning returns every job that runs.
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

// each calls fn n times, by many callers at once.
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
