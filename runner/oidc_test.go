package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/tools/testserver"
)

// federation is a control plane with a runner, and a token issuer.
type federation struct {
	t      *testing.T
	issuer *oidctest.Issuer
	plane  *local.Server
	c      *client.Client
	runner wire.Runner
	keys   string
}

func newFederation(t *testing.T, issuer *oidctest.Issuer) *federation {
	t.Helper()
	f := newFederationBy(t, issuer.Transport())
	f.issuer = issuer
	return f
}

// newFederationBy is newFederation with issuers that the control plane reaches through transport.
func newFederationBy(t *testing.T, transport http.RoundTripper) *federation {
	t.Helper()
	s, err := local.Start(t.Context(), local.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", Issuers: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := &federation{t: t, plane: s, c: c}
	if f.runner, err = c.CreateRunner(t.Context(), wire.CreateRunnerRequest{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	meta, err := c.Meta(t.Context())
	if err != nil || len(meta.Keys) != 2 {
		t.Fatalf("keys to pin: %+v, %v", meta, err)
	}
	f.keys = base64.StdEncoding.EncodeToString(meta.Keys[0].PublicKey)
	return f
}

func (f *federation) trust(name string, rule wire.TokenRule) {
	f.t.Helper()
	rule.Issuer, rule.Audience = f.issuer.URL, "fairlead"
	f.account(name, rule)
}

// account creates a service account and assigns it to the runner.
func (f *federation) account(name string, rule wire.TokenRule) {
	f.t.Helper()
	if _, err := f.c.CreateServiceAccount(f.t.Context(), wire.CreateServiceAccountRequest{Name: name, ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: rule}}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.c.AssignServiceAccount(f.t.Context(), "acme", name); err != nil {
		f.t.Fatal(err)
	}
}

// start starts a real agent on a data folder.
func (f *federation) start(data string, env ...string) *agentProcess {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	a := &agentProcess{t: f.t, Data: data, out: &lockedBuffer{}, done: make(chan struct{})}
	a.cmd = exec.Command(self, "agent", "--url", f.plane.URL(), "--data", a.Data, "--log-level", "debug")
	a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + f.t.TempDir(), "GORACE=atexit_sleep_ms=0",
		"FAIRLEAD_PASS_ENV=GORACE", "FAIRLEAD_IDENTITY=oidc", "FAIRLEAD_RUNNER_ID=" + f.runner.ID, "FAIRLEAD_TRUSTED_KEYS=" + f.keys}, env...)
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	if err := a.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { a.err = a.cmd.Wait(); close(a.done) }()
	f.t.Cleanup(func() {
		a.signal(syscall.SIGKILL)
		<-a.done
		a.killSteps()
		if f.t.Failed() {
			f.t.Logf("the agent's log:\n%s", a.out)
		}
	})
	return a
}

// check runs a check job on the runner.
func (f *federation) check() {
	f.t.Helper()
	j, err := f.c.CheckRunner(f.t.Context(), "acme")
	if err != nil {
		f.t.Fatal(err)
	}
	testserver.Until(f.t, "the end of the check", func() bool {
		j, err = f.c.GetJob(f.t.Context(), j.ID)
		return err == nil && j.State == "succeeded"
	})
}

func (f *federation) sessions() []wire.RunnerSession {
	f.t.Helper()
	r, err := f.c.GetRunner(f.t.Context(), "acme")
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Sessions
}

// A real agent with only a token file of its platform can run jobs of a real control plane. After a restart on its data
// folder, the agent can use the same token again. No other agent can use the token. If the service account is taken from the runner, the agent's
// session ends.
func TestAgentUsesItsPlatformsToken(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(time.Now)
	t.Cleanup(issuer.Close)
	f := newFederation(t, issuer)
	f.trust("cluster", wire.TokenRule{Claims: map[string]string{"sub": "system:serviceaccount:fairlead:runner-*"}})
	file := filepath.Join(t.TempDir(), "token")
	write := func(sub string) {
		if err := os.WriteFile(file, []byte(issuer.Token("fairlead", map[string]any{"sub": sub})+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("system:serviceaccount:fairlead:runner-1")
	data := t.TempDir()
	a := f.start(data, "FAIRLEAD_OIDC_TOKEN_FILE="+file)
	f.check()
	if s := f.sessions(); len(s) != 1 || s[0].ServiceAccount != "cluster" || s[0].Subject != "system:serviceaccount:fairlead:runner-1" {
		t.Errorf("sessions %+v", s)
	}
	a.kill()
	f.start(data, "FAIRLEAD_OIDC_TOKEN_FILE="+file)
	testserver.Until(t, "a second session with the same token", func() bool { return len(f.sessions()) == 2 })
	f.check()

	// Another agent that reads the file cannot use the token.
	other := f.start(t.TempDir(), "FAIRLEAD_OIDC_TOKEN_FILE="+file)
	testserver.Until(t, "the refusal of the other agent", func() bool { return strings.Contains(other.out.String(), "another agent has used it") })
	other.kill()
	if n := len(f.sessions()); n != 2 {
		t.Errorf("there are %d sessions", n)
	}

	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(a.out.String(), strings.TrimSpace(string(token))) {
		t.Error("the agent's log has its token")
	}
	if found := a.glob("identity.json"); len(found) > 0 {
		t.Errorf("the agent wrote %q", found)
	}

	// After the service account is taken from the runner, the issuer's tokens are not accepted any more.
	if err := f.c.UnassignServiceAccount(t.Context(), "acme", "cluster"); err != nil {
		t.Fatal(err)
	}
	j, err := f.c.CheckRunner(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	f.trust("other", wire.TokenRule{Claims: map[string]string{"sub": "system:serviceaccount:fairlead:new"}})
	write("system:serviceaccount:fairlead:new")
	// The agent reads the file again and authenticates with the new token.
	testserver.Until(t, "the check with the new token", func() bool {
		j, err = f.c.GetJob(t.Context(), j.ID)
		return err == nil && j.State == "succeeded"
	})
	if s := f.sessions(); s[0].ServiceAccount != "other" || s[0].Subject != "system:serviceaccount:fairlead:new" {
		t.Errorf("the last session is %+v", s[0])
	}
}

// A CI job and a virtual machine of Google Cloud request tokens with an audience that contains their purpose; a service account can
// require that.
func TestAgentRequestsABoundToken(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(time.Now)
	t.Cleanup(issuer.Close)
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audience := r.URL.Query().Get("audience")
		switch {
		case r.URL.Path == "/ci" && r.URL.Query().Get("api-version") == "2.0" && r.Header.Get("Authorization") == "Bearer ci-secret":
			_, _ = w.Write([]byte(`{"count":1,"value":"` + issuer.Token(audience, map[string]any{"sub": "repo:acme/shop:ref:refs/heads/main"}) + `"}`))
		case r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/identity" && r.Header.Get("Metadata-Flavor") == "Google" && r.URL.Query().Get("format") == "full":
			_, _ = w.Write([]byte(issuer.Token(audience, map[string]any{"sub": "1234567890", "nbf": nil, "jti": nil})))
		case r.URL.Path == "/metadata/identity/oauth2/token" && r.Header.Get("Metadata") == "true" && r.URL.Query().Get("client_id") == "some-client":
			_, _ = w.Write([]byte(`{"token_type":"Bearer","access_token":"` + issuer.Token(r.URL.Query().Get("resource"), map[string]any{"sub": "some-object"}) + `"}`))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(platform.Close)
	f := newFederation(t, issuer)
	f.trust("ci", wire.TokenRule{Bound: true, Claims: map[string]string{"sub": "repo:acme/*:ref:refs/heads/main"}})
	f.trust("gcp", wire.TokenRule{Bound: true, Claims: map[string]string{"sub": "1234567890"}})
	f.trust("azure", wire.TokenRule{Claims: map[string]string{"sub": "some-object"}})
	for _, of := range []struct {
		trust string
		env   []string
	}{
		{"ci", []string{"FAIRLEAD_OIDC_SOURCE=github", "ACTIONS_ID_TOKEN_REQUEST_URL=" + platform.URL + "/ci?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=ci-secret"}},
		{"gcp", []string{"FAIRLEAD_OIDC_SOURCE=gcp", "GCE_METADATA_HOST=" + strings.TrimPrefix(platform.URL, "http://")}},
		{"azure", []string{"FAIRLEAD_OIDC_SOURCE=azure", "AZURE_POD_IDENTITY_AUTHORITY_HOST=" + platform.URL, "AZURE_CLIENT_ID=some-client"}},
	} {
		a := f.start(t.TempDir(), append(of.env, "FAIRLEAD_OIDC_AUDIENCE=fairlead")...)
		f.check()
		if s := f.sessions(); s[0].ServiceAccount != of.trust {
			t.Errorf("%s: the last session is %+v", of.trust, s[0])
		}
		a.kill()
	}
}
