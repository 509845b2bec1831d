package agent

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

// losing is a control plane that accepts the first heartbeat and loses the next ones.
type losing struct {
	lost     int         // number of lost heartbeats
	status   int         // HTTP status of the response to a lost heartbeat; 0: no response
	accepted []time.Time // times of the accepted heartbeats
	seen     int         // number of all heartbeats
}

// RoundTrip implements http.RoundTripper.
func (d *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/heartbeat") {
		return answer(r, http.StatusOK, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)})
	}
	if d.seen++; d.seen > 1 && d.seen <= 1+d.lost {
		if d.status != 0 {
			return answer(r, d.status, struct{}{})
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	d.accepted = append(d.accepted, time.Now())
	return answer(r, http.StatusOK, wire.SessionStatus{HeartbeatSeconds: 36})
}

// The control plane marks a runner whose agent has jobs lost after 55 s without a
// heartbeat. If some heartbeats fail, the agent delivers another heartbeat within this time.
func TestFailedHeartbeatsDoNotMarkARunnerLost(t *testing.T) {
	const lostAfter = 55 * time.Second
	for _, tt := range []struct {
		name string
		d    losing
	}{
		{"one heartbeat gets no response", losing{lost: 1}},
		{"two heartbeats get no response", losing{lost: 2}},
		{"a gateway answers seven heartbeats with 502", losing{lost: 7, status: http.StatusBadGateway}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, key, err := ed25519.GenerateKey(nil)
				if err != nil {
					t.Fatal(err)
				}
				d := &tt.d
				o := Options{Version: "test", Random: func() float64 { return 0.99 }, Transport: d}
				base, err := newClient("https://control.example", o)
				if err != nil {
					t.Fatal(err)
				}
				a := &Agent{cfg: config.Runner{}, executors: fixed(), options: o, now: time.Now, log: slog.New(slog.NewTextHandler(io.Discard, nil)), beatNow: make(chan struct{}),
					session: newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, fixed(), time.Now)}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				a.heartbeatLoop(ctx, ctx, func() {})
				if d.seen <= 1+d.lost || len(d.accepted) < 2 {
					t.Fatalf("the control plane accepted %d of %d heartbeats, want at least 2", len(d.accepted), d.seen)
				}
				for i := range d.accepted[1:] {
					if gap := d.accepted[i+1].Sub(d.accepted[i]); gap >= lostAfter {
						t.Errorf("the control plane accepted no heartbeat for %s, want less than %s", gap, lostAfter)
					}
				}
			})
		})
	}
}

// metered is a control plane on AWS: it accepts the heartbeat of a session's request, and asks an
// idle agent for few heartbeats. It notes the time of each heartbeat, with the number of jobs.
type metered struct{ times, jobs, alone []int } // alone: the times of heartbeats that no session carried

// RoundTrip implements http.RoundTripper.
func (m *metered) RoundTrip(r *http.Request) (*http.Response, error) {
	status := wire.SessionStatus{HeartbeatSeconds: 18, IdleHeartbeatSeconds: 600}
	note := func(h *wire.SessionHeartbeat) {
		m.times, m.jobs = append(m.times, int(time.Since(start)/time.Second)), append(m.jobs, len(h.Running))
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		var in wire.SessionHeartbeat
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, err
		}
		note(&in)
		m.alone = append(m.alone, m.times[len(m.times)-1])
		return answer(r, http.StatusOK, status)
	case strings.HasSuffix(r.URL.Path, "/challenges"):
		return answer(r, http.StatusCreated, wire.Challenge{Nonce: "n", Report: true})
	}
	var in wire.SessionRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	note(in.Report)
	return answer(r, http.StatusCreated, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute), Status: &status})
}

// start is the time at which each bubble of synctest begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// The renewal of its session is the only heartbeat of an idle agent. While the agent has jobs, and
// until it has reported that it has none, it sends a heartbeat every 18 s.
func TestRenewalIsTheHeartbeatOfAnIdleAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &metered{}
		o := Options{Version: "test", Random: func() float64 { return 0.5 }, Transport: m}
		base, err := newClient("https://control.example", o)
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, fixed(), time.Now)
		a := &Agent{cfg: config.Runner{}, executors: fixed(), options: o, now: time.Now, log: slog.New(slog.DiscardHandler), steps: map[string]*step{},
			beatNow: make(chan struct{}, 1), gotJob: make(chan struct{}, 1), freed: make(chan struct{}, 1), session: s}
		s.report, s.reported = a.report, a.reported
		ctx, cancel := context.WithTimeout(t.Context(), 21*time.Minute)
		defer cancel()
		first := make(chan struct{})
		go func() { // polls of the queue, which begin after the first heartbeat and renew the session
			<-first
			for ctx.Err() == nil {
				if _, err := s.get(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
			}
		}()
		go func() { // a job of one minute, which starts 2 s after its claim
			<-time.After(12 * time.Minute)
			a.reserve(wire.Claim{Job: "job_1", Epoch: 1})
			notify(a.gotJob)
			<-time.After(2 * time.Second)
			a.add(ctx, dead(attempt.ID("job_1", 1)), &launcher{}, attempt.Input{})
			<-time.After(time.Minute)
			a.gone(attempt.ID("job_1", 1))
		}()
		a.heartbeatLoop(ctx, ctx, sync.OnceFunc(func() { close(first) }))
		if want := []int{0, 580, 738, 756, 774, 792, 1160}; !slices.Equal(m.times, want) {
			t.Errorf("heartbeats after %v s, want %v", m.times, want)
		}
		if want := []int{0, 0, 1, 1, 1, 0, 0}; !slices.Equal(m.jobs, want) {
			t.Errorf("they name %v jobs, want %v", m.jobs, want)
		}
		if want := []int{738, 756, 774, 792}; !slices.Equal(m.alone, want) {
			t.Errorf("requests of their own after %v s, want %v", m.alone, want)
		}
	})
}

// A heartbeat response with a new configuration triggers the next heartbeat at once. A response that repeats a known
// configuration must not: the agent would send heartbeats without a pause.
func TestRepeatedConfigurationTriggersNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &repeating{}
		o := Options{Version: "test", Transport: c}
		base, err := newClient("https://control.example", o)
		if err != nil {
			t.Fatal(err)
		}
		executors := fixed()
		executors.file.Final = true // the agent does not apply the configuration
		a := &Agent{cfg: config.Runner{}, executors: executors, options: o, now: time.Now, log: slog.New(slog.DiscardHandler),
			beatNow: make(chan struct{}, 1), freed: make(chan struct{}, 1),
			session: newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, executors, time.Now)}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		a.heartbeatLoop(ctx, ctx, func() {})
		// The heartbeats are at 0 s, at once again because the configuration was new, and at 15, 30 and 45 s.
		if c.heartbeats != 5 {
			t.Errorf("the agent sent %d heartbeats in 50 s, want 5", c.heartbeats)
		}
	})
}

// repeating is a control plane that answers each heartbeat with the same configuration. It answers only the first 100, so
// that a failing test ends.
type repeating struct{ heartbeats int }

// RoundTrip implements http.RoundTripper.
func (c *repeating) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/heartbeat") {
		return answer(r, http.StatusOK, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)})
	}
	if c.heartbeats++; c.heartbeats > 100 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return answer(r, http.StatusOK, wire.SessionStatus{HeartbeatSeconds: 15,
		Configuration: &wire.AgentConfiguration{Revision: "r1", Runner: []byte(`{"type":"local"}`)}})
}

// fixed returns executors with one slot and no executor. The tests that use it start no step.
func fixed() *executors {
	return &executors{now: &launcher{setup: launchconfig.Setup{Runner: runnerspec.NoAgentFile().Runner, Concurrency: 1}}}
}
