package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func refusalOf(status int, after time.Duration) error {
	return &client.Error{Problem: wire.Problem{Status: status}, RetryAfter: after}
}

// A crowd that returns too early, or at the same moment, is refused again. An agent that waits
// although its control plane only restarted starts no jobs meanwhile.
func TestRefusedAgentsSpreadTheirRetries(t *testing.T) {
	const half = 0.5
	tooMany, unavailable := refusalOf(http.StatusTooManyRequests, 0), refusalOf(http.StatusServiceUnavailable, 0)
	for _, tt := range []struct {
		name   string
		random float64
		errs   []error // of the requests, in order; nil: success
		want   time.Duration
	}{
		{"the control plane refuses connections", half, []error{&client.UnreachableError{Err: errors.New("refused")}}, 0},
		{"a gateway has no backend", half, []error{refusalOf(http.StatusBadGateway, 0)}, 0},
		{"the proof is wrong", half, []error{refusalOf(http.StatusUnauthorized, 0)}, 0},
		{"too many requests: the earliest agent", 0, []error{tooMany}, 0},
		{"too many requests: the middle agent", half, []error{tooMany}, firstWindow / 2},
		{"too many requests: the latest agent", 1, []error{tooMany}, firstWindow},
		{"unavailable", half, []error{unavailable}, firstWindow / 2},
		{"the second refusal in a row doubles the window", half, []error{tooMany, tooMany}, firstWindow},
		{"the window is bounded", half, []error{tooMany, tooMany, tooMany, tooMany, tooMany}, longestWindow / 2},
		{"a session ends the delays", half, []error{tooMany, tooMany, nil}, 0},
		{"the next overload starts with the first window", half, []error{tooMany, tooMany, nil, tooMany}, firstWindow / 2},
		{"a requested pause comes first, so that agents do not return together", half, []error{refusalOf(http.StatusTooManyRequests, 10*time.Second)}, 10*time.Second + firstWindow/2},
		{"a requested hour is cut", 0, []error{refusalOf(http.StatusServiceUnavailable, time.Hour)}, longestWindow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOverload(func() float64 { return tt.random }, time.Now)
				for _, err := range tt.errs {
					if err == nil {
						o.over()
					} else if got := o.note(err); got != err {
						t.Errorf("note returns %v", got)
					}
				}
				began := time.Now()
				if err := o.wait(t.Context()); err != nil {
					t.Error(err)
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("the next request is sent after %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestEndedWaitNamesTheRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOverload(func() float64 { return 0.5 }, time.Now)
		refusal := o.note(refusalOf(http.StatusTooManyRequests, 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.wait(ctx); err != refusal {
			t.Errorf("the wait ends with %v, want the refusal", err)
		}
	})
}

// opening answers the requests of sessions with a status that the test sets.
type opening struct {
	mu       sync.Mutex
	status   int
	sessions int // requests that open a session
	beats    int
}

func (f *opening) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case wire.CreateChallenge.Path, wire.CreateSession.Path:
		f.sessions++
		return answer(r, f.status, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)})
	}
	f.beats++
	return answer(r, http.StatusOK, wire.SessionStatus{})
}

// A runner whose heartbeats stop for a minute would be marked lost.
func TestOldSessionServesDuringOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &opening{status: http.StatusOK}
		o := Options{Random: func() float64 { return 0.5 }, Transport: f}
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		base, err := newClient("https://control.example", o)
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, fixed(), time.Now)
		beat := func() error {
			return s.do(t.Context(), func(c *client.Client) error {
				_, err := c.HeartbeatSession(t.Context(), wire.SessionHeartbeat{Running: []string{}})
				return err
			})
		}
		if err := beat(); err != nil {
			t.Fatal(err)
		}
		<-time.After(12 * time.Minute) // the session is to be renewed; it expires in three minutes
		f.status, f.sessions = http.StatusTooManyRequests, 0
		if err := beat(); !client.HasStatus(err, http.StatusTooManyRequests) {
			t.Fatalf("the renewal of the session: %v", err)
		}
		for range 10 {
			if err := beat(); err != nil {
				t.Errorf("a heartbeat after the refusal: %v", err)
			}
			<-time.After(time.Second)
		}
		if f.sessions != 1 || f.beats != 11 {
			t.Errorf("the agent sent %d requests for a session and %d heartbeats, want 1 and 11", f.sessions, f.beats)
		}
		f.status = http.StatusOK
		<-time.After(firstWindow)
		if err := beat(); err != nil || f.sessions != 3 {
			t.Errorf("after the overload, the agent sent %d requests for a session, want 3: %v", f.sessions, err)
		}
	})
}
