package agent

import (
	"context"
	"errors"
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

// session is the agent's short-lived right to claim jobs. It is renewed before
// it ends and made anew at once when the control plane no longer knows it.
// Safe for concurrent use.
type session struct {
	base      *client.Client
	id        identity
	instance  string
	version   string
	random    func() float64
	executors *executors
	now       func() time.Time
	stack     *wire.SessionStack // nil: the runner is in none

	one chan struct{} // held while a session is being made; a channel, so that waiting ends with a context

	mu       sync.Mutex
	client   *client.Client // nil: none
	renewAt  time.Time
	since    time.Time // when the session was made
	until    time.Time // when it ends
	made     int       // sessions
	registry string
	queue    *wire.QueueAccess // nil: jobs are claimed through the API alone
}

func newSession(base *client.Client, id identity, instance string, o Options, executors *executors, now func() time.Time) *session {
	return &session{base: base, id: id, instance: instance, version: o.Version, random: o.random(), executors: executors, now: now,
		stack: sessionStack(o.Stack),
		one:   make(chan struct{}, 1), registry: id.Registry}
}

// noSession says why no session is to be had. It is never an answer to what was
// to be done with one.
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
	select {
	case s.one <- struct{}{}:
		defer func() { <-s.one }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.current(); c != nil {
		return c, nil // somebody else has made it meanwhile
	}
	ch, err := s.base.Challenge(ctx)
	if err != nil {
		return nil, err
	}
	in := wire.SessionRequest{RunnerID: string(s.id.RunnerID), Nonce: ch.Nonce, Instance: s.instance, Version: s.version,
		Capacity: s.executors.capacity(), Stack: s.stack}
	if err := s.id.prove(ctx, &in); err != nil {
		return nil, err
	}
	made, err := s.base.CreateSession(ctx, in)
	if err != nil {
		return nil, err
	}
	s.executors.update(ctx, made.Configuration) // before anything is claimed
	c := s.base.WithToken(made.Token)
	lifetime := max(made.ExpiresAt.Sub(s.now()), time.Minute) // our clock may be wrong; a 401 tells the truth
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = c
	s.made++
	s.since, s.until = s.now(), s.now().Add(lifetime)
	s.renewAt = s.now().Add(time.Duration(float64(lifetime) * (0.6 + 0.25*s.random())))
	s.queue = made.Queue
	if made.Registry != "" {
		s.registry = made.Registry
	}
	return c, nil
}

func (s *session) current() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil && s.now().Before(s.renewAt) {
		return s.client
	}
	return nil
}

// forget drops the session whose client is c, unless a newer one is there.
func (s *session) forget(c *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == c {
		s.client = nil
	}
}

// look is what the agent's status tells of the session.
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

// do calls f with a session, and once more with a new one if the control plane
// does not know the first.
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

// refusedForGood reports whether the control plane itself has said no, for good, to what
// was asked about an attempt. Whatever else has a status is not its word on that:
// a session that is not to be had, a proxy's page, a control plane that does not
// know the route (yet).
func refusedForGood(err error) bool {
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

// change logs a condition when it begins and when it ends, not at every try.
// Not safe for concurrent use.
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
