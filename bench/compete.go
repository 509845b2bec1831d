package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// claimed is a claim and the time of its answer.
type claimed struct {
	wire.Claim
	at time.Time
}

// measureCompetition starts many agents of one runner. It first creates one job at a time
// and measures the same time as measureClaim. Then it creates thousands of jobs and checks
// that no job is claimed twice.
func measureCompetition(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "compete", unlimited()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	working, done := context.WithCancel(ctx)
	defer done()
	g, working := errgroup.WithContext(working)
	got := make(chan claimed, b.counts.competitors)
	for i := range b.counts.competitors {
		w, err := newWorker(ctx, p.Client, "local", fmt.Sprint("bench-", i))
		if err != nil {
			return err
		}
		g.Go(func() error { return w.compete(working, got) })
	}
	err = errors.Join(timeCompetedClaims(working, b, p, got), countRepeats(working, b, p, got))
	done()
	return errors.Join(err, g.Wait())
}

// compete claims jobs and finishes them, one after the other, until ctx ends.
func (w *worker) compete(ctx context.Context, got chan<- claimed) error {
	for ctx.Err() == nil {
		c, err := w.claim(ctx)
		at := time.Now()
		switch {
		case errors.Is(err, client.ErrNoWork) || ctx.Err() != nil:
			continue
		case err != nil:
			return err
		}
		select {
		case got <- claimed{c, at}:
		case <-ctx.Done():
			return nil
		}
		if err := w.finish(ctx, c); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func timeCompetedClaims(ctx context.Context, b *bench, p *plane, got <-chan claimed) error {
	var seen []float64
	n := b.counts
	for i := range n.warmClaims + n.claims {
		time.Sleep(15*time.Millisecond + rand.N(10*time.Millisecond)) // as in timeClaim
		began := time.Now()
		if _, err := p.CheckRunner(ctx, "local"); err != nil {
			return err
		}
		select {
		case c := <-got:
			if i >= n.warmClaims {
				seen = append(seen, ms(c.at.Sub(began)))
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.set("compete_claim_ms_p50", quantile(seen, 0.5))
	b.set("compete_claim_ms_p95", quantile(seen, 0.95))
	return nil
}

// countRepeats runs all jobs and counts the jobs that ran more than once. It compares the
// agents' counts of claims with the control plane's counts of attempts.
func countRepeats(ctx context.Context, b *bench, p *plane, got <-chan claimed) error {
	claims := map[string]int{}
	var counting sync.WaitGroup
	stop := make(chan struct{})
	counting.Go(func() {
		for {
			select {
			case c := <-got:
				claims[c.Job]++
			case <-stop:
				return
			}
		}
	})
	began := time.Now()
	jobs, err := runChecks(ctx, p.Client, b.counts.competedJobs)
	close(stop)
	counting.Wait()
	if err != nil {
		return err
	}
	var last time.Time
	repeated := 0
	for _, j := range jobs {
		if j.FinishedAt.After(last) {
			last = *j.FinishedAt
		}
		if claims[j.ID] != 1 || j.Epoch != 1 {
			repeated++
			b.note("job %s was claimed %d times; the control plane counts %d attempts", j.ID, claims[j.ID], j.Epoch)
		}
	}
	b.set("compete_jobs_per_s", float64(b.counts.competedJobs)/last.Sub(began).Seconds())
	b.set("compete_repeated_jobs", float64(repeated))
	return nil
}

// runChecks runs n check jobs and returns them after they have ended.
func runChecks(ctx context.Context, cl *client.Client, n int) ([]wire.Job, error) {
	ids, err := sendChecks(ctx, cl, n)
	if err != nil {
		return nil, err
	}
	jobs := make([]wire.Job, n)
	for i, id := range ids {
		if jobs[i], err = awaitJob(ctx, cl, id); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}
