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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/tools/israce"
	"github.com/fairlead/fairlead/tools/shortrun"
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

// limit is the limit of a route of the HTTP API: requests per second, and requests at once.
type limit struct {
	path        string // a path that ends with a slash stands for all paths below it
	rate, burst float64
}

// routes returns the routes of the Runner API with the limits that the stack sets. TestCrowdUsesTheRoutes compares them with
// the stack.
func routes() []limit {
	return []limit{
		{"/runner/v1/", 500, 1000},
		{"/runner/v1/enrol", 50, 100},
		{"/runner/v1/challenges", 300, 600},
		{"/runner/v1/sessions", 300, 600},
		{"/runner/v1/claims", 300, 600},
		{"/runner/v1/jobs/", 500, 1000},
	}
}

// limited simulates a control plane on AWS, but only its rate limits.
type limited struct {
	mu       sync.Mutex
	limits   []limit
	buckets  map[string]*bucket // by the path of the limit
	sts      *bucket
	requests int // of agents
	refused  int // of them
	jobs     int // renewals and finishes of running jobs
	lost     int // of them: refused
	starts   int // starts of jobs and renewals of their credentials, each with one call of STS
	waited   int // of them: refused by STS, so the step repeats it
	slowest  time.Duration
	perSec   map[int64]int
	began    time.Time
}

func newLimited(limits []limit) *limited {
	l := &limited{limits: limits, buckets: map[string]*bucket{}, sts: newBucket(600, 600), perSec: map[int64]int{}, began: time.Now()}
	for _, r := range limits {
		l.buckets[r.path] = newBucket(r.rate, r.burst)
	}
	return l
}

// route returns the bucket of the most specific route of a path.
func (l *limited) route(path string) *bucket {
	best := ""
	for _, r := range l.limits {
		if path == r.path || strings.HasSuffix(r.path, "/") && strings.HasPrefix(path, r.path) {
			if len(r.path) > len(best) {
				best = r.path
			}
		}
	}
	return l.buckets[best]
}

// job takes a request of a running job: heartbeat or finish.
func (l *limited) job(request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs++
	if !l.route("/runner/v1/jobs/job_1/" + request).take(1) {
		l.lost++
	}
}

// credentials takes a request of a step for credentials: at its start, and when they expire. It
// reports whether STS gave them.
func (l *limited) credentials(request string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts++
	if l.route("/runner/v1/jobs/job_1/"+request).take(1) && l.sts.take(1) {
		return true
	}
	l.waited++
	return false
}

// took records how long a start took.
func (l *limited) took(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slowest = max(l.slowest, d)
}

// counted counts the requests of one agent.
type counted struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
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
	case !l.route(r.URL.Path).take(1):
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
	kind := "application/json"
	if status >= 400 {
		kind = "application/problem+json"
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(b)), Request: r}, err
}

// After a power cut or a release of the runner, all agents start within the same second, and AWS refuses most of their
// requests. The agents must not retry at the same moments (a thundering herd). With the limits of the stack, each agent must
// have its session within 120 s, and no agent may send more than 6 requests. Meanwhile 2,000 jobs run for a minute each: they renew their
// leases every 15 s and finish, and no renewal or finish may be refused. Each start of a job takes from the same limit of STS as the
// sessions do; a start that STS refuses is repeated, and must not take as long as the start timeout. One limit for all routes would refuse them: the last row
// shows it.
func TestTenThousandAgentsStartAtOnce(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	if israce.On {
		t.Skip("10000 goroutines are slow under the race detector; make test also runs this test without it")
	}
	const agents = 10000
	const running = 2000
	for _, tt := range []struct {
		name     string
		limits   []limit
		within   time.Duration // time in which all agents must get their sessions
		requests int64         // allowed requests of each agent
		refused  [2]int        // least and most refused requests of running jobs
	}{
		{"the limits that the stack sets", routes(), 2 * time.Minute, 6, [2]int{0, 0}},
		{"AWS's own limit", []limit{{"/runner/v1/", 10000, 5000}}, 2 * time.Minute, 8, [2]int{0, 100}},
		{"one limit for all routes", []limit{{"/runner/v1/", 500, 1000}}, 4 * time.Minute, 20, [2]int{500, 20000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimited(tt.limits)
				_, key, err := ed25519.GenerateKey(nil)
				if err != nil {
					t.Fatal(err)
				}
				var crowd, jobs sync.WaitGroup
				sent := make([]*counted, agents)
				done := make(chan struct{})
				for i := range running {
					jobs.Go(func() {
						pause := time.Duration(i) * 15 * time.Second / running
						for n := i; ; n++ { // a quarter of the jobs finish in each period, and the next ones start
							select {
							case <-done:
								return
							case <-time.After(pause):
								l.job([]string{"heartbeat", "heartbeat", "heartbeat", "finish"}[n%4])
								began := time.Now()
								for n%4 == 3 && !l.credentials("start") {
									<-time.After(time.Second)
								}
								if n%4 == 3 {
									l.took(time.Since(began))
								}
							}
							pause = 15 * time.Second
						}
					})
				}
				for i := range agents {
					crowd.Go(func() {
						random := rand.New(rand.NewPCG(1, uint64(i))).Float64 // one for each agent, because it is not safe for concurrent use
						sent[i] = &counted{RoundTripper: l}
						o := Options{Version: "test", Random: random, Transport: sent[i]}
						base, err := newClient("https://control.example", o)
						if err != nil {
							t.Error(err)
							return
						}
						s := newSession(base, identity{RunnerID: fairlead.RunnerID(fmt.Sprint("run_", i)), key: key}, "test", o, fixed(), time.Now)
						untilOK := func(request func(ctx context.Context) error) {
							pause := patient(o).Pauses()
							for {
								ctx, cancel := context.WithTimeout(t.Context(), beatTimeout)
								err := request(ctx)
								cancel()
								if err == nil {
									return
								}
								<-time.After(pause.NextBackOff())
							}
						}
						crowd.Go(func() { untilOK(func(ctx context.Context) error { _, err := s.get(ctx); return err }) }) // the loop that claims jobs
						untilOK(func(ctx context.Context) error {
							return s.do(ctx, func(c *client.Client) error {
								_, err := c.HeartbeatSession(ctx, wire.SessionHeartbeat{Running: []string{}})
								return err
							})
						})
					})
				}
				crowd.Wait()
				close(done)
				jobs.Wait()
				took, peak, most := time.Since(l.began), 0, int64(0)
				for _, c := range sent {
					most = max(most, c.n.Load())
				}
				for _, n := range l.perSec {
					peak = max(peak, n)
				}
				t.Logf("%d agents had their sessions after %s, with %.1f requests each, at most %d, of which %d were refused; at most %d in a second; of %d requests of running jobs, %d were refused; of %d requests for credentials %d, the slowest start took %s",
					agents, took.Round(100*time.Millisecond), float64(l.requests)/agents, most, l.refused, peak, l.jobs, l.lost, l.starts, l.waited, l.slowest)
				if took > tt.within {
					t.Errorf("the last agent had its session after %s, want at most %s", took, tt.within)
				}
				if most > tt.requests {
					t.Errorf("an agent sent %d requests, want at most %d", most, tt.requests)
				}
				if tt.refused[1] == 0 && l.slowest >= job.StartTimeout || l.starts < running/4 {
					t.Errorf("the slowest of %d starts took %s, want less than %s", l.starts, l.slowest, job.StartTimeout)
				}
				if l.lost < tt.refused[0] || l.lost > tt.refused[1] || l.jobs < running {
					t.Errorf("of %d requests of running jobs, %d were refused, want between %d and %d", l.jobs, l.lost, tt.refused[0], tt.refused[1])
				}
			})
		})
	}
}
