package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// handled is a RoundTripper that calls a handler without a network.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// host is the control plane's host in the configuration of its agents.
const host = "fairlead.test"

// federated is a plane whose runner "local" trusts an issuer, and an agent.
type federated struct {
	*plane
	issuer *oidctest.Issuer
	runner string
	key    ed25519.PrivateKey
}

func newFederated(t *testing.T, bound bool) *federated {
	t.Helper()
	p := newPlane(t)
	issuer := oidctest.Unserved("https://issuer.example", time.Now)
	p.OIDC = oidc.NewVerifier(handled{issuer}, time.Now, oidc.Rules{})
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	call[wire.ServiceAccount](p, "POST", "/v1/service-accounts", p.api, wire.CreateServiceAccountRequest{Name: "ci", ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: wire.TokenRule{
		Issuer: issuer.URL, Audience: "fairlead", Bound: bound, Claims: map[string]string{"sub": "someone"}}}})
	call[wire.Runner](p, "PUT", "/v1/runners/local/service-accounts/ci", p.api, nil)
	return &federated{plane: p, issuer: issuer, key: key, runner: call[wire.Runner](p, "GET", "/v1/runners/local", p.api, nil).ID}
}

// request returns the request of an honest agent, and the statement that it signed.
func (f *federated) request(bound bool) (in wire.SessionRequest, statement []byte) {
	pub := f.key.Public().(ed25519.PublicKey)
	in = wire.SessionRequest{RunnerID: f.runner, Nonce: f.NewChallenge(), Instance: "pod-0", PublicKey: pub}
	statement = wire.OIDCStatement(in.Nonce, in.RunnerID, host, pub, in.Instance)
	audience := "fairlead"
	if bound {
		audience = wire.OIDCAudience(audience, wire.OIDCBinding(statement))
	}
	in.OIDC = &wire.OIDCProof{Token: f.issuer.Token(audience, nil)}
	in.Signature = ed25519.Sign(f.key, wire.OIDCSigned(statement, in.OIDC.Token))
	return in, statement
}

func (f *federated) ask(in wire.SessionRequest) result {
	return f.send("POST", "/runner/v1/sessions", "", in)
}

// Each row is an attacker's change of an honest agent's request. The signatures of
// the agent and of its issuer are valid for one control plane, one runner, one
// instance and one request.
func TestOIDCRequestIsValidForOnePurposeOnly(t *testing.T) {
	sign := func(f *federated, in *wire.SessionRequest, host string) {
		s := wire.OIDCStatement(in.Nonce, in.RunnerID, host, in.PublicKey, in.Instance)
		in.Signature = ed25519.Sign(f.key, wire.OIDCSigned(s, in.OIDC.Token))
	}
	for consequence, change := range map[string]func(f *federated, in *wire.SessionRequest){
		"a false control plane forwards it":    func(f *federated, in *wire.SessionRequest) { sign(f, in, "evil.example") },
		"another port of the host forwards it": func(f *federated, in *wire.SessionRequest) { sign(f, in, host+":8443") },
		"the instance is replaced":             func(_ *federated, in *wire.SessionRequest) { in.Instance = "pod-1" },
		"the nonce is replaced":                func(f *federated, in *wire.SessionRequest) { in.Nonce = f.NewChallenge() },
		"the token is replaced":                func(f *federated, in *wire.SessionRequest) { in.OIDC.Token = f.issuer.Token("fairlead", nil) },
		"the key is replaced":                  func(f *federated, in *wire.SessionRequest) { in.PublicKey = make([]byte, 32) },
		"the statement of an enrolled key is signed": func(f *federated, in *wire.SessionRequest) {
			in.Signature = ed25519.Sign(f.key, wire.SessionStatement(in.Nonce, in.RunnerID, in.Instance))
		},
		"a statement without the token is signed": func(f *federated, in *wire.SessionRequest) {
			in.Signature = ed25519.Sign(f.key, wire.OIDCStatement(in.Nonce, in.RunnerID, host, in.PublicKey, in.Instance))
		},
		"the signature is missing":    func(_ *federated, in *wire.SessionRequest) { in.Signature = nil },
		"an AWS proof is added":       func(_ *federated, in *wire.SessionRequest) { in.AWSIAM = &wire.AWSIAMProof{} },
		"a line break moves the host": func(_ *federated, in *wire.SessionRequest) { in.Instance = "evil.example\n" + in.Instance },
	} {
		t.Run(consequence, func(t *testing.T) {
			f := newFederated(t, false)
			in, _ := f.request(false)
			change(f, &in)
			if got := f.ask(in).code(t); got != "session-refused" {
				t.Errorf("refused with %s", got)
			}
			in, _ = f.request(false)
			if res := f.ask(in); res.StatusCode != http.StatusCreated {
				t.Errorf("the honest request is refused: %s", res.body)
			}
			if got := f.ask(in).code(t); got != "session-refused" {
				t.Errorf("the replayed honest request is refused with %s", got)
			}
		})
	}
}

// An attacker cannot use a stolen bound token, even before its agent has used it.
func TestBoundTokenIsUselessToOthers(t *testing.T) {
	f := newFederated(t, true)
	honest, _ := f.request(true)
	_, thief, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	stolen := honest
	stolen.PublicKey = thief.Public().(ed25519.PublicKey)
	s := wire.OIDCStatement(stolen.Nonce, stolen.RunnerID, host, stolen.PublicKey, stolen.Instance)
	stolen.Signature = ed25519.Sign(thief, wire.OIDCSigned(s, stolen.OIDC.Token))
	res := f.ask(stolen)
	if got := res.code(t); got != "session-refused" || !strings.Contains(string(res.body), `"reason":"audience"`) {
		t.Errorf("a stolen token: %s", res.body)
	}
	loose, _ := f.request(false)
	if res := f.ask(loose); !strings.Contains(string(res.body), `"reason":"unbound"`) {
		t.Errorf("an unbound token: %s", res.body)
	}
	if res := f.ask(honest); res.StatusCode != http.StatusCreated {
		t.Errorf("the honest agent: %s", res.body)
	}
}

// Deployed agents sign this text, so its format must not change.
func TestSignedStatementFormatIsStable(t *testing.T) {
	s := wire.OIDCStatement("fln_n.0.1.m", "run_1", host, []byte{1, 2, 3}, "pod-0")
	if want := "fairlead-oidc-session-v1\nfln_n.0.1.m\nrun_1\nfairlead.test\nAQID\npod-0\n"; string(s) != want {
		t.Errorf("statement %q", s)
	}
	if got := wire.OIDCBinding(s); got != "AUS-2MP1uHAN7WSLW04jfemo_Q1McMTCS6w_Pn4qbz0" {
		t.Errorf("binding %s", got)
	}
	if got := wire.OIDCAudience("fairlead", "b"); got != "fairlead#b" {
		t.Errorf("audience %s", got)
	}
	if got, want := string(wire.OIDCSigned(s, "t")), string(s)+"e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8\n"; got != want {
		t.Errorf("signed text %q", got)
	}
}

func TestAccountChangeEndsItsSessions(t *testing.T) {
	f := newFederated(t, false)
	const base, assigned = "/v1/service-accounts", "/v1/runners/local/service-accounts/ci"
	if page := call[wire.Page[wire.ServiceAccount]](f.plane, "GET", base, f.api, nil); len(page.Items) != 1 || page.Items[0].Name != "ci" {
		t.Errorf("listed service accounts %+v", page)
	}
	shown := call[wire.ServiceAccount](f.plane, "GET", base+"/ci", f.api, nil)
	if !slices.Equal(shown.Runners, []string{"local"}) {
		t.Errorf("the service account is %+v", shown)
	}
	rule := shown.ServiceAccountSettings
	in, _ := f.request(false)
	s := call[wire.Session](f.plane, "POST", "/runner/v1/sessions", "", in)
	beat := func() int {
		return f.send("POST", "/runner/v1/session/heartbeat", s.Token, wire.SessionHeartbeat{Running: []string{}}).StatusCode
	}
	if got := beat(); got != http.StatusOK {
		t.Errorf("a heartbeat is answered with %d", got)
	}
	if r := call[wire.Runner](f.plane, "GET", "/v1/runners/local", f.api, nil); len(r.Sessions) != 1 || r.Sessions[0].ServiceAccount != "ci" || r.Sessions[0].Subject != "someone" || len(r.ServiceAccounts) != 1 {
		t.Errorf("runner %+v", r)
	}
	rule.Keys = f.issuer.KeySet()
	if got := call[wire.ServiceAccount](f.plane, "PUT", base+"/ci", f.api, rule); !json.Valid(got.Keys) || !strings.Contains(string(got.Keys), `"key-1"`) {
		t.Errorf("keys of the changed account: %s", got.Keys)
	}
	if got := beat(); got != http.StatusUnauthorized {
		t.Errorf("a heartbeat after the change is answered with %d", got)
	}
	in, _ = f.request(false)
	s = call[wire.Session](f.plane, "POST", "/runner/v1/sessions", "", in)
	if got := f.send("DELETE", "/v1/runners/local/sessions/"+s.ID, f.api, nil).StatusCode; got != http.StatusNoContent {
		t.Errorf("the end of a session is answered with %d", got)
	}
	if got := beat(); got != http.StatusUnauthorized {
		t.Errorf("a heartbeat after the end of the session is answered with %d", got)
	}
	if got := f.send("DELETE", base+"/ci", f.api, nil).code(t); got != "service-account-in-use" {
		t.Errorf("the deletion of an account that a runner has is refused with %s", got)
	}
	for _, path := range []string{assigned, base + "/ci"} {
		if got := f.send("DELETE", path, f.api, nil).StatusCode; got != http.StatusNoContent {
			t.Errorf("DELETE %s is answered with %d", path, got)
		}
	}
	for _, row := range []struct {
		method, path string
		body         any
		code         string
	}{
		{"GET", base + "/ci", nil, "service-account-not-found"},
		{"DELETE", base + "/ci", nil, "service-account-not-found"},
		{"PUT", base + "/ci", rule, "service-account-not-found"},
		{"PUT", assigned, nil, "service-account-not-found"},
		{"DELETE", assigned, nil, "service-account-not-found"},
		{"PUT", "/v1/runners/none/service-accounts/ci", nil, "runner-not-found"},
		{"POST", base, wire.CreateServiceAccountRequest{Name: "Ci", ServiceAccountSettings: rule}, "invalid-name"},
		{"POST", base, map[string]any{"name": "ci", "issuer": rule.Issuer, "audience": "a"}, "invalid-request"},
		{"POST", base, map[string]any{"name": "ci", "issuer": rule.Issuer, "audience": "a", "claims": map[string]any{"sub": "*"}}, "invalid-oidc-trust"},
		{"POST", base, map[string]any{"name": "ci", "issuer": rule.Issuer, "audience": "a", "claims": map[string]any{"sub": []string{"a", "b"}}}, "invalid-request"},
		{"DELETE", "/v1/runners/local/sessions/ses_none", nil, "session-not-found"},
	} {
		if got := f.send(row.method, row.path, f.api, row.body).code(t); got != row.code {
			t.Errorf("%s %s is refused with %s, want %s", row.method, row.path, got, row.code)
		}
	}
	// If the issuer does not answer, the problem names the issuer.
	f.issuer.Replace(oidctest.ConfigPath, http.NotFoundHandler())
	f.issuer.URL = "https://gone.example" // the keys of the old URL are cached
	rule.Keys, rule.Issuer = nil, f.issuer.URL
	call[wire.ServiceAccount](f.plane, "POST", base, f.api, wire.CreateServiceAccountRequest{Name: "again", ServiceAccountSettings: rule})
	call[wire.Runner](f.plane, "PUT", "/v1/runners/local/service-accounts/again", f.api, nil)
	in, _ = f.request(false)
	if res := f.ask(in); res.StatusCode != http.StatusServiceUnavailable || res.code(t) != "oidc-issuer-unavailable" {
		t.Errorf("session request without the issuer's keys: %s", res.body)
	}
}
