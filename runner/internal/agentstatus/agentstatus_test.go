package agentstatus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/attempt"
)

// world is a simulated agent with a simulated clock.
type world struct {
	now time.Time
	n   Now
}

func newWorld() (*world, *Status) {
	w := &world{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w.n = Now{SessionSince: w.now, Sessions: 1, Capacity: 2, Running: map[Kind]int{}}
	return w, New(Options{Version: "v1.2.3", Runner: "run_1", Executor: func() string { return "process" }, Look: func() Now { return w.n }, Clock: func() time.Time { return w.now }})
}

func get(s *Status, path string) (int, string) {
	r := httptest.NewRecorder()
	s.Handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

func TestAgentThatCanTakeJobsIsReady(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world, s *Status)
		why  string // part of the reason; "": the agent is ready
	}{
		{"a poll returned no job", func(_ *world, s *Status) { s.Polled(client.ErrNoWork) }, ""},
		{"a poll returned a job", func(_ *world, s *Status) { s.Polled(nil) }, ""},
		{"the first poll runs", func(*world, *Status) {}, ""},
		{"the first polls fail for 2 minutes", func(w *world, _ *Status) { w.now = w.now.Add(2 * time.Minute) }, "answered no poll for 2m0s"},
		{"the agent has just started and has no session", func(w *world, _ *Status) { w.n.SessionSince, w.n.Sessions = time.Time{}, 0 }, "answered no poll yet"},
		{"two polls fail after a successful one", func(w *world, s *Status) {
			s.Polled(client.ErrNoWork)
			w.now = w.now.Add(70 * time.Second)
			s.Polled(errors.New("connection refused"))
		}, ""},
		{"the control plane does not answer for 2 minutes", func(w *world, s *Status) {
			s.Polled(client.ErrNoWork)
			w.now = w.now.Add(2 * time.Minute)
		}, "answered no poll for 2m0s"},
		{"the session ended and no other was opened", func(w *world, s *Status) {
			s.Polled(client.ErrNoWork)
			w.n.SessionSince = time.Time{}
		}, "there is no session"},
		{"the agent drains", func(w *world, s *Status) {
			s.Polled(client.ErrNoWork)
			w.n.Draining = true
		}, "draining"},
		{"full for an hour, heartbeats are accepted", func(w *world, s *Status) {
			s.Polled(nil)
			w.n.Running = map[Kind]int{{"terraform", "apply"}: 2}
			w.now = w.now.Add(time.Hour)
			s.Beat(nil)
		}, ""},
		{"full for an hour, heartbeats fail", func(w *world, s *Status) {
			s.Polled(nil)
			w.n.Running = map[Kind]int{{"terraform", "apply"}: 2}
			w.now = w.now.Add(time.Hour)
			s.Beat(errors.New("connection refused"))
		}, "answered no poll for 1h0m0s"},
		{"a slot became free after an hour, the next poll runs", func(w *world, s *Status) {
			s.Polled(nil)
			w.now = w.now.Add(time.Hour)
			s.NoRoom()
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, s := newWorld()
			tt.do(w, s)
			code, body := get(s, "/readyz")
			if want := map[bool]int{true: 200, false: 503}[tt.why == ""]; code != want || !strings.Contains(body, tt.why) {
				t.Errorf("/readyz answered %d, want %d with %q: %s", code, want, tt.why, body)
			}
			if code, _ := get(s, "/healthz"); code != 200 {
				t.Errorf("/healthz answered %d, want 200", code)
			}
		})
	}
}

func TestEveryErrorHasAKind(t *testing.T) {
	refusal := func(status int) error {
		return fmt.Errorf("claim: %w", &client.Error{Problem: wire.Problem{Status: status}})
	}
	for want, errs := range map[string][]error{
		"unauthorized": {refusal(401), refusal(403)},
		"refused":      {refusal(409), refusal(422)},
		"throttled":    {refusal(429)},
		"server":       {refusal(500), refusal(503)},
		"dns":          {&net.OpError{Op: "dial", Err: &net.DNSError{Name: "nowhere", IsNotFound: true}}},
		"tls":          {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, tls.RecordHeaderError{}},
		"timeout":      {context.DeadlineExceeded, &net.OpError{Op: "read", Err: context.DeadlineExceeded}},
		"network":      {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, errors.New("unexpected EOF")},
	} {
		for _, err := range errs {
			if got := kindOf(err); got != want {
				t.Errorf("%v has kind %s, want %s", err, got, want)
			}
		}
	}
}

// Names from a control plane or an operator can neither break the format nor create metrics without limit.
func TestUntrustedNamesCannotBreakMetrics(t *testing.T) {
	w, _ := newWorld()
	s := New(Options{Version: "v1\"\n\\", Runner: `run_"1`, Executor: func() string { return "process" }, Look: func() Now { return w.n }, Clock: func() time.Time { return w.now }})
	for i := range 100 {
		k := Kind{Plugin: fmt.Sprint("plugin", i), Operation: fmt.Sprintf("op\n%d", i)}
		s.Claimed(k)
		s.Ended(k, "succeeded", attempt.Tally{LogBytes: -1})
		w.n.Running[k] = 1
	}
	_, body := get(s, "/metrics")
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("cannot parse the metrics: %v\n%s", err, body)
	}
	for _, name := range []string{"jobs_claimed_total", "jobs_ended_total", "jobs_running"} {
		if f := families[namespace+name]; f == nil || len(f.Metric) != 1 {
			t.Errorf("%s has these metrics, want one: %v", name, f)
		}
	}
	if v := families[namespace+"info"].Metric[0].Label[0].GetValue(); v != "v1\"\n\\" && families[namespace+"info"].Metric[0].Label[2].GetValue() != "v1\"\n\\" {
		t.Errorf("the version label is %q, want the escaped version back", v)
	}
}

// An agent without a status address has a nil Status.
func TestNilStatusDoesNothing(t *testing.T) {
	var s *Status
	s.Claimed(Kind{})
	s.Ended(Kind{}, "succeeded", attempt.Tally{})
	s.Polled(nil)
	s.NoRoom()
	s.Beat(nil)
	s.Failed("claim", errors.New("no"))
}
