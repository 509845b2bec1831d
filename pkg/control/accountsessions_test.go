package control_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// handled is an HTTP transport that calls a handler without a network. The reason is that
// the time of a bubble stops while a test waits for the network.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// platform is a plane with an OIDC issuer. The agents of the plane use tokens of this
// issuer.
type platform struct {
	*plane
	issuer *oidctest.Issuer
	key    ed25519.PrivateKey // the key of the current agent
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

func (p *platform) rule(sub string) control.TokenRule {
	return control.TokenRule{Issuer: p.issuer.URL, Audience: ours, Claims: map[string]string{"sub": sub}}
}

// owner is an owner of the org.
var owner = access.Principal{Kind: access.Token, ID: "tok_1", Name: "admin", Org: org, Bindings: access.OwnerOf()}

// account creates a service account whose tokens have the subject.
func (p *platform) account(name, sub, key string) error {
	_, err := p.CreateServiceAccount(p.ctx, owner, control.NewServiceAccount{Name: name, AccountSettings: control.AccountSettings{Rule: p.rule(sub)}}, key)
	return err
}

// trusts makes a service account whose tokens have the subject, and assigns it to the runner. Its name is RUNNER-NAME.
func (p *platform) trusts(runner, name, sub string) {
	p.t.Helper()
	p.must("create a service account", func() error { return p.account(runner+"-"+name, sub, "create-"+runner+"-"+name) })
	p.must("assign it", func() error { return p.assigns(runner, runner+"-"+name) })
}

func (p *platform) assigns(runner, account string) error {
	return errOf(p.AssignServiceAccount(p.ctx, me, runner, account))
}

// changes gives the service account another rule.
func (p *platform) changes(account, sub string) error {
	return errOf(p.UpdateServiceAccount(p.ctx, owner, account, control.AccountSettings{Rule: p.rule(sub)}))
}

// removes takes the service account from the runner.
func (p *platform) removes(runner, account string) error {
	return p.UnassignServiceAccount(p.ctx, me, runner, account)
}

func (p *platform) token(sub string) string { return p.issuer.Token(ours, map[string]any{"sub": sub}) }

// open opens a session of the runner with the token, and with the key of the current agent.
func (p *platform) open(id fairlead.RunnerID, token string) (s control.Session, bearer string, err error) {
	nonce := p.NewChallenge()
	proof := control.SessionProof{Runner: id, Nonce: nonce, Statement: []byte(nonce + token), PublicKey: p.key.Public().(ed25519.PublicKey),
		Signature: ed25519.Sign(p.key, []byte(nonce+token)), Instance: "pod-0", Capacity: 4, OIDC: &control.OIDCProof{Token: token, Binding: bound}}
	opened, err := p.OpenSession(p.ctx, proof)
	return opened.Session, opened.Bearer, err
}

func (p *platform) runnerID(name string) fairlead.RunnerID {
	p.t.Helper()
	var id fairlead.RunnerID
	p.must("read the runner", func() error { r, err := p.Control.Runner(p.ctx, org, name); id = r.ID; return err })
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

// beat authenticates the session and sends a heartbeat.
func (p *platform) beat(bearer string) error {
	s, err := p.AuthenticateSession(p.ctx, bearer)
	if err != nil {
		return err
	}
	return p.HeartbeatSession(p.ctx, s, control.Heartbeat{Capacity: 4})
}

// stepOf claims a job with the session and runs its step. It tries to claim three times
// with pauses, because a failed claim hides the wake-up for a while.
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

// accountStory creates, assigns, uses, updates and takes away a service account.
func accountStory(p *platform) {
	t := p.t
	p.runner("acme", fileOf("", "http"))
	p.trusts("acme", "cluster", theRunner)
	token := p.token(theRunner)
	s, bearer := p.opened("acme", token)
	if s.ServiceAccount != "acme-cluster" || s.Trust != "" || s.Subject != theRunner || s.Instance != "pod-0" || s.Runner != p.runnerID("acme") || s.Agent != events.KeyID(p.key.Public().(ed25519.PublicKey)) {
		t.Errorf("the session is %+v", s)
	}
	p.must("send a heartbeat", func() error { return p.beat(bearer) })
	p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "acme", "check"); return err })
	p.session = s
	p.stepOf("acme")

	// The same agent can use the token again. Another agent cannot use it.
	p.opened("acme", token)
	holder := p.key
	p.anotherAgent()
	if err := p.try(func() error { _, _, err := p.open(p.runnerID("acme"), token); return err }); detail(err) != "replayed" {
		t.Errorf("another agent with the same token: %v", err)
	}
	// If a token is bound to its request, its use is not recorded.
	p.opened("acme", p.issuer.Token(ours+"#"+bound, map[string]any{"sub": theRunner}))
	p.key = holder

	// If the rule changes, its sessions end. If an update of the account leaves the rule as it is, the
	// sessions stay valid.
	p.must("update it with the same", func() error { return p.changes("acme-cluster", theRunner) })
	p.must("send a heartbeat", func() error { return p.beat(bearer) })
	p.must("update it", func() error { return p.changes("acme-cluster", "system:serviceaccount:fairlead:*") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session of the old rule: %v", err)
	}
	_, bearer = p.opened("acme", token)
	err := p.try(func() error { return p.DeleteServiceAccount(p.ctx, owner, "acme-cluster") })
	expectCode(t, "the deletion of an account that a runner has", err, "service-account-in-use")
	if err != nil && !strings.Contains(err.Error(), "acme") {
		t.Errorf("the refusal does not name the runner: %v", err)
	}
	p.must("send a heartbeat", func() error { return p.beat(bearer) })
	p.must("take it away", func() error { return p.removes("acme", "acme-cluster") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session of the account that was taken away: %v", err)
	}
	expectCode(t, "a session without an account", p.try(func() error { _, _, err := p.open(p.runnerID("acme"), token); return err }), "session-refused")

	// If an account is deleted and created again with the same name, its old sessions stay invalid.
	p.must("delete it", func() error { return p.DeleteServiceAccount(p.ctx, owner, "acme-cluster") })
	p.must("make it again", func() error { return p.account("acme-cluster", theRunner, "again") })
	p.must("assign it again", func() error { return p.assigns("acme", "acme-cluster") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session of the earlier account: %v", err)
	}
	_, bearer = p.opened("acme", token)
	p.must("delete the runner", func() error { return p.DeleteRunner(p.ctx, me, "acme") })
	if err := p.try(func() error { return p.beat(bearer) }); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("a session of the deleted runner: %v", err)
	}
	p.must("delete the account, which no runner has", func() error { return p.DeleteServiceAccount(p.ctx, owner, "acme-cluster") })
}

func TestServiceAccountOpensSessionsOfItsRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { accountStory(newPlatform(newPlane(t, enginetest.Memory()))) })
}

func TestServiceAccountsUnderEveryFault(t *testing.T) {
	everyFault{least: 15}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		p := newPlatform(newPlane(t, e))
		*armed = true
		accountStory(p)
	})
}

// A revocation takes effect within one heartbeat interval. Later requests of the agent are
// refused, and its waiting claim gets no job. A paused or disabled runner keeps its
// sessions, and gets no new jobs.
func TestRevocationTakesEffectWithinOneHeartbeat(t *testing.T) {
	for name, row := range map[string]struct {
		revoke func(p *platform, s control.Session) error
		stays  bool // if true, the session stays valid for its running jobs, but gets no new jobs
	}{
		"the account is taken from the runner": {func(p *platform, _ control.Session) error { return p.removes("local", "local-cluster") }, false},
		"the account has another rule": {func(p *platform, _ control.Session) error {
			return p.changes("local-cluster", "system:serviceaccount:fairlead:other")
		}, false},
		"the account is created again": {func(p *platform, _ control.Session) error {
			return errors.Join(p.removes("local", "local-cluster"), p.DeleteServiceAccount(p.ctx, owner, "local-cluster"),
				p.account("local-cluster", theRunner, ""), p.assigns("local", "local-cluster"))
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
				p.must("send a heartbeat", func() error { return p.beat(bearer) })
				p.sleep(p.HeartbeatEvery() / 2)
				p.must("revoke", func() error { return row.revoke(p, s) })
				at := p.Now()
				if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil && name != "the runner is deleted" {
					t.Fatal(err)
				}
				if err := <-waiting; err == nil {
					t.Error("the waiting claim got the job")
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
						t.Errorf("the agent claimed %s", c.ID)
					}
				}
			})
		})
	}
}

// If a revoked agent received a wake-up, the next agent gets this wake-up at once.
func TestNextAgentGetsWakeUpOfARevokedAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		s, _ := p.opened("local", p.token(theRunner))
		revoked := make(chan error)
		go func() { _, err := p.Claim(p.ctx, s, 20*time.Second); revoked <- err }()
		synctest.Wait()
		p.must("take the account away", func() error { return p.removes("local", "local-cluster") })
		p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
		if err := <-revoked; fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the revoked agent gets %v", err)
		}
		at := p.Now()
		var c control.Claim
		p.must("claim it with another agent", func() (err error) { c, err = p.Claim(p.ctx, p.session, time.Minute); return })
		if d := p.Now().Sub(at); d > time.Second || c.ID == "" {
			t.Errorf("the next agent waited %s", d)
		}
	})
}

// If a session is ended while its claim waits, the claim gets no job. This is also true for
// the session of a key.
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
			t.Errorf("the ended session gets %v", err)
		}
		p.enrol()
		at := p.Now()
		c, err := p.Claim(p.ctx, p.session, time.Minute)
		if d := p.Now().Sub(at); err != nil || c.ID != asked.ID || d > time.Second {
			t.Errorf("the next agent claimed %s after %s, %v", c.ID, d, err)
		}
	})
}

// A session that was opened with an OIDC token lasts for SessionTTL. The agent can open the
// next session with the same token until the token expires.
func TestSessionOfATokenExpiresAndIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		token := p.issuer.Token(ours, map[string]any{"sub": theRunner, "exp": p.Now().Add(time.Hour).Unix()})
		_, first := p.opened("local", token)
		p.sleep(10 * time.Minute)
		s, second := p.opened("local", token)
		if first == second || !s.Expires.Equal(p.Now().Add(control.SessionTTL).Truncate(time.Millisecond)) {
			t.Errorf("the second session ends at %s", s.Expires)
		}
		p.sleep(5*time.Minute - time.Second)
		p.must("send a heartbeat in the first session", func() error { return p.beat(first) })
		p.sleep(time.Second)
		if err := p.beat(first); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the first session, after %s: %v", control.SessionTTL, err)
		}
		p.must("send a heartbeat in the second session", func() error { return p.beat(second) })
		p.sleep(46 * time.Minute)
		if _, _, err := p.open(p.runnerID("local"), token); detail(err) != "expired" {
			t.Errorf("with an expired token: %v", err)
		}
		p.opened("local", p.token(theRunner)) // the agent opens a session with the next token of the issuer
	})
}

func TestInvalidTokenProofOpensNoSession(t *testing.T) {
	for name, row := range map[string]struct {
		open   func(p *platform) error
		reason string
	}{
		"the runner belongs to another tenant": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			const other = fairlead.OrgID("other")
			p.must("make another tenant's runner", func() error {
				return p.EnsureRunner(p.ctx, other, control.NewRunner{Name: "local", Storage: "local"})
			})
			theirs, err := p.Control.Runner(p.ctx, other, "local")
			if err != nil {
				return err
			}
			_, err = p.CreateServiceAccount(p.ctx, access.Principal{Org: other, Bindings: access.OwnerOf()}, control.NewServiceAccount{Name: "cluster",
				AccountSettings: control.AccountSettings{Rule: p.rule("system:serviceaccount:other:runner")}}, "")
			if _, err2 := p.AssignServiceAccount(p.ctx, control.User{Org: other}, "local", "cluster"); err != nil || err2 != nil {
				return errors.Join(err, err2)
			}
			_, _, err = p.open(theirs.ID, p.token(theRunner))
			return err
		}, "claims"},
		"the runner has no service account": {func(p *platform) error { _, _, err := p.open(p.runnerID("local"), p.token(theRunner)); return err }, "session-refused"},
		"the runner does not exist":         {func(p *platform) error { _, _, err := p.open("run_none", p.token(theRunner)); return err }, "session-refused"},
		"the token is for another runner of the org": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			p.runner("acme", fileOf("", "http"))
			p.trusts("acme", "cluster", "system:serviceaccount:fairlead:acme")
			_, _, err := p.open(p.runnerID("acme"), p.token(theRunner))
			return err
		}, "claims"},
		"the account is taken away while the token is verified": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			var once sync.Once
			p.issuer.Replace(oidctest.KeysPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				once.Do(func() {
					p.must("take the account away", func() error { return p.removes("local", "local-cluster") })
				})
				_, _ = w.Write(p.issuer.KeySet())
			}))
			_, _, err := p.open(p.runnerID("local"), p.token(theRunner))
			return err
		}, "session-refused"},
		"the control plane verifies no tokens": {func(p *platform) error {
			p.trusts("local", "cluster", theRunner)
			p.OIDC = nil
			_, _, err := p.open(p.runnerID("local"), p.token(theRunner))
			return err
		}, "session-refused"},
		"the signature is wrong": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.Signature = ed25519.Sign(p.key, []byte("something else")) })
		}, "session-refused"},
		"the proof has no key": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.PublicKey, proof.Signature = nil, nil })
		}, "session-refused"},
		"the request has two proofs": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.AWS = &control.AWSProof{Audience: "x"} })
		}, "session-refused"},
		"the nonce is not the control plane's": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.Nonce = "fln_x.0.0.x" })
		}, "session-refused"},
		"the binding is missing": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.OIDC.Binding = "" })
		}, "session-refused"},
		"the token is malformed": {func(p *platform) error {
			return p.with(func(proof *control.SessionProof) { proof.OIDC.Token = "a.b.c" })
		}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlatform(newPlane(t, enginetest.Memory()))
				if err := row.open(p); fairlead.CodeOf(err) != "session-refused" || detail(err) != row.reason {
					t.Errorf("%v, with the reason %q; want %q", err, detail(err), row.reason)
				}
			})
		})
	}
}

// with creates a valid proof, lets change edit it, and opens a session with the edited
// proof.
func (p *platform) with(change func(*control.SessionProof)) error {
	p.trusts("local", "cluster", theRunner)
	nonce, token := p.NewChallenge(), p.token(theRunner)
	proof := control.SessionProof{Runner: p.runnerID("local"), Nonce: nonce, Statement: []byte(nonce), PublicKey: p.key.Public().(ed25519.PublicKey),
		Signature: ed25519.Sign(p.key, []byte(nonce)), OIDC: &control.OIDCProof{Token: token, Binding: bound}}
	change(&proof)
	_, err := p.OpenSession(p.ctx, proof)
	return err
}

// A nonce can open only one session, although the rest of the proof is still valid.
func TestNonceOpensOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.trusts("local", "cluster", theRunner)
		nonce, token := p.NewChallenge(), p.issuer.Token(ours+"#"+bound, map[string]any{"sub": theRunner})
		proof := control.SessionProof{Runner: p.runnerID("local"), Nonce: nonce, Statement: []byte(nonce), PublicKey: p.key.Public().(ed25519.PublicKey),
			Signature: ed25519.Sign(p.key, []byte(nonce)), OIDC: &control.OIDCProof{Token: token, Binding: bound}}
		if _, err := p.OpenSession(p.ctx, proof); err != nil {
			t.Fatal(err)
		}
		_, err := p.OpenSession(p.ctx, proof)
		expectCode(t, "the same request again", err, "session-refused")
		p.sleep(2 * time.Minute)
		_, err = p.OpenSession(p.ctx, proof)
		expectCode(t, "the same request later", err, "session-refused")
	})
}

func TestServiceAccountsOfARunnerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		for n := range 2 * oidc.MaxTrusts {
			p.must("create", func() error { return p.account(fmt.Sprintf("t%d", n), theRunner, fmt.Sprint(n)) })
		}
		results := make(chan error)
		for n := range 2 * oidc.MaxTrusts {
			go func() { results <- p.try(func() error { return p.assigns("local", fmt.Sprintf("t%d", n)) }) }()
		}
		made := 0
		for range 2 * oidc.MaxTrusts {
			if err := <-results; err == nil {
				made++
			} else if fairlead.CodeOf(err) != "too-many-service-accounts" {
				t.Error(err)
			}
		}
		r, err := p.Control.Runner(p.ctx, org, "local")
		if made != oidc.MaxTrusts || len(r.ServiceAccounts) != oidc.MaxTrusts || err != nil {
			t.Errorf("%d requests succeeded, the runner has %v, %v", made, r.ServiceAccounts, err)
		}
		p.must("assign again", func() error { return p.assigns("local", r.ServiceAccounts[0]) })
		expectCode(t, "the end of an unknown session", p.EndSession(p.ctx, me, "local", "ses_none"), "session-not-found")
	})
}
