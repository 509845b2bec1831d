package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/testserver"
)

// apiServer is a real API server, called with plain HTTP requests: the runner of these tests is built without a client for
// it.
type apiServer struct {
	t          *testing.T
	url, token string
	http       *http.Client
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	b, err := os.ReadFile(cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(b, &conf); err != nil || len(conf.Clusters) != 1 || len(conf.Users) != 1 || conf.Users[0].User.Token == "" {
		t.Skipf("SKIPPED: NO KUBERNETES TOKEN WAS MADE. The kubeconfig does not have exactly one cluster with a user's token: %v", err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // its certificate is self-signed
	t.Cleanup(tr.CloseIdleConnections)
	return &apiServer{t: t, url: conf.Clusters[0].Cluster.Server, token: conf.Users[0].User.Token, http: &http.Client{Transport: tr}}
}

// do sends object, if not nil, and returns the answer.
func (a *apiServer) do(method, path string, object any) []byte {
	a.t.Helper()
	var body io.Reader
	if object != nil {
		b, err := json.Marshal(object)
		if err != nil {
			a.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		a.t.Fatalf("%s %s: %s, %v\n%s", method, path, resp.Status, err, b)
	}
	return b
}

const accounts = "/api/v1/namespaces/default/serviceaccounts"

// account creates a service account and returns its UID.
func (a *apiServer) account(name string) string {
	a.t.Helper()
	var made struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	b := a.do(http.MethodPost, accounts, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name}})
	if err := json.Unmarshal(b, &made); err != nil || made.Metadata.UID == "" {
		a.t.Fatalf("%v: %s", err, b)
	}
	return made.Metadata.UID
}

// tokenOf returns a token like those that the kubelet projects into pods.
func (a *apiServer) tokenOf(name string, audiences ...string) string {
	a.t.Helper()
	var made struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	b := a.do(http.MethodPost, accounts+"/"+name+"/token", map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"audiences": audiences, "expirationSeconds": 600}})
	if err := json.Unmarshal(b, &made); err != nil || made.Status.Token == "" {
		a.t.Fatalf("%v: %s", err, b)
	}
	return made.Status.Token
}

// An agent can authenticate with a real API server's token of its service account, and with no other token. The control plane
// uses the keys that the API server publishes or the keys in the trust.
func TestAgentUsesItsServiceAccountToken(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t)
	uid := a.account("runner")
	a.account("other")
	var published struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(a.do(http.MethodGet, "/.well-known/openid-configuration", nil), &published); err != nil || published.Issuer == "" {
		t.Fatalf("issuer: %+v, %v", published, err)
	}
	// By default only authorized users can read Kubernetes's keys. A cluster whose tokens are used elsewhere publishes its
	// keys to all.
	a.do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "issuer-discovery"}, "roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:service-account-issuer-discovery"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}}})
	f := newFederationBy(t, a.http.Transport)
	rule := wire.TokenRule{Issuer: published.Issuer, Audience: "fairlead",
		Claims: map[string]string{"sub": "system:serviceaccount:default:runner", "/kubernetes.io/serviceaccount/uid": uid}}
	for _, way := range []string{"published", "held"} {
		if way == "held" {
			rule.Keys = a.do(http.MethodGet, "/openid/v1/jwks", nil)
		}
		if way == "published" && !strings.HasPrefix(published.Keys, published.Issuer+"/") {
			t.Logf("SKIPPED: NO PUBLISHED KEYS. They are at %s, another host than the issuer %s.", published.Keys, published.Issuer)
			continue
		}
		f.account(way, rule)
		file := filepath.Join(t.TempDir(), "token")
		try := func(token, data string) *agentProcess {
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
			return f.start(data, "FAIRLEAD_OIDC_TOKEN_FILE="+file)
		}
		for _, refused := range []struct{ token, why string }{
			{a.tokenOf("other", "fairlead"), "claim \\\"/kubernetes.io/serviceaccount/uid\\\""},
			{a.tokenOf("runner", published.Issuer), "audience"},
			{a.tokenOf("runner", "fairlead", published.Issuer), "more than one"},
		} {
			p := try(refused.token, t.TempDir())
			testserver.Until(t, "a refusal for "+refused.why, func() bool { return strings.Contains(p.out.String(), refused.why) })
			p.kill()
		}
		p := try(a.tokenOf("runner", "fairlead"), t.TempDir())
		f.check()
		if s := f.sessions(); s[0].ServiceAccount != way || s[0].Subject != "system:serviceaccount:default:runner" {
			t.Errorf("the session is %+v", s[0])
		}
		p.kill()
		if err := f.c.UnassignServiceAccount(t.Context(), "acme", way); err != nil {
			t.Fatal(err)
		}
	}
	// An account that is created again with the same name is another account.
	f.account("again", rule)
	a.do(http.MethodDelete, accounts+"/runner", nil)
	a.account("runner")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(a.tokenOf("runner", "fairlead")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := f.start(t.TempDir(), "FAIRLEAD_OIDC_TOKEN_FILE="+file)
	testserver.Until(t, "the refusal of an account that was created again", func() bool { return strings.Contains(p.out.String(), "does not match the rule") })
}
