package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/agentstatus"
)

// session is the agent's short-lived right to claim jobs. The agent renews it before it expires,
// and opens a new session at once when the control plane no longer accepts the session. Safe for
// concurrent use.
type session struct {
	base      *client.Client
	id        identity
	instance  string
	version   string
	random    func() float64
	executors *executors
	now       func() time.Time
	stack     *wire.SessionStack // nil: the runner belongs to no stack
	overload  *overload

	// report returns the heartbeat that opens a session; nil: the agent sends it later. Set
	// before the first request.
	report func(ctx context.Context) wire.SessionHeartbeat
	// reported gets the answer to a heartbeat.
	reported func(ctx context.Context, sent wire.SessionHeartbeat, st wire.SessionStatus)

	one chan struct{} // a lock that is held while a session is being opened; it is a channel so that a wait for it ends with the context

	mu       sync.Mutex
	client   *client.Client // nil: none
	renewAt  time.Time
	since    time.Time // when the session was opened
	until    time.Time // when it expires
	made     int       // number of sessions opened or renewed
	renewal  string    // nonce that renews the session; "": none
	registry string
	queue    *wire.QueueAccess // nil: jobs are claimed only through the API
}

func newSession(base *client.Client, id identity, instance string, o Options, executors *executors, now func() time.Time) *session {
	return &session{base: base, id: id, instance: instance, version: o.Version, random: o.random(), executors: executors, now: now,
		stack: sessionStack(o.Stack), overload: newOverload(o.random(), now),
		one: make(chan struct{}, 1), registry: id.Registry}
}

// renewalSpread is the part of a session's lifetime over which agents spread their renewals. The
// last of them is before 10 minutes of 15: then an idle agent's heartbeat is due, and the renewal is
// this heartbeat.
const renewalSpread = 0.04

// leastToOpen is the time that a caller that had to wait must have left for opening a session. With
// less, the answer may come too late: then a challenge and a session were opened for nothing.
const leastToOpen = 2 * time.Second

// noSession is the error of a session that could not be opened. The request that needed the session
// was not sent, so the error is never a response to that request.
type noSession struct{ err error }

func (e *noSession) Error() string { return "no session with the control plane: " + e.err.Error() }

func (e *noSession) Unwrap() error { return e.err }

// get returns a client with a session token. Its error is a *noSession.
func (s *session) get(ctx context.Context) (*client.Client, error) {
	c, err := s.have(ctx)
	if err != nil {
		return nil, &noSession{err}
	}
	return c, nil
}

func (s *session) have(ctx context.Context) (*client.Client, error) {
	if c := s.current(); c != nil {
		return c, nil
	}
	began := time.Now()
	select {
	case s.one <- struct{}{}:
		defer func() { <-s.one }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.current(); c != nil {
		return c, nil // another goroutine opened it meanwhile
	}
	if err := s.overload.wait(ctx); err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok && time.Since(began) > leastToOpen && time.Until(end) < leastToOpen {
		return nil, fmt.Errorf("no time is left to open a session after the wait for it: %w", context.DeadlineExceeded)
	}
	in, made, err := s.request(ctx)
	if err != nil {
		return nil, s.overload.note(err)
	}
	s.overload.over()
	s.executors.update(ctx, made.Configuration) // must precede the first claim
	if in.Report != nil && made.Status != nil {
		s.reported(ctx, *in.Report, *made.Status)
	}
	c := s.base.WithToken(made.Token)
	lifetime := max(made.ExpiresAt.Sub(s.now()), time.Minute) // our clock may be wrong; the control plane answers 401 when the session has expired
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = c
	s.made++
	s.since, s.until = s.now(), s.now().Add(lifetime)
	s.renewAt = s.now().Add(time.Duration(float64(lifetime) * (0.62 + renewalSpread*s.random())))
	s.queue, s.renewal = made.Queue, made.RenewalNonce
	if made.Registry != "" {
		s.registry = made.Registry
	}
	return c, nil
}

// request renews the session, or opens one with a challenge. It returns the request that the
// control plane accepted, and the answer.
func (s *session) request(ctx context.Context) (wire.SessionRequest, wire.Session, error) {
	if nonce := s.renewable(); nonce != "" {
		in, made, err := s.requestWith(ctx, wire.Challenge{Nonce: nonce, Report: true})
		if !client.HasStatus(err, http.StatusUnauthorized) && !client.Refused(err) {
			return in, made, err
		}
		// The session has ended, or the control plane was restored, or is older and does not know renewals.
		// Without the nonce the next attempts ask for a challenge at once, so a refusal costs one request.
		s.notRenewable(nonce)
	}
	ch, err := s.base.Challenge(ctx)
	if err != nil {
		return wire.SessionRequest{}, wire.Session{}, err
	}
	return s.requestWith(ctx, ch)
}

func (s *session) requestWith(ctx context.Context, ch wire.Challenge) (wire.SessionRequest, wire.Session, error) {
	in := wire.SessionRequest{RunnerID: string(s.id.RunnerID), Nonce: ch.Nonce, Instance: s.instance, Version: s.version,
		Capacity: s.executors.capacity(), Stack: s.stack}
	if s.report != nil && ch.Report {
		report := s.report(ctx)
		in.Report = &report
	}
	if err := s.id.prove(ctx, &in); err != nil {
		return in, wire.Session{}, err
	}
	made, err := s.base.CreateSession(ctx, in)
	return in, made, err
}

// renewable returns the nonce with which the session can be renewed, or "".
func (s *session) renewable() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.now().Before(s.until) {
		return ""
	}
	return s.renewal
}

// notRenewable drops the nonce, unless a newer session replaced it.
func (s *session) notRenewable(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewal == nonce {
		s.renewal = ""
	}
}

// current returns the client of the session, or nil when a new session is due. While the control
// plane is overloaded, the old session serves until it expires, so that heartbeats go on.
func (s *session) current() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.renewAt
	if s.overload.delays() {
		due = s.until
	}
	if s.client != nil && s.now().Before(due) {
		return s.client
	}
	return nil
}

// forget drops the session whose client is c, unless a newer session replaced it.
func (s *session) forget(c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == c {
		s.client, s.renewal = nil, ""
	}
}

// look returns the session's values for the agent's status.
func (s *session) look() agentstatus.Now {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := agentstatus.Now{Sessions: s.made}
	if s.client != nil && s.now().Before(s.until) {
		n.SessionSince = s.since
	}
	return n
}

func (s *session) registryHost() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registry
}

// do calls f with a session. If the response is 401, it opens a new session and calls f once more.
func (s *session) do(ctx context.Context, f func(*client.Client) error) error {
	for again := false; ; again = true {
		c, err := s.get(ctx)
		if err != nil {
			return err
		}
		err = f(c)
		if !client.HasStatus(err, http.StatusUnauthorized) || again {
			return err
		}
		s.forget(c)
	}
}

// isPermanentRefusal reports whether the control plane permanently refused a request about an
// attempt, so that a retry is useless. It returns false for a session that cannot be opened, the
// error page of a proxy, and a control plane that does not have the route yet.
func isPermanentRefusal(err error) bool {
	if _, none := errors.AsType[*noSession](err); none {
		return false
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !strings.HasPrefix(e.Type, wire.ProblemType) {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	case http.StatusNotFound:
		return e.Code() == string(fairlead.CodeJobNotFound)
	}
	return false
}

// change logs an error when it first occurs and when it is over, instead of at every retry. Not safe
// for concurrent use.
type change struct {
	log *slog.Logger
	bad string
}

func (c *change) error(what string, err error) {
	switch {
	case err == nil && c.bad != "":
		c.log.Info("works again", "was", c.bad)
		c.bad = ""
	case err != nil && c.bad != what:
		c.log.Warn(what, "err", err)
		c.bad = what
	case err != nil:
		c.log.Debug(what, "err", err)
	}
}
