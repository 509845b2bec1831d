package agent

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
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

// With the longest heartbeat period (control.Metered), the control plane marks a runner lost after 55 s without a
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
				a := &Agent{cfg: config.Runner{}, executors: fixed(), options: o, log: slog.New(slog.NewTextHandler(io.Discard, nil)), beatNow: make(chan struct{}),
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
		a := &Agent{cfg: config.Runner{}, executors: executors, options: o, log: slog.New(slog.DiscardHandler),
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
