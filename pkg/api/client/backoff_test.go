package client

import (
	"net/http"
	"testing"
	"time"
)

// Pauses grow and differ between clients. They are longer if the server is
// overloaded, and never shorter than a pause that the server requests within the limit.
func TestPausesGrowAndVary(t *testing.T) {
	const shortest, longest = 50 * time.Millisecond, 2 * time.Second
	answer := func(status int, after string) *http.Response {
		h := http.Header{}
		if after != "" {
			h.Set("Retry-After", after)
		}
		return &http.Response{StatusCode: status, Header: h}
	}
	for _, tt := range []struct {
		name        string
		attempt     int
		res         *http.Response
		least, most time.Duration
	}{
		{"first broken connection", 0, nil, 25 * time.Millisecond, 75 * time.Millisecond},
		{"third broken connection", 2, nil, 100 * time.Millisecond, 300 * time.Millisecond},
		{"13th broken connection", 12, nil, time.Second, 3 * time.Second},
		{"a proxy without a backend", 0, answer(http.StatusBadGateway, ""), 25 * time.Millisecond, 75 * time.Millisecond},
		{"too many requests", 0, answer(http.StatusTooManyRequests, ""), 250 * time.Millisecond, 750 * time.Millisecond},
		{"unavailable for the fourth time", 3, answer(http.StatusServiceUnavailable, ""), time.Second, 3 * time.Second},
		{"the server requests one second", 0, answer(http.StatusTooManyRequests, "1"), time.Second, 1500 * time.Millisecond},
		{"the server requests one hour", 0, answer(http.StatusServiceUnavailable, "3600"), longest, longest * 3 / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			least, most := backoff(shortest, longest, tt.attempt, tt.res, 0), backoff(shortest, longest, tt.attempt, tt.res, 1)
			if least != tt.least || most != tt.most {
				t.Errorf("pause between %s and %s, want between %s and %s", least, most, tt.least, tt.most)
			}
		})
	}
}
