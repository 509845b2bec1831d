package api_test

import (
	"crypto/ed25519"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
)

// cast is a plane with tokens of every kind, and two jobs of two installs: one
// claimed, one running.
type cast struct {
	*plane
	sessionToken string
	claimed      wire.Claim
	running      running
	deployment   string
	warm         wire.WarmStep
	tokens       map[string]string
}

func newCast(t *testing.T) *cast {
	t.Helper()
	c := &cast{plane: newPlane(t)}
	c.publish()
	c.install("acme")
	c.install("other")
	c.deployment = c.deploy("acme").ID
	c.sessionToken = c.session("local")
	c.running = c.start(c.claim(c.sessionToken))
	c.deploy("other")
	for c.claimed.Install != "other" {
		c.claimed = c.claim(c.sessionToken)
	}
	enrolment := call[wire.Enrolment](c.plane, "POST", "/v1/runners/local/enrolments", c.api, nil).Token
	expired := time.Now().Add(-time.Second)
	forged := identity.NewMinter([]byte(strings.Repeat("another key ", 4)))
	job := c.running.claim.Job
	c.warm = c.ahead()
	c.tokens = map[string]string{
		"no token":        "",
		"garbage":         "garbage",
		"dots":            "...",
		"api token":       c.api,
		"unknown api":     identity.NewToken(identity.PrefixAPI),
		"session":         c.sessionToken,
		"expired session": c.minter.Mint(identity.Claims{Purpose: identity.Session, Subject: "run_x/ses_y", Expires: expired}),
		"unknown session": c.minter.Mint(identity.Claims{Purpose: identity.Session, Subject: "run_x/ses_y", Expires: time.Now().Add(time.Hour)}),
		"launch":          c.claimed.LaunchToken,
		"warm":            c.warm.Token,
		"lease":           c.running.lease,
		"state":           c.running.state, // a tool has it: it must open nothing but the state
		"expired lease":   c.minter.Mint(identity.Claims{Purpose: identity.Lease, Subject: job, Epoch: 1, Expires: expired}),
		"expired launch":  c.minter.Mint(identity.Claims{Purpose: identity.Launch, Subject: c.claimed.Job, Epoch: 1, Expires: expired}),
		"forged lease":    forged.Mint(identity.Claims{Purpose: identity.Lease, Subject: job, Epoch: 1}),
		"lease of no job": c.minter.Mint(identity.Claims{Purpose: identity.Lease, Subject: "job_unknown", Epoch: 1}),
		"enrolment":       enrolment,
		"nonce":           c.NewChallenge(),
		"cut short":       c.running.lease[:len(c.running.lease)-2],
		"huge":            strings.Repeat("x", 8<<10),
	}
	return c
}

// path fills the parameters of a path with names and IDs of existing objects.
func (c *cast) path(path, scheme string) string {
	job := c.running.claim.Job
	if scheme == "launchToken" {
		job = c.claimed.Job
	}
	install := "acme"
	if scheme == "stateLease" {
		install = string(c.running.spec.Install)
	}
	return strings.NewReplacer("{app}", "shop", "{install}", install, "{component}", c.running.claim.Component, "{deployment}", c.deployment,
		"{job}", job, "{runner}", "local", "{warm}", c.warm.ID, "{digest}", strings.Repeat("0", 64), "{part}", "0").Replace(path)
}

// token returns the right token of the security scheme, in the form that send accepts.
func (c *cast) token(scheme string) string {
	switch scheme {
	case "apiToken":
		return c.api
	case "sessionToken":
		return c.sessionToken
	case "warmToken":
		return c.tokens["warm"]
	case "launchToken":
		return c.claimed.LaunchToken
	case "leaseToken":
		return c.running.lease
	case "stateLease":
		return "basic:" + c.running.state
	}
	return ""
}

// ahead returns a warm step of the cast's agent.
func (c *cast) ahead() wire.WarmStep {
	return call[wire.StartedAhead](c.plane, "POST", "/runner/v1/warm-steps", c.sessionToken, wire.AheadRequest{First: 1, Most: 1}).WarmSteps[0]
}

// untouched is a body that the handler must not read.
type untouched struct{ read bool }

func (u *untouched) Read([]byte) (int, error) {
	u.read = true
	return 0, errors.New("the body was read")
}

// The test sends every wrong token to every route that needs a token.
func TestOnlyTheRightTokenAuthenticates(t *testing.T) {
	c := newCast(t)
	right := map[string]string{"apiToken": "api token", "sessionToken": "session", "warmToken": "warm", "launchToken": "launch", "leaseToken": "lease", "stateLease": "state"}
	tried := 0
	eachOperation(t, func(_ document, method, path string, op operation) {
		scheme := op.scheme()
		if scheme == "" {
			return
		}
		for name, token := range sorted(c.tokens) {
			if name == right[scheme] || scheme == "stateLease" && (name == "lease" || name == "lease of no job") {
				continue // steps of older releases give the tool the lease token; TestJobTokenIsRefusedForOtherJobs covers the other
			}
			tried++
			auth := token
			if scheme == "stateLease" {
				auth = "basic:" + token
			}
			body := &untouched{}
			req, err := request(t.Context(), method, c.path(path, scheme), auth, io.Reader(body))
			if err != nil {
				t.Fatal(err)
			}
			rec := httptest.NewRecorder()
			c.handler.ServeHTTP(rec, req)
			res := result{rec.Result(), rec.Body.Bytes()}
			p := res.problem(t)
			if !slices.Contains([]int{401, 403, 404}, res.StatusCode) {
				t.Errorf("%s with %s: %d %s", op.OperationID, name, res.StatusCode, short(res.body))
			}
			if res.StatusCode == 401 && res.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s: the 401 has no header WWW-Authenticate", op.OperationID, name)
			}
			if body.read {
				t.Errorf("%s with %s: the handler read the body before the refusal", op.OperationID, name)
			}
			if token != "" && len(token) > 8 && strings.Contains(string(res.body), token) {
				t.Errorf("%s with %s: the answer repeats the token", op.OperationID, name)
			}
			if !slices.Contains(op.Problems, strings.TrimPrefix(p.Type, wire.ProblemType)) {
				t.Errorf("%s with %s: the problem %s is not documented", op.OperationID, name, p.Type)
			}
		}
	})
	if tried < 500 {
		t.Errorf("the test tried only %d combinations", tried)
	}
}

func TestOnlyTheDocumentedSchemeIsAccepted(t *testing.T) {
	c := newCast(t)
	for header, want := range map[string]int{
		"Bearer " + c.api:                       200,
		"bearer " + c.api:                       200,
		"BEARER  " + c.api:                      200,
		c.api:                                   401,
		"Token " + c.api:                        401,
		basic(c.api):                            401,
		"Bearer":                                401,
		"Bearer ":                               401,
		"Bearer " + c.api + ", Bearer " + c.api: 401,
		"Bearer " + strings.ToUpper(c.api):      401,
	} {
		if res := c.send("GET", "/v1/apps", "", nil, "Authorization", header); res.StatusCode != want {
			t.Errorf("Authorization header of %d bytes: status %d, want %d", len(header), res.StatusCode, want)
		}
	}
}

func TestJobTokenIsRefusedForOtherJobs(t *testing.T) {
	c := newCast(t)
	another := c.ahead() // of another warm step
	other := c.start(c.claimed)
	mine, theirs := c.running.claim.Job, other.claim.Job
	for _, test := range []struct {
		consequence, method, path, token, code string
		body                                   any
	}{
		{"a step cannot write into another's log", "PUT", "/runner/v1/jobs/" + theirs + "/log?offset=0", c.running.lease, "other-job", []byte("x")},
		{"a step cannot finish another's job", "POST", "/runner/v1/jobs/" + theirs + "/finish", c.running.lease, "other-job", "{}"},
		{"a step cannot keep another's lease alive", "POST", "/runner/v1/jobs/" + theirs + "/heartbeat", c.running.lease, "other-job", "{}"},
		{"a step cannot read another's plan", "GET", "/runner/v1/jobs/" + theirs + "/plan", c.running.lease, "other-job", nil},
		{"a launch token starts no other job", "POST", "/runner/v1/jobs/" + mine + "/start", c.claimed.LaunchToken, "other-job", "{}"},
		{"a warm token gets no other step's job", "POST", "/runner/v1/warm-steps/" + another.ID + "/job", c.tokens["warm"], "other-job", wire.AwaitRequest{StepID: "another-step"}},
		{"a launch token is valid for one step only", "POST", "/runner/v1/jobs/" + theirs + "/start", c.claimed.LaunchToken, "launch-token-used", wire.StartRequest{StepID: "another-step"}},
		{"a step cannot read the state of another install", "GET", other.stateURL(), "basic:" + c.running.lease, "other-state", nil},
		{"a step cannot lock the state of another install", "PUT", other.stateURL() + "/lock", "basic:" + c.running.lease, "other-state", `{"ID":"x"}`},
		{"a step cannot write the state of another component", "POST", "/runner/v1/state/acme/elsewhere?ID=x", "basic:" + c.running.lease, "other-state", "{}"},
		{"a tool cannot read the state of another install", "GET", other.stateURL(), "basic:" + c.running.state, "other-state", nil},
		{"a lease token of an unknown job reads no state", "GET", other.stateURL(), "basic:" + c.tokens["lease of no job"], "job-not-found", nil},
	} {
		t.Run(test.consequence, func(t *testing.T) {
			c.t = t
			if got := c.send(test.method, test.path, test.token, test.body).code(t); got != test.code {
				t.Errorf("refused with %s, want %s", got, test.code)
			}
		})
	}
}

func TestSessionIsRefusedForOtherRunnersJobs(t *testing.T) {
	c := newCast(t)
	call[wire.Runner](c.plane, "POST", "/v1/runners", c.api, wire.CreateRunnerRequest{Name: "elsewhere"})
	stranger := c.session("elsewhere")
	for _, path := range []string{"/release", "/died"} {
		body := `{"epoch":1}`
		if path == "/died" {
			body = `{"epoch":1,"reason":"killed"}`
		}
		if got := c.send("POST", "/runner/v1/jobs/"+c.claimed.Job+path, stranger, body).code(t); got != "job-not-found" {
			t.Errorf("%s of another runner's job is refused with %s", path, got)
		}
	}
	if res := c.send("POST", "/runner/v1/claims", stranger, wire.ClaimRequest{}); res.StatusCode != 204 || len(res.body) > 0 {
		t.Errorf("claim by the other runner: %d %s", res.StatusCode, res.body)
	}
	call[wire.SessionStatus](c.plane, "POST", "/runner/v1/session/heartbeat", stranger, `{"capacity":1,"running":[],"draining":false,"ending":true}`)
	if got := c.send("POST", "/runner/v1/claims", stranger, wire.ClaimRequest{}).code(t); got != "unauthenticated" {
		t.Errorf("an ended session is refused with %s", got)
	}
}

func TestIdentityNeedsAProof(t *testing.T) {
	c := newCast(t)
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	token := func(k string) any {
		return map[string]any{"token": c.tokens[k], "public_key": []byte(pub)}
	}
	for name := range c.tokens {
		if name == "enrolment" || name == "huge" {
			continue
		}
		if got := c.send("POST", "/runner/v1/enrol", "", token(name)).code(t); got != "enrolment-refused" {
			t.Errorf("an enrolment with %s is refused with %s", name, got)
		}
	}
	call[wire.Enrolled](c.plane, "POST", "/runner/v1/enrol", "", token("enrolment"))
	again := map[string]any{"token": c.tokens["enrolment"], "public_key": append(make([]byte, 31), 1)}
	if got := c.send("POST", "/runner/v1/enrol", "", again).code(t); got != "enrolment-refused" {
		t.Errorf("another agent's enrolment with a used token is refused with %s", got)
	}
	runner := string(c.running.spec.Runner)
	ask := func(nonce string, change func(*wire.SessionRequest)) result {
		in := wire.SessionRequest{RunnerID: runner, Nonce: nonce, Instance: "i", PublicKey: pub,
			Signature: ed25519.Sign(key, wire.SessionStatement(nonce, runner, "i"))}
		change(&in)
		return c.send("POST", "/runner/v1/sessions", "", in)
	}
	for name, nonce := range c.tokens {
		if name == "huge" || name == "nonce" {
			continue
		}
		if got := ask(nonce, func(*wire.SessionRequest) {}).code(t); got != "session-refused" {
			t.Errorf("a session with %s as nonce is refused with %s", name, got)
		}
	}
	stranger, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*wire.SessionRequest){
		"a signature of zeros":         func(in *wire.SessionRequest) { in.Signature = make([]byte, 64) },
		"a signature of one byte":      func(in *wire.SessionRequest) { in.Signature = []byte{1} },
		"a signature of another text":  func(in *wire.SessionRequest) { in.Instance = "j" },
		"a key that is not enrolled":   func(in *wire.SessionRequest) { in.PublicKey = stranger },
		"a key of one byte":            func(in *wire.SessionRequest) { in.PublicKey = []byte{1} },
		"another runner":               func(in *wire.SessionRequest) { in.RunnerID = "run_x" },
		"a runner with a key's syntax": func(in *wire.SessionRequest) { in.RunnerID = "run_x#AGENT" },
	} {
		if got := ask(c.NewChallenge(), change).code(t); got != "session-refused" {
			t.Errorf("a session with %s is refused with %s", name, got)
		}
	}
	nonce := c.NewChallenge()
	if res := ask(nonce, func(*wire.SessionRequest) {}); res.StatusCode != 201 {
		t.Errorf("a valid proof is refused: %s", res.body)
	}
	if got := ask(nonce, func(*wire.SessionRequest) {}).code(t); got != "session-refused" {
		t.Errorf("a replayed proof is refused with %s", got)
	}
}
