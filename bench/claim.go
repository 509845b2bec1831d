package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// measureClaim measures the time from just before the request that creates a job until a
// waiting agent has the answer to its claim. The caller and the agent are in this process,
// so one clock is enough. The server is a separate process.
func measureClaim(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "claim")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	w, err := newWorker(ctx, p.Client, "local", "bench")
	if err != nil {
		return err
	}
	var seen, server, create []float64
	n := b.counts
	for i := range n.warmClaims + n.claims {
		one, err := timeClaim(ctx, p, w)
		if err != nil {
			return err
		}
		if i >= n.warmClaims {
			seen, server, create = append(seen, one.seen), append(server, one.server), append(create, one.create)
		}
	}
	b.set("claim_ms_p50", quantile(seen, 0.5))
	b.set("claim_ms_p95", quantile(seen, 0.95))
	b.set("claim_server_ms_p50", quantile(server, 0.5))
	b.set("claim_server_ms_p95", quantile(server, 0.95))
	b.set("create_ms_p50", quantile(create, 0.5))
	return nil
}

// claimTimes are times of one job in milliseconds: from its creation to its claim as the
// clients see it and by the server's clock, and of the request that creates it.
type claimTimes struct{ seen, server, create float64 }

func timeClaim(ctx context.Context, p *plane, w *worker) (claimTimes, error) {
	type claimed struct {
		wire.Claim
		at  time.Time
		err error
	}
	answer := make(chan claimed, 1)
	go func() {
		c, err := w.claim(ctx)
		answer <- claimed{c, time.Now(), err}
	}()
	// The claim must wait at the server when the job is created. The pause is random, so
	// that it does not synchronize with a periodic task.
	time.Sleep(15*time.Millisecond + rand.N(10*time.Millisecond))
	began := time.Now()
	j, err := p.CheckRunner(ctx, "local")
	created := time.Now()
	if err != nil {
		return claimTimes{}, err
	}
	c := <-answer
	if c.err != nil {
		return claimTimes{}, c.err
	}
	if err := w.finish(ctx, c.Claim); err != nil {
		return claimTimes{}, err
	}
	if j, err = p.GetJob(ctx, j.ID); err != nil {
		return claimTimes{}, err
	}
	return claimTimes{seen: ms(c.at.Sub(began)), server: ms(j.ClaimedAt.Sub(j.CreatedAt)), create: ms(created.Sub(began))}, nil
}
