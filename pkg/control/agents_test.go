package control_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// keyed is an agent that enrolled with a key.
type keyed struct {
	p      *plane
	key    ed25519.PrivateKey
	runner fairlead.RunnerID
	token  string // the token with which the agent enrolled
}

func (p *plane) keyed(runner string) *keyed {
	p.t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	a := &keyed{p: p, key: key}
	p.must("make an enrolment token", func() (err error) { a.token, _, err = p.CreateEnrolment(p.ctx, me, runner); return })
	p.must("enrol", func() error { r, err := p.Enrol(p.ctx, a.token, pub); a.runner = r.ID; return err })
	return a
}

func (a *keyed) public() ed25519.PublicKey { return a.key.Public().(ed25519.PublicKey) }

func (a *keyed) id() string { return events.KeyID(a.public()) }

// open opens a session with the agent's key. Each process that has the key can do this.
func (a *keyed) open(instance string) (s control.Session, bearer string, err error) {
	err = a.p.try(func() error {
		opened, err := a.prove(a.p.NewChallenge(), instance)
		s, bearer = opened.Session, opened.Bearer
		return err
	})
	return s, bearer, err
}

// prove requests a session with a nonce of a challenge or of a renewal.
func (a *keyed) prove(nonce, instance string) (control.OpenedSession, error) {
	return a.p.OpenSession(a.p.ctx, control.SessionProof{Runner: a.runner, Nonce: nonce, Statement: []byte(nonce),
		PublicKey: a.public(), Signature: ed25519.Sign(a.key, []byte(nonce)), Instance: instance, Capacity: 4})
}

// works sends a heartbeat with the session's token. It returns nil if the control plane
// accepts the heartbeat, or the error of the refusal.
func (p *plane) works(bearer string) error {
	return p.try(func() error {
		s, err := p.AuthenticateSession(p.ctx, bearer)
		if err != nil {
			return err
		}
		return p.HeartbeatSession(p.ctx, s, control.Heartbeat{Capacity: 4, Isolation: "landlock"})
	})
}

// stolenKeyStory revokes an agent's key that a thief copied. All sessions of the key end,
// also the sessions of the thief. The key cannot open another session. Other agents are not
// affected.
func stolenKeyStory(p *plane) {
	t := p.t
	stolen, other := p.keyed("local"), p.keyed("local")
	var bearers []string
	for _, instance := range []string{"agent", "thief", "thief-again"} {
		_, bearer, err := stolen.open(instance)
		if err != nil {
			t.Fatal(err)
		}
		bearers = append(bearers, bearer)
		p.sleep(time.Second) // so that the sessions start at different times
	}
	_, othersBearer, err := other.open("other")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(bearers, othersBearer) {
		if err := p.works(b); err != nil {
			t.Fatal(err)
		}
	}
	p.must("revoke", func() error { return p.RevokeAgent(p.ctx, me, "local", stolen.id()) })
	p.must("revoke again", func() error { return p.RevokeAgent(p.ctx, me, "local", stolen.id()) })

	for _, b := range bearers {
		if err := p.works(b); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("a session of the stolen key is still valid: %v", err)
		}
	}
	_, _, err = stolen.open("thief")
	expectCode(t, "another session of the stolen key", err, "session-refused")
	if detail(err) != "revoked" {
		t.Errorf("the refusal has the detail %q", detail(err))
	}
	// The key stays invalid, both with the enrolment token that the agent used and with a
	// new enrolment token.
	_, err = p.Enrol(p.ctx, stolen.token, stolen.public())
	expectCode(t, "the enrolment again", err, "enrolment-refused")
	token, _, err := p.CreateEnrolment(p.ctx, me, "local")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Enrol(p.ctx, token, stolen.public())
	expectCode(t, "an enrolment with a new token", err, "enrolment-refused")
	_, _, err = stolen.open("thief")
	expectCode(t, "a session after that", err, "session-refused")

	// The other agent's session stays valid. The refused enrolment did not use its token.
	if err := p.works(othersBearer); err != nil {
		t.Errorf("the other agent: %v", err)
	}
	again, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.must("enrol with another key", func() error { _, err := p.Enrol(p.ctx, token, again); return err })

	var agents []control.Agent
	p.must("list", func() (err error) { agents, err = p.Agents(p.ctx, me, "local"); return })
	state := map[string]string{}
	for _, a := range agents {
		state[a.Key] = "good"
		if !a.Revoked.IsZero() {
			state[a.Key] = "revoked"
		}
		if a.Session != nil {
			state[a.Key] += " " + a.Session.Instance + " " + a.Session.Isolation
		}
	}
	for key, want := range map[string]string{stolen.id(): "revoked thief-again landlock", other.id(): "good other landlock", events.KeyID(again): "good"} {
		if state[key] != want {
			t.Errorf("key %s: %q, want %q", key, state[key], want)
		}
	}
	expectCode(t, "an unknown key", p.RevokeAgent(p.ctx, me, "local", "none"), "agent-not-found")
	expectCode(t, "the agent of another tenant", p.RevokeAgent(p.ctx, control.User{Org: "other"}, "local", other.id()), "runner-not-found")
	_, err = p.Agents(p.ctx, control.User{Org: "other"}, "local")
	expectCode(t, "a list of another tenant's agents", err, "runner-not-found")
}

func TestRevokedKeyIsRefusedOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	stolenKeyStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestRevokedKeyIsRefusedOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	stolenKeyStory(newPlaneAt(t, dynamoTable(t, "agents"), c.now, c.sleep))
}

// caller opens sessions of a runner with one identity. Each process that has the identity
// can do this.
type caller struct {
	open  func(instance string) (bearer string, err error)
	limit int
}

// manySessionsStory opens more sessions of one identity than the limit permits. The
// identity is an agent's key, an AWS role or an OIDC subject. Then sessions end until the
// limit is met, and sessions that send no heartbeats end first.
func manySessionsStory(p *plane, a caller) {
	t := p.t
	other := p.keyed("local")
	_, othersBearer, err := other.open("other")
	if err != nil {
		t.Fatal(err)
	}
	open := func(instance string) string {
		t.Helper()
		bearer, err := a.open(instance)
		if err != nil {
			t.Fatalf("session of %s: %v", instance, err)
		}
		p.sleep(time.Second)
		return bearer
	}
	good := func(bearers ...string) (n int) {
		for _, b := range bearers {
			err := p.try(func() error { _, err := p.AuthenticateSession(p.ctx, b); return err })
			if err == nil {
				n++
			} else if fairlead.KindOf(err) != fairlead.KindUnauthenticated {
				t.Fatal(err)
			}
		}
		return n
	}
	agent := open("agent")
	var bearers []string
	for i := range a.limit + control.MaxSessions {
		bearers = append(bearers, open("thief"))
		if i%4 != 0 {
			continue
		}
		if err := p.works(agent); err != nil {
			t.Fatalf("the session that sends heartbeats ended before those that do not: %v", err)
		}
	}
	if n := good(append(bearers, agent)...); n != a.limit {
		t.Errorf("%d sessions of one identity are open, want %d", n, a.limit)
	}
	if good(bearers[len(bearers)-1]) != 1 || good(bearers[0]) != 0 {
		t.Error("the oldest session is open, or the newest is not")
	}
	if err := p.works(othersBearer); err != nil {
		t.Errorf("the session of another key: %v", err)
	}

	// Sessions that the agent ended and sessions that expired do not count.
	s, err := p.AuthenticateSession(p.ctx, agent)
	if err != nil {
		t.Fatal(err)
	}
	p.must("end a session", func() error { return p.HeartbeatSession(p.ctx, s, control.Heartbeat{Ending: true}) })
	next := open("agent")
	if n := good(bearers...); n != a.limit-1 || good(next) != 1 {
		t.Errorf("%d of %d other sessions are open after a new one took the slot of one that ended", n, a.limit-1)
	}
	p.sleep(control.SessionTTL)
	for range control.MaxSessions {
		if b := open("later"); good(b) != 1 {
			t.Error("a new session is not open after the others expired")
		}
	}
}

// byKey returns a caller that uses one agent's key.
func byKey(p *plane) caller {
	a := p.keyed("local")
	return caller{limit: control.MaxSessions, open: func(instance string) (bearer string, err error) {
		_, bearer, err = a.open(instance)
		return bearer, err
	}}
}

// byToken returns a caller that uses OIDC tokens of one subject. The caller creates a new
// key for each session.
func byToken(p *plane) caller {
	pf := newPlatform(p)
	pf.trusts("local", "cluster", theRunner)
	id := pf.runnerID("local")
	return caller{limit: control.MaxSharedSessions, open: func(string) (bearer string, err error) {
		pf.anotherAgent()
		err = p.try(func() error { _, bearer, err = pf.open(id, pf.token(theRunner)); return err })
		return bearer, err
	}}
}

// byRole returns a caller that uses an AWS role. The caller assumes the role with a
// different session name each time.
func byRole(p *plane) caller {
	n := 0
	prove := roleProof(p)
	return caller{limit: control.MaxSharedSessions, open: func(instance string) (bearer string, err error) {
		n++
		err = p.try(func() error {
			opened, err := prove(p.NewChallenge(), fmt.Sprintf("%s-%d", instance, n), instance)
			bearer = opened.Bearer
			return err
		})
		return bearer, err
	}}
}

// roleProof makes the runner "role" and returns a function that requests a session of it with a
// nonce. The AWS role is assumed with the session name.
func roleProof(p *plane) func(nonce, sessionName, instance string) (control.OpenedSession, error) {
	return roleProofVia(p, func(sts http.RoundTripper) http.RoundTripper { return sts })
}

// roleProofVia is roleProof with another transport to STS.
func roleProofVia(p *plane, via func(http.RoundTripper) http.RoundTripper) func(nonce, sessionName, instance string) (control.OpenedSession, error) {
	const account, role, roleID, host = "123456789012", "shop-runner", "AROAEXAMPLEEXAMPLE123", "fairlead.example"
	sts := ststest.New(p.Now)
	p.AWS = awsiam.NewVerifier(via(handled{sts}), p.Now, awsiam.Options{})
	p.must("make the runner", func() error {
		return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "role", Storage: "http", AWSRole: "arn:aws:iam::" + account + ":role/" + role, AWSRoleID: roleID})
	})
	r, err := p.Runner(p.ctx, org, "role")
	if err != nil {
		p.t.Fatal(err)
	}
	endpoint, ok := awsiam.EndpointOf("eu-central-1", false)
	if !ok {
		p.t.Fatal("eu-central-1 has no endpoint")
	}
	return func(nonce, sessionName, instance string) (control.OpenedSession, error) {
		creds := sts.AssumeRole("aws", account, role, roleID, sessionName)
		in := awsiam.Challenge{Nonce: nonce, Audience: host, Statement: []byte(nonce)}
		proof, err := sign.Proof(p.ctx, credentials.StaticCredentialsProvider{Value: creds}, endpoint, in, p.Now())
		if err != nil {
			return control.OpenedSession{}, err
		}
		return p.OpenSession(p.ctx, control.SessionProof{Runner: r.ID, Nonce: nonce, Statement: in.Statement, Instance: instance, Capacity: 4,
			AWS: &control.AWSProof{Proof: proof, Audience: host}})
	}
}

func TestSessionsOfAKeyAreBoundedOnSQLite(t *testing.T) { manySessionsOnSQLite(t, byKey) }

func TestSessionsOfAKeyAreBoundedOnDynamoDB(t *testing.T) { manySessionsOnDynamoDB(t, byKey) }

func TestSessionsOfASubjectAreBoundedOnSQLite(t *testing.T) { manySessionsOnSQLite(t, byToken) }

func TestSessionsOfASubjectAreBoundedOnDynamoDB(t *testing.T) {
	manySessionsOnDynamoDB(t, byToken)
}

func TestSessionsOfARoleAreBoundedOnSQLite(t *testing.T) { manySessionsOnSQLite(t, byRole) }

func manySessionsOnSQLite(t *testing.T, who func(*plane) caller) {
	t.Parallel()
	c := newClock()
	p := newPlaneAt(t, sqliteTable(t), c.now, c.sleep)
	manySessionsStory(p, who(p))
}

func manySessionsOnDynamoDB(t *testing.T, who func(*plane) caller) {
	t.Parallel()
	c := newClock()
	p := newPlaneAt(t, dynamoTable(t, "sessions"), c.now, c.sleep)
	manySessionsStory(p, who(p))
}

// The agents of a fleet have one OIDC subject, so their sessions are counted together.
// After a power cut, all agents open their sessions at once.
func TestFleetOfOneSubjectOpensSessionsAtOnce(t *testing.T) {
	t.Parallel()
	c := newClock()
	p := newPlaneAt(t, sqliteTable(t), c.now, c.sleep)
	pf := newPlatform(p)
	pf.trusts("local", "cluster", theRunner)
	id := pf.runnerID("local")
	const agents = 50
	var all sync.WaitGroup
	bearers := make([]string, agents)
	for i := range agents {
		mine := *pf
		mine.anotherAgent()
		all.Go(func() {
			err := p.try(func() (err error) { _, bearers[i], err = mine.open(id, mine.token(theRunner)); return err })
			if err != nil {
				t.Errorf("agent %d: %v", i, err)
			}
		})
	}
	all.Wait()
	for i, b := range bearers {
		if err := p.works(b); err != nil {
			t.Errorf("agent %d has no session: %v", i, err)
		}
	}
}

// If an agent's key is revoked while its claim waits for a job, the claim gets no job.
func TestWaitingClaimOfRevokedKeyGetsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		a := p.keyed("local")
		s, _, err := a.open("thief")
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() { _, err := p.Claim(p.ctx, s, 20*time.Second); waiting <- err }()
		synctest.Wait()
		p.must("revoke", func() error { return p.RevokeAgent(p.ctx, me, "local", a.id()) })
		p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
		if err := <-waiting; fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("the claim that waited: %v", err)
		}
	})
}

// A runner that runs jobs of several installs as processes of the same user has the
// situation runner-mixed.
func TestRunnerWithMixedInstallsHasAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		beat := func(isolation string) {
			p.must("send a heartbeat", func() error {
				return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4, Isolation: isolation})
			})
		}
		mixed := func() bool {
			r, err := p.Runner(p.ctx, org, "local")
			if err != nil {
				t.Fatal(err)
			}
			situations, err := p.RunnerSituations(p.ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			kinds, _ := situationText(situations)
			return slices.Contains(kinds, diagnosis.RunnerMixed)
		}
		for n, name := range []string{"one", "two"} {
			p.install(name)
			p.deploy(name, control.NewDeployment{}, "deploy-"+name)
			for isolation, warns := range map[string]bool{"landlock": n == 1, "none": n == 1, "container": false, "": false} {
				if beat(isolation); mixed() != warns {
					t.Errorf("with %d installs and isolation %q, the runner has the warning: %v", n+1, isolation, !warns)
				}
			}
		}
	})
}
