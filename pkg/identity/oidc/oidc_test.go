package oidc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const (
	main     = "repo:org/x:ref:refs/heads/main"
	audience = "https://fairlead.example"
	binding  = "LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564"
)

// world has an issuer over TLS, a verifier that accepts its certificate, and a clock that
// moves only by after.
type world struct {
	t        *testing.T
	issuer   *oidctest.Issuer
	verifier *oidc.Verifier
	trust    oidc.Trust
	clock    atomic.Int64 // nanoseconds after noon
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	w.issuer = oidctest.New(w.now)
	t.Cleanup(w.issuer.Close)
	w.verifier = oidc.NewVerifier(w.issuer.Transport(), w.now, oidc.Rules{})
	w.trust = oidc.Trust{Issuer: w.issuer.URL, Audience: audience, Claims: map[string]string{"sub": main}}
	return w
}

func (w *world) now() time.Time        { return noon.Add(time.Duration(w.clock.Load())) }
func (w *world) after(d time.Duration) { w.clock.Add(int64(d)) }
func (w *world) token(m claims) string { return w.issuer.Token(audience, with(m, "sub", main)) }
func (w *world) payload(m claims) []byte {
	return marshal(w.issuer.Claims(audience, with(m, "sub", main)))
}

func (w *world) verify(token string) (oidc.Identity, error) {
	return w.verifier.Verify(w.t.Context(), token, binding, []oidc.Trust{w.trust})
}

// want verifies a token and compares the reason of the refusal; "": it must be accepted.
func (w *world) want(token, reason string) {
	w.t.Helper()
	if _, err := w.verify(token); reasonOf(err) != reason {
		w.t.Errorf("the reason is %q, want %q (%v)", reasonOf(err), reason, err)
	}
}

type claims = map[string]any

func with(m claims, name string, v any) claims {
	out := claims{name: v}
	for k, v := range m {
		out[k] = v
	}
	return out
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// reasonOf returns the reason of a refusal: "" if the token was accepted, "unavailable" if
// it could not be verified.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*fairlead.Error](err)
	switch {
	case !ok:
		return "error: " + err.Error()
	case e.Kind == fairlead.KindUnavailable:
		return "unavailable"
	case e.Kind == fairlead.KindUnauthenticated && e.Details != nil:
		return e.Details["reason"]
	}
	return "error: " + err.Error()
}

func TestVerifyReturnsTheIdentity(t *testing.T) {
	w := newWorld(t)
	id, err := w.verify(w.token(nil))
	if err != nil {
		t.Fatal(err)
	}
	if id.Issuer != w.issuer.URL || id.Subject != main || id.Trust != 0 || id.Bound || len(id.Use) != 64 || !id.Expires.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("the identity is %+v", id)
	}
	// A token with the binding of the request in its audience is bound.
	if id, err = w.verify(w.issuer.Token(audience+"#"+binding, claims{"sub": main})); err != nil || !id.Bound {
		t.Errorf("the identity of a bound token is %+v, %v", id, err)
	}
	// Verify uses the first trust that matches.
	other := w.trust
	other.Claims = map[string]string{"sub": "repo:org/other:*"}
	wide := w.trust
	wide.Claims = map[string]string{"sub": "repo:org/*:ref:refs/heads/*"}
	if id, err = w.verifier.Verify(t.Context(), w.token(nil), binding, []oidc.Trust{other, wide, w.trust}); err != nil || id.Trust != 1 {
		t.Errorf("with three trusts the identity is %+v, %v", id, err)
	}
	if n := w.issuer.Asked(oidctest.KeysPath); n != 1 {
		t.Errorf("the keys were requested %d times, want 1", n)
	}
	for _, alg := range []string{"RS256", "EdDSA", "ES256"} {
		w.issuer.AddKey(alg)
		w.after(time.Minute)
		if _, err := w.verify(w.token(nil)); err != nil {
			t.Errorf("%s: %v", alg, err)
		}
	}
}

// Each case has the claims of a real platform.
func TestTokensOfPlatformsAreAccepted(t *testing.T) {
	for name, row := range map[string]struct {
		claims claims
		trust  map[string]string
	}{
		"Kubernetes: a list as audience, nested claims": {claims{"aud": []string{audience}, "sub": "system:serviceaccount:fairlead:runner",
			"kubernetes.io": claims{"namespace": "fairlead", "serviceaccount": claims{"name": "runner", "uid": "8c7a"}, "pod": claims{"name": "runner-0"}, "warnafter": 1}},
			map[string]string{"sub": "system:serviceaccount:fairlead:runner", "/kubernetes.io/serviceaccount/uid": "8c7a"}},
		"GitHub: numbers as text": {claims{"sub": "repo:octo-org/shop:environment:prod", "repository_owner_id": "65", "run_attempt": "2", "environment": "prod"},
			map[string]string{"repository_owner_id": "65", "sub": "repo:octo-org/*:environment:prod"}},
		"Google Cloud: no nbf and no jti": {claims{"sub": "1234", "nbf": nil, "jti": nil, "email_verified": true, "google": claims{"compute_engine": claims{"zone": "a"}}},
			map[string]string{"sub": "1234"}},
		"Azure: valid for a day, iat in the past": {claims{"sub": "6f3a", "oid": "6f3a", "iat": noon.Add(-5 * time.Minute).Unix(), "nbf": noon.Add(-5 * time.Minute).Unix(), "exp": noon.Add(24 * time.Hour).Unix()},
			map[string]string{"oid": "6f3a"}},
		"a fraction in a time":       {claims{"iat": float64(noon.Unix()) + 0.5, "sub": "x"}, map[string]string{"sub": "x"}},
		"a / in the name of a claim": {claims{"https://example.com/team": "a", "sub": "x"}, map[string]string{"/https:~1~1example.com~1team": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.trust.Claims = row.trust
			if err := w.trust.Check(oidc.Rules{}); err != nil {
				t.Fatal(err)
			}
			w.want(w.issuer.Token(audience, row.claims), "")
		})
	}
}

func TestKeysRotate(t *testing.T) {
	w := newWorld(t)
	old := w.token(nil)
	w.want(old, "")
	w.after(10 * time.Second)
	w.issuer.Rotate()
	fresh := w.token(nil)
	w.want(fresh, "") // an unknown key id causes a request
	if n := w.issuer.Asked(oidctest.KeysPath); n != 2 {
		t.Errorf("the keys were requested %d times, want 2", n)
	}
	w.want(old, "key") // the same request drops the withdrawn key

	// Without a token with an unknown key id, a withdrawn key is accepted for 15
	// minutes, and no longer.
	w.issuer.Rotate()
	long := w.issuer.Token(audience, claims{"sub": main, "exp": noon.Add(2 * time.Hour).Unix()})
	w.after(time.Minute)
	w.want(long, "")
	w.issuer.Rotate()
	w.after(14 * time.Minute)
	w.want(long, "")
	w.after(2 * time.Minute)
	w.want(long, "key")
}

func TestUnknownKeyIDsCauseFewRequests(t *testing.T) {
	w := newWorld(t)
	w.want(w.token(nil), "")
	w.after(time.Minute)
	k := w.issuer.Key()
	for n := range 100 {
		w.want(k.Sign(claims{"kid": fmt.Sprintf("made-up-%d", n)}, w.payload(nil)), "key")
	}
	if n := w.issuer.Asked(oidctest.KeysPath); n != 2 {
		t.Errorf("the keys were requested %d times, want 2: at first, and once for all unknown key ids", n)
	}
	w.want(w.token(nil), "")
	w.after(10 * time.Second)
	w.issuer.Rotate() // a rotation takes effect within ten seconds
	w.want(w.token(nil), "")
}

func TestCachedKeysOutliveAnUnreachableIssuer(t *testing.T) {
	w := newWorld(t)
	long := w.issuer.Token(audience, claims{"sub": main, "exp": noon.Add(3 * time.Hour).Unix()})
	w.want(long, "")
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	w.issuer.Replace(oidctest.KeysPath, fails)
	w.after(20 * time.Minute)
	w.want(long, "") // the cached keys are used for an hour
	w.after(39 * time.Minute)
	w.want(long, "")
	w.after(2 * time.Minute)
	w.want(long, "unavailable")
	asked := w.issuer.Asked(oidctest.KeysPath)
	w.want(long, "unavailable")
	if n := w.issuer.Asked(oidctest.KeysPath); n != asked {
		t.Error("the keys were requested again at once")
	}
	w.issuer.Replace(oidctest.KeysPath, nil)
	w.after(10 * time.Second)
	w.want(long, "")
}

// answers is a function as a transport.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestASilentIssuerBlocksCallersFor5Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		v := oidc.NewVerifier(answers(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), time.Now, oidc.Rules{})
		issuer := oidctest.Unserved("https://slow.example", time.Now)
		trusts := []oidc.Trust{{Issuer: "https://slow.example", Audience: "a", Claims: map[string]string{"sub": "someone"}}}
		began := time.Now()
		done := make(chan error)
		for range 10 {
			go func() {
				_, err := v.Verify(t.Context(), issuer.Token("a", nil), "", trusts)
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; reasonOf(err) != "unavailable" {
				t.Errorf("got %v", err)
			}
		}
		if d := time.Since(began); d != 5*time.Second || asked.Load() != 1 {
			t.Errorf("ten callers waited %s for %d requests, want 5 s and 1", d, asked.Load())
		}
	})
}

// If a caller cancels, other callers that wait for the same keys must not fail.
func TestACanceledCallerDoesNotStopTheFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.Unserved("https://slow.example", time.Now)
		v := oidc.NewVerifier(answers(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			body := issuer.KeySet()
			if r.URL.Path == oidctest.ConfigPath {
				body = []byte(`{"issuer":"https://slow.example","jwks_uri":"https://slow.example/keys"}`)
			}
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(string(body)))}, r.Context().Err()
		}), time.Now, oidc.Rules{})
		trusts := []oidc.Trust{{Issuer: "https://slow.example", Audience: "a", Claims: map[string]string{"sub": "someone"}}}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() { _, err := v.Verify(ctx, issuer.Token("a", nil), "", trusts); first <- err }()
		synctest.Wait()
		cancel()
		if _, err := v.Verify(t.Context(), issuer.Token("a", nil), "", trusts); err != nil {
			t.Error(err)
		}
		<-first
	})
}

func TestKeysInATrustCauseNoRequest(t *testing.T) {
	issuer := oidctest.Unserved("https://kubernetes.default.svc", func() time.Time { return noon })
	unreachable := answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("no request is expected") })
	v := oidc.NewVerifier(unreachable, func() time.Time { return noon }, oidc.Rules{})
	trust := oidc.Trust{Issuer: issuer.URL, Audience: audience, Claims: map[string]string{"sub": "someone"}, Keys: issuer.KeySet()}
	if err := trust.Check(oidc.Rules{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), issuer.Token(audience, nil), "", []oidc.Trust{trust}); err != nil {
		t.Error(err)
	}
	issuer.Rotate()
	if _, err := v.Verify(t.Context(), issuer.Token(audience, nil), "", []oidc.Trust{trust}); reasonOf(err) != "key" {
		t.Errorf("a token with a key that is not in the trust: %v", err)
	}
}
