// Package accesstest has the conformance suite of identity.Granter, and a granter in
// memory that passes it.
package accesstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/identity"
)

// Harness opens the granter under test.
type Harness struct {
	Open func(t *testing.T) identity.Granter
}

var (
	session = identity.Scope{Runner: "run_a", Queue: "runner-run_a"}
	attempt = identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 3}
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, identity.Granter)
	}{
		{"a session gets only its queue", ofSession},
		{"an attempt gets its install's log and its app's artifacts", ofAttempt},
		{"another install and app have other locations", ofOthers},
		{"each grant has new credentials, which expire soon", renewed},
		{"a canceled context gets no grant", ended},
		{"concurrent grants do not mix", together},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h.Open(t)) })
	}
}

func grant(t *testing.T, g identity.Granter, s identity.Scope) identity.Access {
	t.Helper()
	a, err := g.Grant(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if a.Region == "" || a.AccessKeyID == "" || a.SecretAccessKey == "" || a.SessionToken == "" {
		t.Errorf("the access %+v is incomplete", a)
	}
	return a
}

func ofSession(t *testing.T, g identity.Granter) {
	if a := grant(t, g, session); a.Queue != session.Queue || a.QueuePrefix == "" || a.LogGroup != "" || a.Repository != "" || a.Cancel != (cancelmark.Place{}) {
		t.Errorf("the session got %+v", a)
	}
}

func ofAttempt(t *testing.T, g identity.Granter) {
	if a := grant(t, g, attempt); a.Queue != "" || a.QueuePrefix != "" || a.LogGroup == "" || a.Repository == "" || a.Cancel.URL == "" || a.Cancel.Table == "" || a.Cancel.Key != "ins_a/job_a/3" {
		t.Errorf("the attempt got %+v", a)
	}
}

func ofOthers(t *testing.T, g identity.Granter) {
	other := attempt
	other.Install, other.App = "ins_b", "app_b"
	if a, b := grant(t, g, attempt), grant(t, g, other); a.LogGroup == b.LogGroup || a.Repository == b.Repository || a.Cancel.Key == b.Cancel.Key {
		t.Errorf("two installs got the same locations: %+v and %+v", a, b)
	}
}

func renewed(t *testing.T, g identity.Granter) {
	a, b := grant(t, g, session), grant(t, g, session)
	if a.AccessKeyID == b.AccessKeyID && a.SecretAccessKey == b.SecretAccessKey && a.SessionToken == b.SessionToken {
		t.Error("two grants have the same credentials")
	}
	if left := time.Until(a.Expires); left < time.Minute || left > time.Hour {
		t.Errorf("the credentials expire in %s, want 1 min to 1 h", left)
	}
}

func ended(t *testing.T, g identity.Granter) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := g.Grant(ctx, session); err == nil || a != (identity.Access{}) {
		t.Errorf("got %+v, %v, want an error", a, err)
	}
}

func together(t *testing.T, g identity.Granter) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := session
			s.Queue = fmt.Sprintf("runner-run_%d", i)
			if a, err := g.Grant(t.Context(), s); err != nil || a.Queue != s.Queue {
				t.Errorf("the session with queue %s got queue %s, %v", s.Queue, a.Queue, err)
			}
		})
	}
	all.Wait()
}

// Memory is a granter without a cloud, which records the requested scopes. The zero
// value is ready. Safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	err    error
	scopes []identity.Scope
}

// Fail makes every grant fail with err; nil: grants succeed again.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Scopes returns the requested scopes, in order.
func (m *Memory) Scopes() []identity.Scope {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]identity.Scope(nil), m.scopes...)
}

// Grant implements identity.Granter.
func (m *Memory) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scopes = append(m.scopes, s)
	if ctx.Err() != nil {
		return identity.Access{}, ctx.Err()
	}
	if m.err != nil {
		return identity.Access{}, m.err
	}
	n := len(m.scopes)
	a := identity.Access{Region: "eu-central-1", AccessKeyID: fmt.Sprintf("ASIA%d", n), SecretAccessKey: fmt.Sprintf("secret-%d", n), SessionToken: "t", Expires: time.Now().Add(15 * time.Minute)}
	if s.Queue != "" {
		a.QueuePrefix, a.Queue = "q-", s.Queue
	}
	if s.Job != "" {
		a.LogGroup, a.Repository = "/"+string(s.Install), "app/"+string(s.App)
		a.Cancel = cancelmark.Place{URL: "https://dynamodb.invalid", Table: "cancels", Key: cancelmark.Attempt{Install: s.Install, Job: s.Job, Epoch: s.Epoch}.Key()}
	}
	if s.Warm != "" {
		a.Cancel = cancelmark.Place{URL: "https://dynamodb.invalid", Table: "cancels", Key: cancelmark.OfWarmStep(s.Install, s.Warm).Key()}
	}
	return a, nil
}
