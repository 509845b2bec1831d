// Package controltest is a small control plane for the runner's tests: the
// runner API of package wire over real HTTP, real signatures, leases with
// epochs, logs by offset, state with locks, and an OCI registry. It keeps all
// in memory and decides nothing: a test queues jobs and looks at what came.
package controltest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Options of a Server; the zero value is useful.
type Options struct {
	LeaseTTL  time.Duration // 0: 45 s
	Renew     int           // seconds; 0: 15
	Heartbeat int           // seconds between session heartbeats; 0: 15

	// Death is called when the death of a job's step is reported, before anything
	// follows from it; nil: nothing is.
	Death func(job string)

	// Ways past the API; nil: none.
	Queue *wire.QueueAccess                               // of a session
	Log   func(job string, epoch int64) *wire.LogAccess   // of an attempt; called under the server's lock
	Index func(job string, epoch int64) (whatCame []byte) // of a log that was not appended; called at the job's end
}

// Job is a job as the test sees it. Read it through Server.Job.
type Job struct {
	ID       string
	Epoch    int64
	Spec     events.JobSpec
	Claimed  bool
	Released int
	StepID   string
	Started  time.Time
	Canceled bool
	Log      []byte
	Finish   *wire.FinishRequest
	Finishes int // reports that were accepted, repeats included
	Died     *wire.DiedRequest
	Renewals int
	ByName   bool // it was claimed by an agent that had its wake-up
	Appends  int  // of its log, through the API
	// LogRenewals counts how often access to its log was renewed.
	LogRenewals int
	Plan        []byte
	launch      string
	lease       string
	expires     time.Time
	appendErr   int  // answers to come that store but do not say so
	fenced      bool // the epoch was raised behind the attempt's back
}

// Server is the control plane.
type Server struct {
	t      testing.TB
	HTTP   *httptest.Server
	Signer *events.Signer
	opt    Options

	mu         sync.Mutex
	changed    chan struct{}     // closed and replaced at every change
	enrolment  map[string]string // token → hex of the public key that used it, or ""
	runners    map[string]ed25519.PublicKey
	challenges map[string]bool
	sessions   map[string]bool
	queue      []*Job
	jobs       map[string]*Job
	seen       int // runner ids given
	state      map[string][]byte
	locks      map[string][]byte
	Beats      []wire.SessionHeartbeat
	down       bool
	loseFinish int
	claims     int
	noState    bool
	tamper     func(events.JobSpec, []byte) []byte
	draining   map[string]bool // by session token: such a session gets no job
	configured *wire.AgentConfiguration
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 45 * time.Second
	}
	if o.Renew == 0 {
		o.Renew = 15
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15
	}
	s := &Server{t: t, opt: o, Signer: events.NewSigner(key), changed: make(chan struct{}),
		enrolment: map[string]string{}, runners: map[string]ed25519.PublicKey{}, challenges: map[string]bool{},
		sessions: map[string]bool{}, draining: map[string]bool{}, jobs: map[string]*Job{}, state: map[string][]byte{}, locks: map[string][]byte{}}
	registry, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", registry)
	s.routes(mux)
	s.HTTP = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		if down {
			hang(w)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.HTTP.CloseClientConnections()
		s.HTTP.Close()
	})
	return s
}

// hang drops the connection without an answer, as a dead server does.
func hang(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		c.Close()
	}
}

// URL returns the server's URL.
func (s *Server) URL() string { return s.HTTP.URL }

// Registry returns the registry's host and port.
func (s *Server) Registry() string { return strings.TrimPrefix(s.HTTP.URL, "http://") }

// Now is the server's clock.
func (s *Server) now() time.Time { return time.Now() }

// SetDown makes the server drop every connection, or work again.
func (s *Server) SetDown(down bool) {
	s.change(func() { s.down = down })
	if down {
		s.HTTP.CloseClientConnections()
	}
}

// LoseFinishAnswers makes the next n finish reports be accepted without an answer.
func (s *Server) LoseFinishAnswers(n int) { s.change(func() { s.loseFinish = n }) }

// LoseLogAnswers makes the next n appends to the job's log be stored without an answer.
func (s *Server) LoseLogAnswers(job string, n int) {
	s.change(func() { s.jobs[job].appendErr = n })
}

// TruncateLog drops the end of the job's log, as a restore from a backup would.
func (s *Server) TruncateLog(job string, size int) {
	s.change(func() { s.jobs[job].Log = s.jobs[job].Log[:min(size, len(s.jobs[job].Log))] })
}

// ExpireSessions makes every session token invalid.
func (s *Server) ExpireSessions() { s.change(func() { clear(s.sessions) }) }

// Fence gives the job to somebody else: its epoch rises.
func (s *Server) Fence(job string) {
	s.change(func() { s.jobs[job].Epoch++; s.jobs[job].fenced = true })
}

// Cancel cancels the job.
func (s *Server) Cancel(job string) { s.change(func() { s.jobs[job].Canceled = true }) }

// EnrolmentToken makes a single-use token.
func (s *Server) EnrolmentToken() string {
	tok := "fle_" + random()
	s.change(func() { s.enrolment[tok] = "" })
	return tok
}

// Queue queues a job. Job, Epoch, Runner and the times of spec are filled in
// when it is claimed, if they are empty.
func (s *Server) Queue(spec events.JobSpec) string {
	var id string
	s.change(func() {
		id = fmt.Sprintf("job_%05d%s", len(s.jobs)+1, random()[:6])
		j := &Job{ID: id, Spec: spec}
		s.jobs[id] = j
		s.queue = append(s.queue, j)
	})
	return id
}

// Requeue queues the job for another attempt.
func (s *Server) Requeue(job string) {
	s.change(func() {
		j := s.jobs[job]
		j.Claimed, j.Died, j.Finish, j.StepID = false, nil, nil, ""
		s.queue = append(s.queue, j)
	})
}

// Job returns a copy of the job.
func (s *Server) Job(id string) Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := *s.jobs[id]
	j.Log = append([]byte(nil), j.Log...)
	return j
}

// State returns the state under "<install>/<component>".
func (s *Server) State(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]byte(nil), s.state[key]...)
}

// SetTamper makes f change envelopes on their way to a step; nil: none.
func (s *Server) SetTamper(f func(spec events.JobSpec, envelope []byte) []byte) {
	s.change(func() { s.tamper = f })
}

// RefuseState makes every write of a state be refused for good.
func (s *Server) RefuseState(refuse bool) { s.change(func() { s.noState = refuse }) }

// LockState locks the state for a holder that is not the job.
func (s *Server) LockState(key, holder string) {
	s.change(func() {
		s.locks[key], _ = json.Marshal(map[string]string{"ID": random(), "Who": holder, "Operation": "OperationTypeApply"})
	})
}

// Configure gives the runners a configuration, which their agents hear of with
// their session, or their next heartbeat.
func (s *Server) Configure(revision, runner string) {
	s.change(func() {
		s.configured = &wire.AgentConfiguration{Revision: revision, Runner: json.RawMessage(runner)}
	})
}

// Counts returns how many claims and session heartbeats there were.
func (s *Server) Counts() (claims, beats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims, len(s.Beats)
}

// LastBeat returns the last session heartbeat.
func (s *Server) LastBeat() wire.SessionHeartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Beats) == 0 {
		return wire.SessionHeartbeat{}
	}
	return s.Beats[len(s.Beats)-1]
}

// Until waits until cond holds. It looks again at every change here and, for
// what changes elsewhere, a few times a second. It fails the test after a
// minute.
func (s *Server) Until(what string, cond func() bool) {
	s.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-look.C:
		case <-deadline.C:
			s.t.Fatalf("waited a minute for: %s", what)
		}
	}
}

// UntilFinished waits for the job's report and returns the job.
func (s *Server) UntilFinished(job string) Job {
	s.t.Helper()
	s.Until("report of "+job, func() bool { j := s.Job(job); return j.Finish != nil || j.Died != nil })
	j := s.Job(job)
	if j.Finish == nil {
		s.t.Fatalf("job %s died: %+v", job, *j.Died)
	}
	return j
}

// UntilDied waits until the job's death is reported and returns the job.
func (s *Server) UntilDied(job string) Job {
	s.t.Helper()
	s.Until("death of "+job, func() bool { j := s.Job(job); return j.Finish != nil || j.Died != nil })
	j := s.Job(job)
	if j.Died == nil {
		s.t.Fatalf("job %s was reported as %+v", job, *j.Finish)
	}
	return j
}

// UntilLog waits until the job's log holds text.
func (s *Server) UntilLog(job, text string) {
	s.t.Helper()
	s.Until(fmt.Sprintf("%q in the log of %s", text, job), func() bool {
		j := s.Job(job)
		if j.Finish != nil && !strings.Contains(string(j.Log), text) {
			s.t.Fatalf("job %s ended as %+v; its log lacks %q:\n%s", job, *j.Finish, text, j.Log)
		}
		return strings.Contains(string(j.Log), text)
	})
}

func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitFor waits under the request's context until cond, called with the lock
// held, holds, or until the time is over.
func (s *Server) waitFor(ctx context.Context, d time.Duration, cond func() bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func random() string {
	b := make([]byte, 12)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code, detail string, details map[string]string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(wire.Problem{Type: wire.ProblemType + code, Title: http.StatusText(status), Status: status, Detail: detail, Details: details})
}

func read[T any](w http.ResponseWriter, r *http.Request) (T, bool) {
	var v T
	dec := json.NewDecoder(io.LimitReader(r.Body, 32<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		refuse(w, 400, "invalid-body", err.Error(), nil)
		return v, false
	}
	return v, true
}

// FreePort returns a loopback port that was free a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// RunnerID is what the first runner that enrols is called.
const RunnerID fairlead.RunnerID = "run_1"
