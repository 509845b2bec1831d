package control_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// An agent renews its session for a day. It stays the same session, so the runner has one
// session, and a renewal is one write.
func TestRenewalKeepsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := enginetest.Meter(enginetest.Memory())
		p := newPlane(t, meter)
		agent := p.keyed("local")
		first, err := agent.prove(p.NewChallenge(), "agent")
		if err != nil {
			t.Fatal(err)
		}
		s := first
		for renewals := 0; ; renewals++ {
			p.sleep(10 * time.Minute)
			if s.Renewal == "" {
				if age := p.Now().Sub(first.LastSeen); age < control.MaxSessionAge-control.SessionTTL {
					t.Errorf("the session cannot be renewed at the age of %s", age)
				}
				break
			}
			meter.Reset()
			if s, err = agent.prove(s.Renewal, "agent"); err != nil {
				t.Fatalf("renewal %d: %v", renewals, err)
			}
			if u := meter.Usage(); u[enginetest.OpCommitOne].Calls != 1 || u[enginetest.OpCommitMany].Calls != 0 {
				t.Fatalf("renewal %d makes the commits %v, want one of one record", renewals, u)
			}
			if s.ID != first.ID || !s.LastSeen.Equal(p.Now().Truncate(time.Millisecond)) || s.State != "online" {
				t.Fatalf("renewal %d gives the session %+v", renewals, s)
			}
			if err := p.works(s.Bearer); err != nil {
				t.Fatalf("renewal %d: %v", renewals, err)
			}
		}
		r, err := p.Runner(p.ctx, org, "local")
		if err != nil {
			t.Fatal(err)
		}
		// The other session is the one of the plane's own agent. Both opened in the same millisecond.
		i := slices.IndexFunc(r.Sessions, func(s control.Session) bool { return s.ID == first.ID })
		if len(r.Sessions) != 2 || i < 0 || r.Sessions[i].Expires.Sub(first.LastSeen) != control.MaxSessionAge {
			t.Errorf("after a day the runner has the sessions %+v", r.Sessions)
		}
		if next, _, err := agent.open("agent"); err != nil || next.ID == first.ID {
			t.Errorf("the session after a day is %s, %v", next.ID, err)
		}
	})
}

func TestRefusedRenewals(t *testing.T) {
	for name, row := range map[string]struct {
		before func(p *plane, agent *keyed, s control.OpenedSession) (by *keyed, nonce string)
		want   fairlead.Code // "": accepted
	}{
		"the answer was lost, so the agent repeats the renewal": {func(p *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			p.must("renew", func() error { _, err := agent.prove(s.Renewal, "agent"); return err })
			return agent, s.Renewal
		}, ""},
		"the nonce of an earlier renewal": {func(p *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			var next control.OpenedSession
			p.must("renew", func() (err error) { next, err = agent.prove(s.Renewal, "agent"); return })
			p.must("renew again", func() error { _, err := agent.prove(next.Renewal, "agent"); return err })
			return agent, s.Renewal
		}, fairlead.CodeSessionRefused},
		"another agent of the runner has the nonce": {func(p *plane, _ *keyed, s control.OpenedSession) (*keyed, string) {
			return p.keyed("local"), s.Renewal
		}, fairlead.CodeSessionRefused},
		"an agent of another runner has the nonce": {func(p *plane, _ *keyed, s control.OpenedSession) (*keyed, string) {
			p.runner("acme", fileOf("", "http"))
			return p.keyed("acme"), s.Renewal
		}, fairlead.CodeSessionRefused},
		"the session's token is no nonce": {func(_ *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			return agent, s.Bearer
		}, fairlead.CodeSessionRefused},
		"the session expired": {func(p *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			p.sleep(control.SessionTTL)
			return agent, s.Renewal
		}, fairlead.CodeSessionRefused},
		"the agent ended the session": {func(p *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			p.must("end the session", func() error { return p.HeartbeatSession(p.ctx, s.Session, control.Heartbeat{Ending: true}) })
			return agent, s.Renewal
		}, fairlead.CodeSessionRefused},
		"the agent's key was revoked": {func(p *plane, agent *keyed, s control.OpenedSession) (*keyed, string) {
			p.must("revoke", func() error { return p.RevokeAgent(p.ctx, me, "local", agent.id()) })
			return agent, s.Renewal
		}, fairlead.CodeSessionRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				agent := p.keyed("local")
				s, err := agent.prove(p.NewChallenge(), "agent")
				if err != nil {
					t.Fatal(err)
				}
				p.sleep(time.Minute)
				by, nonce := row.before(p, agent, s)
				again, err := by.prove(nonce, "agent")
				expectCode(t, name, err, row.want)
				if row.want == "" && again.ID != s.ID {
					t.Errorf("the repeated renewal gives session %s, want %s", again.ID, s.ID)
				}
			})
		})
	}
}

// A lost runner that renews its session is online again, with the renewal's commit.
func TestRenewalMakesALostRunnerOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		agent := p.keyed("local")
		s, err := agent.prove(p.NewChallenge(), "agent")
		if err != nil {
			t.Fatal(err)
		}
		p.sleep(p.IdleLostAfter() + time.Second)
		p.must("watch", func() error { _, err := p.WatchRunners(p.ctx); return err })
		if r, err := p.Runner(p.ctx, org, "local"); err != nil || r.State != "lost" {
			t.Fatalf("the runner is %s, %v", r.State, err)
		}
		p.must("renew", func() error { _, err := agent.prove(s.Renewal, "agent"); return err })
		if r, err := p.Runner(p.ctx, org, "local"); err != nil || r.State != "online" {
			t.Errorf("after the renewal the runner is %s, %v", r.State, err)
		}
	})
}

// An agent with an AWS role renews its session while the runner trusts the role. A nonce of the
// role's agent is no use to another agent with the same role.
func TestRoleRenewsWhileItIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		prove := roleProof(p)
		first, err := prove(p.NewChallenge(), "task-1", "agent")
		if err != nil {
			t.Fatal(err)
		}
		p.sleep(10 * time.Minute)
		next, err := prove(first.Renewal, "task-1", "agent")
		if err != nil || next.ID != first.ID || !next.Expires.After(first.Expires) {
			t.Fatalf("the renewal gives %+v, %v", next.Session, err)
		}
		_, err = prove(next.Renewal, "task-2", "agent")
		expectCode(t, "the renewal by another task of the role", err, fairlead.CodeSessionRefused)
		r, err := p.Store.Runner(p.ctx, org, "role")
		if err != nil {
			t.Fatal(err)
		}
		changed := *r.V.Trust
		changed.RoleID = "AROAEXAMPLEEXAMPLE999"
		r.V.Trust = &changed
		var tx store.Tx
		tx.PutRunner(r)
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		if _, err = prove(next.Renewal, "task-1", "agent"); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("after the runner's trust changed, the renewal gives %v", err)
		}
	})
}
