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

// world is an issuer over TLS, a verifier that believes its certificate, and a
// clock that stands still unless it is moved.
type world struct {
	t        *testing.T
	issuer   *oidctest.Issuer
	verifier *oidc.Verifier
	trust    oidc.Trust
	clock    atomic.Int64 // after noon
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

// want verifies a token and wants it refused for a reason; "" is none.
func (w *world) want(token, reason string) {
	w.t.Helper()
	if _, err := w.verify(token); reasonOf(err) != reason {
		w.t.Errorf("refused for %q, want %q (%v)", reasonOf(err), reason, err)
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

// reasonOf returns why a token is refused, "unavailable" if it was not judged,
// "" if it is taken.
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

func TestATokenSaysWhoseItIs(t *testing.T) {
	w := newWorld(t)
	id, err := w.verify(w.token(nil))
	if err != nil {
		t.Fatal(err)
	}
	if id.Issuer != w.issuer.URL || id.Subject != main || id.Trust != 0 || id.Bound || len(id.Use) != 64 || !id.Expires.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("it says %+v", id)
	}
	// One whose audience is the request's is bound to it.
	if id, err = w.verify(w.issuer.Token(audience+"#"+binding, claims{"sub": main})); err != nil || !id.Bound {
		t.Errorf("a bound token says %+v, %v", id, err)
	}
	// The first trust that wants it is the one.
	other := w.trust
	other.Claims = map[string]string{"sub": "repo:org/other:*"}
	wide := w.trust
	wide.Claims = map[string]string{"sub": "repo:org/*:ref:refs/heads/*"}
	if id, err = w.verifier.Verify(t.Context(), w.token(nil), binding, []oidc.Trust{other, wide, w.trust}); err != nil || id.Trust != 1 {
		t.Errorf("of three trusts it is %+v, %v", id, err)
	}
	if n := w.issuer.Asked(oidctest.KeysPath); n != 1 {
		t.Errorf("the issuer was asked %d times for its keys", n)
	}
	for _, alg := range []string{"RS256", "EdDSA", "ES256"} {
		w.issuer.AddKey(alg)
		w.after(time.Minute)
		if _, err := w.verify(w.token(nil)); err != nil {
			t.Errorf("%s: %v", alg, err)
		}
	}
}

// What platforms really put into their tokens is taken.
func TestTokensOfPlatforms(t *testing.T) {
	for name, row := range map[string]struct {
		claims claims
		trust  map[string]string
	}{
		"Kubernetes: the audience is a list, claims are nested": {claims{"aud": []string{audience}, "sub": "system:serviceaccount:fairlead:runner",
			"kubernetes.io": claims{"namespace": "fairlead", "serviceaccount": claims{"name": "runner", "uid": "8c7a"}, "pod": claims{"name": "runner-0"}, "warnafter": 1}},
			map[string]string{"sub": "system:serviceaccount:fairlead:runner", "/kubernetes.io/serviceaccount/uid": "8c7a"}},
		"GitHub: much is text": {claims{"sub": "repo:octo-org/shop:environment:prod", "repository_owner_id": "65", "run_attempt": "2", "environment": "prod"},
			map[string]string{"repository_owner_id": "65", "sub": "repo:octo-org/*:environment:prod"}},
		"Google Cloud: there is no nbf and no jti": {claims{"sub": "1234", "nbf": nil, "jti": nil, "email_verified": true, "google": claims{"compute_engine": claims{"zone": "a"}}},
			map[string]string{"sub": "1234"}},
		"Azure: a token is good for a day, and dated back": {claims{"sub": "6f3a", "oid": "6f3a", "iat": noon.Add(-5 * time.Minute).Unix(), "nbf": noon.Add(-5 * time.Minute).Unix(), "exp": noon.Add(24 * time.Hour).Unix()},
			map[string]string{"oid": "6f3a"}},
		"times may be fractions":            {claims{"iat": float64(noon.Unix()) + 0.5, "sub": "x"}, map[string]string{"sub": "x"}},
		"a claim's name may have a / in it": {claims{"https://example.com/team": "a", "sub": "x"}, map[string]string{"/https:~1~1example.com~1team": "a"}},
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
	w.want(fresh, "") // a name that is not known is asked for
	if n := w.issuer.Asked(oidctest.KeysPath); n != 2 {
		t.Errorf("the issuer was asked %d times, want 2", n)
	}
	w.want(old, "key") // and what is withdrawn is gone with it

	// A withdrawn key of which no other token has told is taken for a quarter of
	// an hour, and no longer.
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

func TestUnknownKeysDoNotMakeUsAskAgainAndAgain(t *testing.T) {
	w := newWorld(t)
	w.want(w.token(nil), "")
	w.after(time.Minute)
	k := w.issuer.Key()
	for n := range 100 {
		w.want(k.Sign(claims{"kid": fmt.Sprintf("made-up-%d", n)}, w.payload(nil)), "key")
	}
	if n := w.issuer.Asked(oidctest.KeysPath); n != 2 {
		t.Errorf("the issuer was asked %d times, want 2: at first, and once for all of them", n)
	}
	w.want(w.token(nil), "")
	w.after(10 * time.Second)
	w.issuer.Rotate() // who rotates meanwhile is heard within ten seconds
	w.want(w.token(nil), "")
}

func TestAnIssuerThatCannotBeReached(t *testing.T) {
	w := newWorld(t)
	long := w.issuer.Token(audience, claims{"sub": main, "exp": noon.Add(3 * time.Hour).Unix()})
	w.want(long, "")
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	w.issuer.Replace(oidctest.KeysPath, fails)
	w.after(20 * time.Minute)
	w.want(long, "") // for an hour its keys are as good as they were
	w.after(39 * time.Minute)
	w.want(long, "")
	w.after(2 * time.Minute)
	w.want(long, "unavailable")
	asked := w.issuer.Asked(oidctest.KeysPath)
	w.want(long, "unavailable")
	if n := w.issuer.Asked(oidctest.KeysPath); n != asked {
		t.Error("it is asked again at once")
	}
	w.issuer.Replace(oidctest.KeysPath, nil)
	w.after(10 * time.Second)
	w.want(long, "")
}

// answers is an issuer without a network.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnIssuerThatDoesNotAnswerHoldsNobodyLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		v := oidc.NewVerifier(answers(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), time.Now, oidc.Rules{})
		issuer := oidctest.Unserved("https://slow.example", time.Now)
		trusts := []oidc.Trust{{Issuer: "https://slow.example", Audience: "a", Claims: map[string]string{"sub": "somebody"}}}
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
			t.Errorf("ten callers waited %s for %d questions", d, asked.Load())
		}
	})
}

// A caller that goes away takes nothing from those who wait for the same keys.
func TestKeysAreForAllWhoWait(t *testing.T) {
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
		trusts := []oidc.Trust{{Issuer: "https://slow.example", Audience: "a", Claims: map[string]string{"sub": "somebody"}}}
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

func TestKeysOfATrustNeedNoIssuer(t *testing.T) {
	issuer := oidctest.Unserved("https://kubernetes.default.svc", func() time.Time { return noon })
	nobody := answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("nobody is to be asked") })
	v := oidc.NewVerifier(nobody, func() time.Time { return noon }, oidc.Rules{})
	trust := oidc.Trust{Issuer: issuer.URL, Audience: audience, Claims: map[string]string{"sub": "somebody"}, Keys: issuer.KeySet()}
	if err := trust.Check(oidc.Rules{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), issuer.Token(audience, nil), "", []oidc.Trust{trust}); err != nil {
		t.Error(err)
	}
	issuer.Rotate()
	if _, err := v.Verify(t.Context(), issuer.Token(audience, nil), "", []oidc.Trust{trust}); reasonOf(err) != "key" {
		t.Errorf("a key that the trust does not have: %v", err)
	}
}
