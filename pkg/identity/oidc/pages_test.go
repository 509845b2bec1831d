package oidc_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// A person who changes pages on the issuer's host, or intercepts requests, must not
// redirect the verifier to another host or make it accept other keys.
func TestInvalidPagesOfAnIssuerAreRefused(t *testing.T) {
	elsewhere := oidctest.New(time.Now)
	t.Cleanup(elsewhere.Close)
	serve := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	for name, row := range map[string]struct {
		path string
		page func(w *world) http.Handler
	}{
		"the configuration names another issuer": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"https://other.example","jwks_uri":"` + w.issuer.URL + `/keys"}`)
		}},
		"the configuration names the issuer with an extra slash": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `/","jwks_uri":"` + w.issuer.URL + `/keys"}`)
		}},
		"the configuration names no issuer": {oidctest.ConfigPath, func(w *world) http.Handler { return serve(`{"jwks_uri":"` + w.issuer.URL + `/keys"}`) }},
		"the configuration names two issuers": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"https://other.example","issuer":"` + w.issuer.URL + `","jwks_uri":"` + w.issuer.URL + `/keys"}`)
		}},
		"the keys are on another host": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `","jwks_uri":"` + elsewhere.URL + `/keys"}`)
		}},
		"the keys are on another port": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `","jwks_uri":"https://127.0.0.1:1/keys"}`)
		}},
		"the keys come without TLS": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `","jwks_uri":"` + strings.Replace(w.issuer.URL, "https", "http", 1) + `/keys"}`)
		}},
		"the URL of the keys has a user": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `","jwks_uri":"` + strings.Replace(w.issuer.URL, "//", "//evil.example@", 1) + `/keys"}`)
		}},
		"the keys are in a file": {oidctest.ConfigPath, func(w *world) http.Handler {
			return serve(`{"issuer":"` + w.issuer.URL + `","jwks_uri":"file:///etc/passwd"}`)
		}},
		"the configuration has no URL of keys": {oidctest.ConfigPath, func(w *world) http.Handler { return serve(`{"issuer":"` + w.issuer.URL + `"}`) }},
		"the configuration redirects to another host": {oidctest.ConfigPath, func(*world) http.Handler {
			return http.RedirectHandler(elsewhere.URL+oidctest.ConfigPath, http.StatusFound)
		}},
		"the keys redirect to another host": {oidctest.KeysPath, func(*world) http.Handler {
			return http.RedirectHandler(elsewhere.URL+oidctest.KeysPath, http.StatusTemporaryRedirect)
		}},
		"the keys redirect to the same host": {oidctest.KeysPath, func(w *world) http.Handler { return http.RedirectHandler(w.issuer.URL+"/more", http.StatusFound) }},
		"the keys are endless": {oidctest.KeysPath, func(*world) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(`{"keys":[`))
				for err := error(nil); err == nil; {
					_, err = w.Write(bytes.Repeat([]byte(`{"kty":"oct","k":"AAAA"},`), 1000))
				}
			})
		}},
		"the keys are compressed": {oidctest.KeysPath, func(*world) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = z.Write(make([]byte, 1<<20))
				_ = z.Close()
			})
		}},
		"there are 201 keys": {oidctest.KeysPath, func(w *world) http.Handler {
			k := string(marshal(w.issuer.Key().Public()))
			return serve(`{"keys":[` + strings.Repeat(k+",", 200) + k + `]}`)
		}},
		"there is no key":               {oidctest.KeysPath, func(*world) http.Handler { return serve(`{"keys":[]}`) }},
		"the keys are an HTML page":     {oidctest.KeysPath, func(*world) http.Handler { return serve(`<html>`) }},
		"the key is for encryption":     {oidctest.KeysPath, func(w *world) http.Handler { return serve(keySet(w, "use", "enc")) }},
		"the key has another algorithm": {oidctest.KeysPath, func(w *world) http.Handler { return serve(keySet(w, "alg", "ECDH-ES")) }},
		"the key is a secret": {oidctest.KeysPath, func(w *world) http.Handler {
			return serve(`{"keys":[{"kty":"oct","kid":"key-1","alg":"HS256","k":"c2VjcmV0"}]}`)
		}},
		"the key is not on its curve": {oidctest.KeysPath, func(w *world) http.Handler { return serve(keySet(w, "x", b64(make([]byte, 32)))) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.issuer.Replace(row.path, row.page(w))
			w.want(w.token(nil), "unavailable")
			w.issuer.Replace(row.path, nil)
			w.after(10 * time.Second)
			w.want(w.token(nil), "")
		})
	}
	if elsewhere.Asked(oidctest.ConfigPath)+elsewhere.Asked(oidctest.KeysPath) > 0 {
		t.Error("a request went to another host")
	}
}

// keySet returns the issuer's key set with one field changed.
func keySet(w *world, name, v string) string {
	k := w.issuer.Key().Public()
	k[name] = v
	return `{"keys":[` + string(marshal(k)) + `]}`
}

// Two clouds have their keys at another host than their issuer. Each has exactly one such
// host.
func TestKeysAtAnotherHost(t *testing.T) {
	for _, row := range []struct {
		issuer, keys string
		accepted     bool
	}{
		{"https://accounts.google.com", "https://www.googleapis.com/oauth2/v3/certs", true},
		{"https://sts.windows.net/6f3a/", "https://login.microsoftonline.com/common/discovery/keys", true},
		{"https://login.microsoftonline.com/6f3a/v2.0", "https://login.microsoftonline.com/6f3a/discovery/v2.0/keys", true},
		{"https://accounts.google.com", "https://login.microsoftonline.com/common/discovery/keys", false},
		{"https://gitlab.com", "https://www.googleapis.com/oauth2/v3/certs", false},
	} {
		issuer := oidctest.Unserved(row.issuer, func() time.Time { return noon })
		v := oidc.NewVerifier(answers(func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			switch r.URL.String() {
			case strings.TrimSuffix(row.issuer, "/") + oidctest.ConfigPath:
				_, _ = rec.WriteString(`{"issuer":"` + row.issuer + `","jwks_uri":"` + row.keys + `"}`)
			case row.keys:
				_, _ = rec.Write(issuer.KeySet())
			default:
				rec.WriteHeader(http.StatusNotFound)
			}
			return rec.Result(), nil
		}), func() time.Time { return noon }, oidc.Rules{})
		trust := oidc.Trust{Issuer: row.issuer, Audience: "a", Claims: map[string]string{"sub": "someone", "project_id": "7"}}
		_, err := v.Verify(t.Context(), issuer.Token("a", claims{"project_id": "7"}), "", []oidc.Trust{trust})
		if (err == nil) != row.accepted {
			t.Errorf("%s with keys at %s: %v", row.issuer, row.keys, err)
		}
	}
}

// The creator of a trust chooses a host. The control plane must not send requests to hosts
// that only its own network reaches.
func TestOnlyPublicAddressesAreRequested(t *testing.T) {
	var reached atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
		"169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "[fe80::1]", "192.0.2.1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"} {
		for _, rules := range []oidc.Rules{{}, {Loopback: true}} {
			local := host == "127.0.0.1" || host == "localhost" || host == "[::1]"
			if rules.Loopback && (local || host == "[::ffff:127.0.0.1]") {
				continue // the rules permit this machine
			}
			tr := oidc.Transport(rules)
			issuer := oidctest.Unserved("https://"+host+port, time.Now)
			v := oidc.NewVerifier(tr, time.Now, rules)
			trust := oidc.Trust{Issuer: issuer.URL, Audience: "a", Claims: map[string]string{"sub": "someone"}}
			_, err := v.Verify(t.Context(), issuer.Token("a", nil), "", []oidc.Trust{trust})
			if reasonOf(err) != "unavailable" || !strings.Contains(err.Error(), "not public") {
				t.Errorf("%s (%+v): %v; want a refusal of the address", host, rules, err)
			}
			tr.CloseIdleConnections()
		}
	}
	if reached.Load() > 0 {
		t.Error("a request reached the server")
	}
	// With Loopback, the verifier requests an issuer on this machine, also without TLS.
	rules := oidc.Rules{Loopback: true}
	issuer := oidctest.NewPlain(time.Now)
	t.Cleanup(issuer.Close)
	tr := oidc.Transport(rules)
	t.Cleanup(tr.CloseIdleConnections)
	trust := oidc.Trust{Issuer: issuer.URL, Audience: "a", Claims: map[string]string{"sub": "someone"}}
	if _, err := oidc.NewVerifier(tr, time.Now, rules).Verify(t.Context(), issuer.Token("a", nil), "", []oidc.Trust{trust}); err != nil {
		t.Error(err)
	}
	// Without Loopback, the same trust is not valid.
	if _, err := oidc.NewVerifier(tr, time.Now, oidc.Rules{}).Verify(t.Context(), issuer.Token("a", nil), "", []oidc.Trust{trust}); reasonOf(err) != "issuer" {
		t.Errorf("without Loopback: %v", err)
	}
}
