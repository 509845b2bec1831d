//go:build linux

package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The names of the latencies. promises has their limits.
const (
	deadStep     = "dead step"
	deadHost     = "dead host"
	lostWake     = "wake-up that a stopped server had"
	serverBack   = "server after kill -9, to the first answer"
	serverClaims = "server after kill -9, to the first claim"
)

func promises() map[string]time.Duration {
	return map[string]time.Duration{deadStep: 2 * time.Second, deadHost: time.Minute, lostWake: time.Minute}
}

// measure measures each latency without other faults.
func (w *world) measure(ctx context.Context, m *watcher, p *person) error {
	alone := w.hosts[0]
	for range 5 {
		if err := p.during(ctx, alone, func(t part) error {
			begun := time.Now()
			if err := syscall.Kill(t.pid, syscall.SIGKILL); err != nil {
				return err
			}
			return m.until(deadStep, t.attempt, begun)
		}); err != nil {
			return err
		}
	}
	if err := p.during(ctx, alone, func(t part) error {
		alone.agent.hold()
		defer alone.agent.release()
		begun := time.Now()
		alone.killAll()
		return m.until(deadHost, t.attempt, begun)
	}); err != nil {
		return err
	}
	for range 3 {
		w.server.kill(time.Millisecond)
		begun := time.Now()
		if err := w.answers(ctx, time.Minute); err != nil {
			return err
		}
		m.add(serverBack, time.Since(begun))
		if err := p.claimed(ctx, m, serverClaims, begun); err != nil {
			return err
		}
	}
	// A job is queued, and its wake-up ends with the server, which has it in memory.
	alone.agent.hold()
	released := false
	release := func() {
		if !released {
			released = true
			alone.agent.release()
		}
	}
	defer release()
	p.revise(ctx)
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	if err != nil {
		return err
	}
	w.server.hold()
	begun := time.Now()
	w.server.release()
	release()
	if err := p.firstClaim(ctx, m, id, lostWake, begun); err != nil {
		return err
	}
	return p.ended(ctx, id)
}

// during deploys changes, calls fn while the tool creates a resource, and waits until the
// deployment succeeds.
func (p *person) during(ctx context.Context, h *host, fn func(part) error) error {
	p.revise(ctx)
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	if err != nil {
		return err
	}
	var at part
	if err := p.w.until(ctx, time.Minute, "an apply runs", func() bool {
		d, err := p.look(ctx, id)
		if err != nil {
			return false
		}
		for _, c := range d.Components {
			if c.State != "applying" {
				continue
			}
			if j, err := p.w.client.GetJob(ctx, c.Job); err != nil || j.State != "running" {
				continue
			}
			// The tool runs for some seconds, because its resources sleep.
			for _, t := range h.alive(true) {
				for _, s := range h.alive(false) {
					if t.attempt == s.attempt && s.attempt == fmt.Sprintf("%s-%d", c.Job, 1) {
						at = s
						return true
					}
				}
			}
		}
		return false
	}); err != nil {
		return err
	}
	if err := fn(at); err != nil {
		return err
	}
	return p.ended(ctx, id)
}

func (p *person) ended(ctx context.Context, id string) error {
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if state := p.follow(limited, id, 0); state != "succeeded" {
		return fmt.Errorf("deployment %s of %s is %s", id, p.install, state)
	}
	return nil
}

// until measures the time until the control plane notices a death.
func (m *watcher) until(what, attempt string, begun time.Time) error {
	d, ok := m.noticed(attempt, begun)
	if !ok {
		return fmt.Errorf("%s ended before it was killed", attempt)
	}
	m.add(what, d)
	return nil
}

// claimed creates a deployment and measures the time from begun until its first job is claimed.
func (p *person) claimed(ctx context.Context, m *watcher, what string, begun time.Time) error {
	p.revise(ctx)
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	if err != nil {
		return err
	}
	if err := p.firstClaim(ctx, m, id, what, begun); err != nil {
		return err
	}
	return p.ended(ctx, id)
}

func (p *person) firstClaim(ctx context.Context, m *watcher, id, what string, begun time.Time) error {
	err := p.w.until(ctx, unnoticed, "a job of "+id+" is claimed", func() bool {
		d, err := p.look(ctx, id)
		if err != nil {
			return false
		}
		for _, c := range d.Components {
			if c.PlanJob == "" {
				continue
			}
			if j, err := p.w.client.GetJob(ctx, c.PlanJob); err == nil && j.ClaimedAt != nil {
				return true
			}
		}
		return false
	})
	m.add(what, time.Since(begun))
	return err
}
