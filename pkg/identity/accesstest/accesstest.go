// Package accesstest is the conformance suite of identity.Granter, and a granter
// in memory that passes it.
package accesstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/identity"
)

// Harness reaches one granter.
type Harness struct {
	Open func(t *testing.T) identity.Granter
}

var (
	session = identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Queue: "runner-run_a"}
	attempt = identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 3}
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, identity.Granter)
	}{
		{"a session is given its queue and nothing else", ofSession},
		{"an attempt is given its install's log and its app's artifacts", ofAttempt},
		{"of others it is given other places", ofOthers},
		{"each time the credentials are new, and end soon", anew},
		{"ended context grants nothing", ended},
		{"grants at the same time are apart", together},
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
		t.Errorf("of %+v a part is missing", a)
	}
	return a
}

func ofSession(t *testing.T, g identity.Granter) {
	if a := grant(t, g, session); a.Queue != session.Queue || a.QueuePrefix == "" || a.LogGroup != "" || a.Repository != "" {
		t.Errorf("a session is given %+v", a)
	}
}

func ofAttempt(t *testing.T, g identity.Granter) {
	if a := grant(t, g, attempt); a.Queue != "" || a.QueuePrefix != "" || a.LogGroup == "" || a.Repository == "" {
		t.Errorf("an attempt is given %+v", a)
	}
}

func ofOthers(t *testing.T, g identity.Granter) {
	other := attempt
	other.Install, other.App = "ins_b", "app_b"
	if a, b := grant(t, g, attempt), grant(t, g, other); a.LogGroup == b.LogGroup || a.Repository == b.Repository {
		t.Errorf("one is given %+v, and another %+v", a, b)
	}
}

func anew(t *testing.T, g identity.Granter) {
	a, b := grant(t, g, session), grant(t, g, session)
	if a.AccessKeyID == b.AccessKeyID && a.SecretAccessKey == b.SecretAccessKey && a.SessionToken == b.SessionToken {
		t.Error("the same credentials were given twice")
	}
	if left := time.Until(a.Expires); left < time.Minute || left > time.Hour {
		t.Errorf("they end in %s", left)
	}
}

func ended(t *testing.T, g identity.Granter) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := g.Grant(ctx, session); err == nil || a != (identity.Access{}) {
		t.Errorf("granted is %+v, %v", a, err)
	}
}

func together(t *testing.T, g identity.Granter) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := session
			s.Queue = fmt.Sprintf("runner-run_%d", i)
			if a, err := g.Grant(t.Context(), s); err != nil || a.Queue != s.Queue {
				t.Errorf("the session of %s is given %s, %v", s.Queue, a.Queue, err)
			}
		})
	}
	all.Wait()
}

// Memory is a granter that nothing stands behind, and notes what it is asked for.
// The zero value is ready. Safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	err    error
	scopes []identity.Scope
}

// Fail has every grant fail with err; nil: none.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Scopes returns what it was asked for.
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
	}
	return a, nil
}
