package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/israce"
)

// bucket is a token bucket, like AWS's rate limits. It gets rate tokens per second and holds at most burst tokens.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time
}

func newBucket(rate, burst float64) *bucket {
	return &bucket{rate: rate, burst: burst, tokens: burst, at: time.Now()}
}

func (b *bucket) take(n float64) bool {
	now := time.Now()
	b.tokens, b.at = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate), now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// limited simulates a control plane on AWS, but only its rate limits.
type limited struct {
	mu       sync.Mutex
	api, sts *bucket
	requests int
	refused  int
	perSec   map[int64]int
	began    time.Time
}

func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	<-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond) // duration of a round trip
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	l.perSec[int64(time.Since(l.began)/time.Second)]++
	status, out := http.StatusOK, any(struct{}{})
	session := strings.HasSuffix(r.URL.Path, "/sessions")
	switch {
	case !l.api.take(1):
		status = http.StatusTooManyRequests // API Gateway sends this status without Retry-After
	case session && !l.sts.take(2): // a session needs two calls of STS: GetCallerIdentity and AssumeRole
		status = http.StatusServiceUnavailable
	case strings.HasSuffix(r.URL.Path, "/challenge"), strings.HasSuffix(r.URL.Path, "/challenges"):
		out = wire.Challenge{Nonce: "n"}
	case session:
		out = wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)}
	}
	if status != http.StatusOK {
		l.refused++
	}
	return answer(r, status, out)
}

// answer returns a response with the body as JSON.
func answer(r *http.Request, status int, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
}

// After a power cut or a release of the runner, all agents start within the same second, and AWS refuses most of their
// requests. The agents must not retry at the same moments (a thundering herd). Each agent must have its session within
// minutes, and all agents together must send at most 7 times the minimum of requests.
func TestTenThousandAgentsStartAtOnce(t *testing.T) {
	if israce.On {
		t.Skip("10000 goroutines are slow under the race detector; make test also runs this test without it")
	}
	const agents = 10000
	const least = 3 * agents // minimum of requests: each agent needs a challenge, a session and a heartbeat
	for _, tt := range []struct {
		name       string
		rate, most float64       // limits of the HTTP API: requests per second, and requests at once
		within     time.Duration // time in which all agents must get their sessions
		requests   float64       // allowed requests of all agents, as a multiple of least
	}{
		{"the limit that the stack sets", 500, 1000, 4 * time.Minute, 7},
		{"AWS's own limit", 10000, 5000, 2 * time.Minute, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &limited{api: newBucket(tt.rate, tt.most), sts: newBucket(600, 600), perSec: map[int64]int{}, began: time.Now()}
				_, key, err := ed25519.GenerateKey(nil)
				if err != nil {
					t.Fatal(err)
				}
				var crowd sync.WaitGroup
				for i := range agents {
					crowd.Go(func() {
						random := rand.New(rand.NewPCG(1, uint64(i))).Float64 // one for each agent, because it is not safe for concurrent use
						o := Options{Version: "test", Random: random, Transport: l}
						base, err := newClient("https://control.example", o)
						if err != nil {
							t.Error(err)
							return
						}
						s := newSession(base, identity{RunnerID: fairlead.RunnerID(fmt.Sprint("run_", i)), key: key}, "test", o, fixed(), time.Now)
						pause := patient(o).Pauses()
						for s.do(t.Context(), func(c *client.Client) error {
							_, err := c.HeartbeatSession(context.Background(), wire.SessionHeartbeat{Running: []string{}})
							return err
						}) != nil {
							<-time.After(pause.NextBackOff())
						}
					})
				}
				crowd.Wait()
				took, peak := time.Since(l.began), 0
				for _, n := range l.perSec {
					peak = max(peak, n)
				}
				t.Logf("%d agents had their sessions after %s, with %d requests, of which %d were refused; at most %d in a second",
					agents, took.Round(100*time.Millisecond), l.requests, l.refused, peak)
				if took > tt.within {
					t.Errorf("the last agent had its session after %s, want at most %s", took, tt.within)
				}
				if got := float64(l.requests) / least; got > tt.requests {
					t.Errorf("the agents sent %.1f times the minimum of requests, want at most %.1f", got, tt.requests)
				}
			})
		})
	}
}
