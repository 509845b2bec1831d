package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The flood: the tokens of another org, and the connections of each.
const (
	floodTokens      = 10
	floodConnections = 4
)

// measureFlood measures the time of a claim as measureClaim, alone and while another org sends requests as fast as it can: each
// connection of each of its tokens repeats at once, also after a refusal. Half of them create jobs, and half list them.
func measureFlood(ctx context.Context, b *bench) (err error) {
	p, err := startPlane(ctx, b, "flood")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	w, err := newWorker(ctx, p.Client, "local", "bench")
	if err != nil {
		return err
	}
	claims := func() ([]float64, error) {
		var seen []float64
		for i := range b.counts.warmClaims + b.counts.claims {
			one, err := timeClaim(ctx, p, w)
			if err != nil {
				return nil, err
			}
			if i >= b.counts.warmClaims {
				seen = append(seen, one.seen)
			}
		}
		return seen, nil
	}
	alone, err := claims()
	if err != nil {
		return err
	}
	tokens, err := p.floodingOrg(ctx)
	if err != nil {
		return err
	}
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	g, flooding := errgroup.WithContext(flooding)
	var f flood
	for _, token := range tokens {
		for n := range floodConnections {
			g.Go(func() error { return f.send(flooding, p.URL(), token, n%2 == 0) })
		}
	}
	began := time.Now()
	flooded, err := claims()
	took := time.Since(began)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	if f.answered.Load() == 0 {
		return errors.New("the control plane answered no request of the flood")
	}
	b.set("flood_claim_ms_p99", quantile(flooded, 0.99))
	b.set("flood_added_ms_p99", max(0, quantile(flooded, 0.99)-quantile(alone, 0.99)))
	b.set("flood_requests_per_s", float64(f.answered.Load())/took.Seconds())
	b.note("flood: %d requests answered, %d refused", f.answered.Load(), f.refused.Load())
	return nil
}

// floodingOrg creates an org with a runner, and returns the tokens of the org.
func (p *plane) floodingOrg(ctx context.Context) ([]string, error) {
	org, err := p.CreateOrg(ctx, wire.CreateOrgRequest{Name: "flood"})
	if err != nil {
		return nil, err
	}
	owner, err := client.New(p.URL(), org.Token, client.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := owner.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "flood"}); err != nil {
		return nil, err
	}
	var tokens []string
	for n := range floodTokens {
		t, err := owner.CreateToken(ctx, wire.CreateTokenRequest{Name: fmt.Sprint("flood-", n)})
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t.Token)
	}
	return tokens, nil
}

// flood counts the requests of the flood. Safe for concurrent use.
type flood struct{ answered, refused atomic.Int64 }

// send sends one request after the other until ctx ends. It has no client that waits after a refusal.
func (f *flood) send(ctx context.Context, url, token string, writes bool) error {
	method, path := http.MethodGet, "/v1/jobs?limit=20"
	if writes {
		method, path = http.MethodPost, "/v1/runners/flood/checks"
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(url, "/")+path, http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := transport.RoundTrip(req)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		err = errors.Join(err, res.Body.Close())
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case res.StatusCode < 300:
			f.answered.Add(1)
		case res.StatusCode == http.StatusTooManyRequests:
			f.refused.Add(1)
		default:
			return fmt.Errorf("a request of the flood: %s", res.Status)
		}
	}
	return nil
}
