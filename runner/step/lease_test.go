package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// leaseServer renews the lease when a heartbeat arrives and answers after the requested wait, like the control plane.
// From down until up, no request reaches it.
type leaseServer struct {
	down, up      time.Time
	hangs         bool // a request during the outage hangs and gets no error
	ttl           time.Duration
	clock         func() time.Time // the control plane's clock
	expires       time.Time        // when the lease expires at the control plane
	lateHeartbeat bool             // a heartbeat came after the lease had expired
}

var errReset = errors.New("connection reset by peer")

func (s *leaseServer) RoundTrip(req *http.Request) (*http.Response, error) {
	cut := func() bool { now := time.Now(); return now.After(s.down) && now.Before(s.up) }
	broken := func() error {
		if s.hangs {
			<-req.Context().Done()
			return req.Context().Err()
		}
		return errReset
	}
	if cut() {
		return nil, broken()
	}
	var in wire.JobHeartbeat
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return nil, err
	}
	if !s.expires.IsZero() && time.Now().After(s.expires) {
		s.lateHeartbeat = true
	}
	s.expires = time.Now().Add(s.ttl)
	at := s.clock().Add(s.ttl)
	for left := time.Duration(in.WaitSeconds) * time.Second; left > 0; left -= 100 * time.Millisecond {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		if cut() {
			return nil, broken()
		}
	}
	b, err := json.Marshal(wire.Lease{ExpiresAt: at, RenewSeconds: int(s.ttl / 3 / time.Second), LogEveryMS: 500, LogBulkMS: 5000, LogCut: true})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: req}, err
}

// The control plane renews a lease when the request arrives, and its answer comes up to a third of the lease later. So the
// step must also count from the request. A step that counted from the answer interrupted an apply that still had its lease.
func TestShortOutageInterruptsNoApply(t *testing.T) {
	const ttl = 45 * time.Second
	for _, tt := range []struct {
		name    string
		after   time.Duration // when the outage starts
		outage  time.Duration
		jump    time.Duration // of the control plane's clock, during the outage
		silent  bool
		expired bool
	}{
		{"an outage of a second", 100 * time.Second, time.Second, 0, false, false},
		{"an outage that ends shortly before the lease", 100 * time.Second, 27 * time.Second, 0, false, false},
		{"an outage right after a renewal", 91 * time.Second, 40 * time.Second, 0, false, false},
		{"an outage without connection errors", 91 * time.Second, 30 * time.Second, 0, true, false},
		{"an outage and a clock that is set forward", 100 * time.Second, 20 * time.Second, time.Hour, false, false},
		{"an outage and a clock that is set back", 100 * time.Second, 20 * time.Second, -time.Hour, false, false},
		{"an outage that is longer than the lease", 100 * time.Second, 60 * time.Second, 0, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &leaseServer{down: began.Add(tt.after), up: began.Add(tt.after + tt.outage), ttl: ttl, hangs: tt.silent}
				s.clock = func() time.Time {
					if time.Now().After(s.down) {
						return time.Now().Add(tt.jump)
					}
					return time.Now()
				}
				c, err := client.New("https://control.example", "token", client.Options{HTTP: &http.Client{Transport: s}, Retries: -1})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var expired atomic.Bool // from a timer
				renewed, late, cuts := 0, 0, 0
				var pace []time.Duration
				l := &lease{client: c, job: "job_1", renew: ttl / 3, log: slog.New(slog.DiscardHandler),
					canceled: func(string) { t.Error("canceled") }, lost: func() { t.Error("lost") }, expired: func() { expired.Store(true) },
					logTerms: func(every, bulk time.Duration, cut bool) {
						if pace = append(pace, every); bulk != 5*time.Second {
							t.Errorf("many bytes of the log wait for %s, want 5 s", bulk)
						}
						if cut {
							cuts++
						}
					},
					renewed: func(tooLate bool) {
						renewed++
						if tooLate {
							late++
						}
					}}
				l.keep(ctx)
				if short := tt.outage <= time.Second; renewed < 5 || (late == 0) != short {
					t.Errorf("%d renewals, %d of them late", renewed, late)
				}
				if cuts != renewed {
					t.Errorf("%d renewals reported the cut of the log %d times", renewed, cuts)
				}
				if len(pace) != renewed || pace[0] != 500*time.Millisecond {
					t.Errorf("%d renewals gave the log the intervals %v, want 500 ms for each", renewed, pace)
				}
				if expired.Load() != tt.expired || s.lateHeartbeat != tt.expired {
					t.Errorf("interrupted: %v, expired at the control plane: %v; want %v for both", expired.Load(), s.lateHeartbeat, tt.expired)
				}
			})
		})
	}
}
