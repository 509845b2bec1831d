package control_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// handled reaches a handler without a network, which a bubble's time would wait
// for.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// platform is a platform whose workloads have tokens, and a control plane that
// asks it for its keys.
type platform struct {
	*plane
	issuer *oidctest.Issuer
	key    ed25519.PrivateKey // of the agent that asks
}

const (
	theRunner = "system:serviceaccount:fairlead:runner"
	ours      = "https://fairlead.example"
	bound     = "LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564"
)

func newPlatform(p *plane) *platform {
	issuer := oidctest.Unserved("https://issuer.example", p.Now)
	p.OIDC = oidc.NewVerifier(handled{issuer}, p.Now, oidc.Rules{})
	pf := &platform{plane: p, issuer: issuer}
	pf.anotherAgent()
	return pf
}

func (p *platform) anotherAgent() {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.key = key
}

func (p *platform) rule(sub string) control.TrustRule {
	return control.TrustRule{Issuer: p.issuer.URL, Audience: ours, Claims: map[string]string{"sub": sub}}
}

func (p *platform) trusts(runner, name, sub string) control.Trust {
	p.t.Helper()
	var out control.Trust
	p.must("create a trust", func() (err error) {
		out, err = p.CreateTrust(p.ctx, me, runner, control.NewTrust{Name: name, Rule: p.rule(sub)}, "create-"+runner+"-"+name)
		return
	})
	return out
}

func (p *platform) token(sub string) string { return p.issuer.Token(ours, map[string]any{"sub": sub}) }

// open opens a session of a runner by a token, as an agent does: again with the
// same nonce when the answer is unclear.
func (p *platform) open(id fairlead.RunnerID, token string) (s control.Session, bearer string, err error) {
	nonce := p.NewChallenge()
	proof := control.SessionProof{Runner: id, Nonce: nonce, Statement: []byte(nonce + token), PublicKey: p.key.Public().(ed25519.PublicKey),
		Signature: ed25519.Sign(p.key, []byte(nonce+token)), Instance: "pod-0", Capacity: 4, OIDC: &control.OIDCProof{Token: token, Binding: bound}}
	s, bearer, err = p.OpenSession(p.ctx, proof)
	return s, bearer, err
}

func (p *platform) runnerID(name string) fairlead.RunnerID {
	p.t.Helper()
	var id fairlead.RunnerID
	p.must("look at the runner", func() error { r, err := p.Control.Runner(p.ctx, org, name); id = r.ID; return err })
	return id
}

func (p *platform) opened(runner, token string) (control.Session, string) {
	p.t.Helper()
	id := p.runnerID(runner)
	var s control.Session
	var bearer string
	p.must("open a session", func() (err error) { s, bearer, err = p.open(id, token); return })
	return s, bearer
}

func detail(err error) string {
	if e, ok := errors.AsType[*fairlead.Error](err); ok && e.Details != nil {
		return e.Details["reason"]
	}
	return string(fairlead.CodeOf(err))
}

var me = control.User{Org: org}

// beat says how an agent is, as one request of it.
func (p *platform) beat(bearer string) error {
	s, err := p.AuthenticateSession(p.ctx, bearer)
	if err != nil {
		return err
	}
	return p.HeartbeatSession(p.ctx, s, control.Heartbeat{Capacity: 4})
}

// stepOf claims a job by the session and does its step. A claim that failed has
// hidden the wake-up for a while.
func (p *platform) stepOf(runner string) {
	p.t.Helper()
	var c control.Claim
	err := control.ErrNoWork
	for range 3 {
		if !errors.Is(err, control.ErrNoWork) {
			break
		}
		if err = p.try(func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return }); err != nil {
			p.sleep(time.Minute)
		}
	}
	if err != nil {
		p.t.Fatalf("claim a job of runner %s: %v", runner, err)
	}
	p.step(c)
}

// trustStory tells from a trust to its end.
func trustStory(p *platform) {
	t := p.t
	p.runner("acme", fileOf("", "http"))
	p.trusts("acme", "cluster", theRunner)
	token := p.token(theRunner)
	s, bearer := p.opened("acme", token)
	if s.Trust != "cluster" || s.Subject != theRunner || s.Instance != "pod-0" || s.Runner != p.runnerID("acme") || s.Agent != events.KeyID(p.key.Public().(ed25519.PublicKey)) {
		t.Errorf("the session is %+v", s)
	}
	p.must("say how it is", func() error { return p.beat(bearer) })
	p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "acme", "check"); return err })
	p.session = s
	p.stepOf("acme")

	// The token is good again for the same agent, and for no other.
	p.opened("acme", token)
	holder := p.key
	p.anotherAgent()
	if err := p.try(func() error { _, _, err := p.open(p.runnerID("acme"), token); return err }); detail(err) != "replayed" {
		t.Errorf("another agent, by the same token: %v", err)
	}
	// One that is bound to its request is not kept.
	p.opened("acme", p.issuer.Token(ours+"#"+bound, map[string]any{"sub": theRunner}))
	p.key = holder

	// What changes ends its sessions; what does not, does not.
	p.must("update it with the same", func() error {
		_, err := p.UpdateTrust(p.ctx, me, "acme", control.NewTrust{Name: "cluster", Rule: p.rule(theRunner)})
		return err
	})
	p.must("say how it is", func() error { return p.beat(bearer) })
	p.must("update it", func() error {
		_, err := p.UpdateTrust(p.ctx, me, "acme", control.NewTrust{Name: "cluster", Rule: p.rule("system:serviceaccount:fairlead:*")})
		return err
	})
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session by what the trust was: %v", err)
	}
	_, bearer = p.opened("acme", token)
	p.must("delete it", func() error { return p.DeleteTrust(p.ctx, me, "acme", "cluster") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session without its trust: %v", err)
	}
	expectCode(t, "a session without a trust", p.try(func() error { _, _, err := p.open(p.runnerID("acme"), token); return err }), "session-refused")

	// A trust of the same name is another trust.
	p.must("make it again", func() error {
		_, err := p.CreateTrust(p.ctx, me, "acme", control.NewTrust{Name: "cluster", Rule: p.rule(theRunner)}, "again")
		return err
	})
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session of the trust before: %v", err)
	}
	_, bearer = p.opened("acme", token)
	id := p.runnerID("acme")
	p.must("delete the runner", func() error { return p.DeleteRunner(p.ctx, me, "acme") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session without its runner: %v", err)
	}
	var left []store.Stored[store.Trust]
	p.must("look for trusts", func() (err error) { left, err = p.Store.Trusts(p.ctx, id); return })
	if len(left) > 0 {
		t.Errorf("trusts of a deleted runner: %+v", left)
	}
}

func TestATrustFromItsMakingToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { trustStory(newPlatform(newPlane(t, enginetest.Memory()))) })
}

func TestTrustsUnderEveryFaultAtEveryPlace(t *testing.T) {
	everyFault{least: 15}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		p := newPlatform(newPlane(t, e))
		*armed = true
		trustStory(p)
	})
}

// Whatever takes an agent's standing away, it has no effect after one heartbeat
// any more: what it asks then is refused, and a claim that waits gets nothing.
func TestRevocationTakesEffectWithinOneHeartbeat(t *testing.T) {
	for name, row := range map[string]struct {
		revoke func(p *platform, s control.Session) error
		stays  bool // known, as it ends what it has; it gets no more work
	}{
		"the trust is removed": {func(p *platform, _ control.Session) error { return p.DeleteTrust(p.ctx, me, "local", "cluster") }, false},
		"the trust says something else": {func(p *platform, _ control.Session) error {
			_, err := p.UpdateTrust(p.ctx, me, "local", control.NewTrust{Name: "cluster", Rule: p.rule("system:serviceaccount:fairlead:other")})
			return err
		}, false},
		"the trust is made again": {func(p *platform, _ control.Session) error {
			_, err := p.CreateTrust(p.ctx, me, "local", control.NewTrust{Name: "cluster", Rule: p.rule(theRunner)}, "")
			return errors.Join(p.DeleteTrust(p.ctx, me, "local", "cluster"), ignore(err))
		}, false},
		"the session is ended":  {func(p *platform, s control.Session) error { return p.EndSession(p.ctx, me, "local", s.ID) }, false},
		"the runner is deleted": {func(p *platform, _ control.Session) error { return p.DeleteRunner(p.ctx, me, "local") }, false},
		"the runner is paused": {func(p *platform, _ control.Session) error {
			_, err := p.SetRunnerMode(p.ctx, me, "local", fairlead.ModePaused)
			return err
		}, true},
		"the runner is disabled": {func(p *platform, _ control.Session) error {
			_, err := p.SetRunnerMode(p.ctx, me, "local", fairlead.ModeDisabled)
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlatform(newPlane(t, enginetest.Memory()))
				p.trusts("local", "cluster", theRunner)
				s, bearer := p.opened("local", p.token(theRunner))
				waiting := make(chan error)
				go func() { _, err := p.Claim(p.ctx, s, 20*time.Second); waiting <- err }()
				p.must("say how it is", func() error { return p.beat(bearer) })
				p.sleep(p.HeartbeatEvery() / 2)
				p.must("revoke", func() error { return row.revoke(p, s) })
				at := p.Now()
				if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil && name != "the runner is deleted" {
					t.Fatal(err)
				}
				if err := <-waiting; err == nil {
					t.Error("a claim that waited got the job")
				}
				if d := p.Now().Sub(at); d > p.HeartbeatEvery() {
					t.Errorf("the claim ended after %s", d)
				}
				p.sleep(max(0, p.HeartbeatEvery()-p.Now().Sub(at)))
				err := p.beat(bearer)
				if row.stays != (err == nil) || err != nil && fairlead.KindOf(err) != fairlead.KindUnauthenticated {
					t.Errorf("the next heartbeat: %v", err)
				}
				if s, err := p.AuthenticateSession(p.ctx, bearer); err == nil {
					if c, err := p.Claim(p.ctx, s, 0); err == nil {
						t.Errorf("it gets %s", c.ID)
					}
				}
			})
		})
	}
}

func ignore(error) error { return nil }

// What a revoked agent had received is the next agent's at once.
func TestAWakeUpThatARevokedAgentReceivedIsTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		s, _ := p.opened("local", p.token(theRunner))
		revoked := make(chan error)
		go func() { _, err := p.Claim(p.ctx, s, 20*time.Second); revoked <- err }()
		synctest.Wait()
		p.must("delete the trust", func() error { return p.DeleteTrust(p.ctx, me, "local", "cluster") })
		p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
		if err := <-revoked; fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the revoked agent hears %v", err)
		}
		at := p.Now()
		var c control.Claim
		p.must("claim it by another agent", func() (err error) { c, err = p.Claim(p.ctx, p.session, time.Minute); return })
		if d := p.Now().Sub(at); d > time.Second || c.ID == "" {
			t.Errorf("the next agent waited %s", d)
		}
	})
}

// TestWaitingClaimOfEndedSessionGetsNoJob: only of sessions by OIDC
// tokens was it looked whether they had been ended while their claim waited.
func TestWaitingClaimOfEndedSessionGetsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		ended := p.session
		answered := make(chan error)
		go func() { answered <- errOf(p.Claim(p.ctx, ended, 20*time.Second)) }()
		synctest.Wait()
		p.must("end the session", func() error { return p.EndSession(p.ctx, me, "local", ended.ID) })
		asked, err := p.CheckRunner(p.ctx, me, "local", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := <-answered; fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the ended session hears %v", err)
		}
		p.enrol()
		at := p.Now()
		c, err := p.Claim(p.ctx, p.session, time.Minute)
		if d := p.Now().Sub(at); err != nil || c.ID != asked.ID || d > time.Second {
			t.Errorf("the next agent has %s after %s, %v", c.ID, d, err)
		}
	})
}

// A session is of the runner and the agent that opened it, for a quarter of an
// hour; then there is another.
func TestASessionByATokenEndsAndIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		token := p.issuer.Token(ours, map[string]any{"sub": theRunner, "exp": p.Now().Add(time.Hour).Unix()})
		_, first := p.opened("local", token)
		p.sleep(10 * time.Minute)
		s, second := p.opened("local", token)
		if first == second || !s.Expires.Equal(p.Now().Add(control.SessionTTL).Truncate(time.Millisecond)) {
			t.Errorf("the second ends at %s", s.Expires)
		}
		p.sleep(5*time.Minute - time.Second)
		p.must("speak by the first", func() error { return p.beat(first) })
		p.sleep(time.Second)
		if err := p.beat(first); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the first, after %s: %v", control.SessionTTL, err)
		}
		p.must("speak by the second", func() error { return p.beat(second) })
		p.sleep(46 * time.Minute)
		if _, _, err := p.open(p.runnerID("local"), token); detail(err) != "expired" {
			t.Errorf("when the token has ended: %v", err)
		}
		p.opened("local", p.token(theRunner)) // the platform has written the next
	})
}

func TestATokenOpensNoSession(t *testing.T) {
	for consequence, row := range map[string]struct {
		open   func(p *platform) error
		reason string
	}{
		"a token of one tenant's runner opens another tenant's": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			const other = fairlead.OrgID("other")
			p.must("make another tenant's runner", func() error {
				return p.EnsureRunner(p.ctx, other, control.NewRunner{Name: "local", Storage: "local"})
			})
			theirs, err := p.Control.Runner(p.ctx, other, "local")
			if err != nil {
				return err
			}
			_, err = p.CreateTrust(p.ctx, control.User{Org: other}, "local", control.NewTrust{Name: "cluster", Rule: p.rule("system:serviceaccount:other:runner")}, "")
			if err != nil {
				return err
			}
			_, _, err = p.open(theirs.ID, p.token(theRunner))
			return err
		}, "claims"},
		"a token opens a runner without trusts":    {func(p *platform) error { _, _, err := p.open(p.runnerID("local"), p.token(theRunner)); return err }, "session-refused"},
		"a token opens a runner that is not there": {func(p *platform) error { _, _, err := p.open("run_none", p.token(theRunner)); return err }, "session-refused"},
		"a token opens another runner of the same org": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			p.runner("acme", fileOf("", "http"))
			p.trusts("acme", "cluster", "system:serviceaccount:fairlead:acme")
			_, _, err := p.open(p.runnerID("acme"), p.token(theRunner))
			return err
		}, "claims"},
		"a trust that is removed while its issuer is asked is still used": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			var once sync.Once
			p.issuer.Replace(oidctest.KeysPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				once.Do(func() {
					p.must("delete the trust", func() error { return p.DeleteTrust(p.ctx, me, "local", "cluster") })
				})
				_, _ = w.Write(p.issuer.KeySet())
			}))
			_, _, err := p.open(p.runnerID("local"), p.token(theRunner))
			return err
		}, "session-refused"},
		"a control plane that verifies none takes any": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			p.OIDC = nil
			_, _, err := p.open(p.runnerID("local"), p.token(theRunner))
			return err
		}, "session-refused"},
		"the signature is of another key": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.Signature = ed25519.Sign(p.key, []byte("something else")) })
		}, "session-refused"},
		"there is no key": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.PublicKey, proof.Signature = nil, nil })
		}, "session-refused"},
		"there are two proofs": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.AWS = &control.AWSProof{Audience: "x"} })
		}, "session-refused"},
		"a nonce is made up": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.Nonce = "fln_x.0.0.x" })
		}, "session-refused"},
		"the request's host is not known, so anything binds": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.OIDC.Binding = "" })
		}, "session-refused"},
		"the key that an agent enrolled is not enough beside a token": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.OIDC.Token = "a.b.c" })
		}, "malformed"},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlatform(newPlane(t, enginetest.Memory()))
				if err := row.open(p); fairlead.CodeOf(err) != "session-refused" || detail(err) != row.reason {
					t.Errorf("%v, for %q; want %q", err, detail(err), row.reason)
				}
			})
		})
	}
}

// with opens a session by a good proof that change has changed.
func (p *platform) with(change func(*control.SessionProof)) error {
	p.trusts("local", "cluster", theRunner)
	nonce, token := p.NewChallenge(), p.token(theRunner)
	proof := control.SessionProof{Runner: p.runnerID("local"), Nonce: nonce, Statement: []byte(nonce), PublicKey: p.key.Public().(ed25519.PublicKey),
		Signature: ed25519.Sign(p.key, []byte(nonce)), OIDC: &control.OIDCProof{Token: token, Binding: bound}}
	change(&proof)
	_, _, err := p.OpenSession(p.ctx, proof)
	return err
}

// A nonce is good for one session, whatever else is right.
func TestARequestWithATokenIsGoodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		nonce, token := p.NewChallenge(), p.issuer.Token(ours+"#"+bound, map[string]any{"sub": theRunner})
		proof := control.SessionProof{Runner: p.runnerID("local"), Nonce: nonce, Statement: []byte(nonce), PublicKey: p.key.Public().(ed25519.PublicKey),
			Signature: ed25519.Sign(p.key, []byte(nonce)), OIDC: &control.OIDCProof{Token: token, Binding: bound}}
		if _, _, err := p.OpenSession(p.ctx, proof); err != nil {
			t.Fatal(err)
		}
		_, _, err := p.OpenSession(p.ctx, proof)
		expectCode(t, "the same request again", err, "session-refused")
		p.sleep(2 * time.Minute)
		_, _, err = p.OpenSession(p.ctx, proof)
		expectCode(t, "the same request later", err, "session-refused")
	})
}

func TestTrustsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		results := make(chan error)
		for n := range 2 * oidc.MaxTrusts {
			go func() {
				results <- p.try(func() error {
					_, err := p.CreateTrust(p.ctx, me, "local", control.NewTrust{Name: fmt.Sprintf("t%d", n), Rule: p.rule(theRunner)}, fmt.Sprint(n))
					return err
				})
			}()
		}
		made := 0
		for range 2 * oidc.MaxTrusts {
			if err := <-results; err == nil {
				made++
			} else if fairlead.CodeOf(err) != "too-many-trusts" {
				t.Error(err)
			}
		}
		list, err := p.Trusts(p.ctx, me, "local")
		if made != oidc.MaxTrusts || len(list) != oidc.MaxTrusts || err != nil {
			t.Errorf("%d were made, there are %d, %v", made, len(list), err)
		}
		_, err = p.CreateTrust(p.ctx, me, "local", control.NewTrust{Name: list[0].Name, Rule: p.rule(theRunner)}, "x")
		expectCode(t, "a trust of a name that there is", err, "trust-exists")
		_, err = p.CreateTrust(p.ctx, me, "none", control.NewTrust{Name: "x", Rule: p.rule(theRunner)}, "")
		expectCode(t, "a trust of no runner", err, "runner-not-found")
		_, err = p.CreateTrust(p.ctx, me, "local", control.NewTrust{Name: "No Name", Rule: p.rule(theRunner)}, "")
		expectCode(t, "a trust without a name", err, "invalid-name")
		_, err = p.CreateTrust(p.ctx, me, "local", control.NewTrust{Name: "x", Rule: p.rule("*")}, "")
		expectCode(t, "a trust in anybody", err, "invalid-oidc-trust")
		_, err = p.UpdateTrust(p.ctx, me, "local", control.NewTrust{Name: list[0].Name, Rule: p.rule("*")})
		expectCode(t, "a trust that becomes one in anybody", err, "invalid-oidc-trust")
		_, err = p.UpdateTrust(p.ctx, me, "local", control.NewTrust{Name: "none", Rule: p.rule(theRunner)})
		expectCode(t, "an update of nothing", err, "trust-not-found")
		expectCode(t, "a deletion of nothing", p.DeleteTrust(p.ctx, me, "local", "none"), "trust-not-found")
		expectCode(t, "the end of no session", p.EndSession(p.ctx, me, "local", "ses_none"), "session-not-found")
		operator := control.User{Org: org, Operator: true}
		if _, err := p.CreateSharedRunner(p.ctx, operator, control.NewRunner{Name: "shared", File: fileOf("", "http")}, ""); err != nil {
			t.Fatal(err)
		}
		_, err = p.CreateTrust(p.ctx, me, "shared", control.NewTrust{Name: "mine", Rule: p.rule(theRunner)}, "")
		expectCode(t, "a tenant's trust of a shared runner, which would serve every tenant", err, "operator-only")
		_, err = p.Trusts(p.ctx, me, "shared")
		expectCode(t, "a tenant's look at whom a shared runner trusts", err, "operator-only")
		expectCode(t, "a tenant's end of a shared runner's session", p.EndSession(p.ctx, me, "shared", "ses_x"), "operator-only")
		if _, err := p.CreateTrust(p.ctx, operator, "shared", control.NewTrust{Name: "ours", Rule: p.rule(theRunner)}, ""); err != nil {
			t.Errorf("the operator's: %v", err)
		}
		_, err = p.Trust(p.ctx, control.User{Org: "other"}, "local", list[0].Name)
		expectCode(t, "another tenant's look", err, "runner-not-found")
		expectCode(t, "another tenant's deletion", p.DeleteTrust(p.ctx, control.User{Org: "other"}, "local", list[0].Name), "runner-not-found")
	})
}

// The same story ends the same on the engines that are shipped.
func TestATrustOnSQLite(t *testing.T) {
	t.Parallel()
	e := sqliteTable(t)
	c := newClock()
	trustStory(newPlatform(newPlaneAt(t, e, c.now, c.sleep)))
}

func TestATrustOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	trustStory(newPlatform(newPlaneAt(t, dynamoTable(t, "trusts"), c.now, c.sleep)))
}
