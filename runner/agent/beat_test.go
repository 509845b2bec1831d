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

// deaf is a control plane that lets some heartbeats pass without an answer, or
// refuses them at once, after one that it heard.
type deaf struct {
	lost     int
	status   int // of those that are lost; 0: no answer at all
	received []time.Time
	seen     int
}

func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
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
	d.received = append(d.received, time.Now())
	return answer(r, http.StatusOK, wire.SessionStatus{HeartbeatSeconds: 36})
}

// Where heartbeats are rarest (control.Metered), the control plane takes 55 s of silence for death.
// An agent whose words get lost on the way has been heard again by then.
func TestLostHeartbeatsAreNotTakenForDeath(t *testing.T) {
	const death = 55 * time.Second
	for _, tt := range []struct {
		name string
		d    deaf
	}{
		{"one got no answer", deaf{lost: 1}},
		{"two got no answer", deaf{lost: 2}},
		{"a gateway answered seven of them", deaf{lost: 7, status: http.StatusBadGateway}},
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
				if d.seen <= 1+d.lost || len(d.received) < 2 {
					t.Fatalf("of %d heartbeats %d were heard", d.seen, len(d.received))
				}
				for i := range d.received[1:] {
					if gap := d.received[i+1].Sub(d.received[i]); gap >= death {
						t.Errorf("nothing was heard of the agent for %s", gap)
					}
				}
			})
		})
	}
}

// TestAControlPlaneThatRepeatsItselfIsNotCalledWithoutEnd: whatever was told with
// a heartbeat had the agent send the next at once, so an answer that always told
// the same was asked for as fast as it came.
func TestAControlPlaneThatRepeatsItselfIsNotCalledWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &constant{}
		o := Options{Version: "test", Transport: c}
		base, err := newClient("https://control.example", o)
		if err != nil {
			t.Fatal(err)
		}
		executors := fixed()
		executors.file.Final = true // what is told starts nothing here
		a := &Agent{cfg: config.Runner{}, executors: executors, options: o, log: slog.New(slog.DiscardHandler),
			beatNow: make(chan struct{}, 1), freed: make(chan struct{}, 1),
			session: newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, executors, time.Now)}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		a.heartbeatLoop(ctx, ctx, func() {})
		// At 0 s, when it is told; at once, as that was news; and at 15, 30 and 45 s.
		if c.heartbeats != 5 {
			t.Errorf("in 50 s it was called %d times, not 5", c.heartbeats)
		}
	})
}

// constant is a control plane that answers each heartbeat with the same
// configuration, whatever the agent has. From the hundredth it answers no more.
type constant struct{ heartbeats int }

func (c *constant) RoundTrip(r *http.Request) (*http.Response, error) {
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

// fixed are launchers of one step at a time, which nobody starts.
func fixed() *executors {
	return &executors{now: &launcher{setup: launchconfig.Setup{Runner: runnerspec.NoAgentFile().Runner, Concurrency: 1}}}
}
