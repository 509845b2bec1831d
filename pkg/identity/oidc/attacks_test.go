package oidc_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"hash"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

var b64 = base64.RawURLEncoding.EncodeToString

// pemOf returns the public key in PEM. A verifier that trusts the header's algorithm would
// use it as the secret of an HMAC.
func pemOf(t *testing.T, k oidctest.Key) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k.Signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func hmacToken(alg string, h func() hash.Hash, secret []byte, kid string, payload []byte) string {
	text := b64(fmt.Appendf(nil, `{"alg":%q,"kid":%q,"typ":"JWT"}`, alg, kid)) + "." + b64(payload)
	m := hmac.New(h, secret)
	m.Write([]byte(text))
	return text + "." + b64(m.Sum(nil))
}

// Each case is a token that a careless verifier accepts, with the reason of its refusal.
func TestATokenIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		forge  func(w *world) string
		reason string
	}{
		// The audience.
		"a token for another service": {func(w *world) string { return w.issuer.Token("https://other.example", claims{"sub": main}) }, "audience"},
		"a token for this and another service": {func(w *world) string {
			return w.issuer.Token("", claims{"sub": main, "aud": []string{audience, "https://other.example"}})
		}, "audience"},
		"an audience that begins with the right one": {func(w *world) string { return w.issuer.Token(audience+".evil.example", claims{"sub": main}) }, "audience"},
		"an audience with an extra slash":            {func(w *world) string { return w.issuer.Token(audience+"/", claims{"sub": main}) }, "audience"},
		"an audience in another case":                {func(w *world) string { return w.issuer.Token("https://FAIRLEAD.example", claims{"sub": main}) }, "audience"},
		"a token that is bound to another request": {func(w *world) string {
			return w.issuer.Token(audience+"#"+strings.Repeat("A", 43), claims{"sub": main})
		}, "audience"},
		"only the binding as the audience": {func(w *world) string { return w.issuer.Token("#"+binding, claims{"sub": main}) }, "audience"},
		"no audience":                      {func(w *world) string { return w.token(claims{"aud": nil}) }, "audience"},
		"an empty list of audiences":       {func(w *world) string { return w.token(claims{"aud": []string{}}) }, "audience"},
		"an audience that is an object":    {func(w *world) string { return w.token(claims{"aud": claims{audience: true}}) }, "audience"},
		"an audience in two nested lists":  {func(w *world) string { return w.token(claims{"aud": []any{[]string{audience}}}) }, "audience"},

		// The signature.
		"alg none without a signature": {func(w *world) string {
			return b64([]byte(`{"alg":"none","kid":"key-1"}`)) + "." + b64(w.payload(nil)) + "."
		}, "malformed"},
		"alg none with a signature": {func(w *world) string {
			return b64([]byte(`{"alg":"none","kid":"key-1"}`)) + "." + b64(w.payload(nil)) + ".AA"
		}, "algorithm"},
		"alg nOnE, which a denylist lacks": {func(w *world) string {
			return b64([]byte(`{"alg":"nOnE","kid":"key-1"}`)) + "." + b64(w.payload(nil)) + ".AA"
		}, "algorithm"},
		"no alg":            {func(w *world) string { return w.issuer.Key().Sign(claims{"alg": nil}, w.payload(nil)) }, "algorithm"},
		"alg in lower case": {func(w *world) string { return w.issuer.Key().Sign(claims{"alg": "es256"}, w.payload(nil)) }, "algorithm"},
		"key confusion: HS256 with the public key in PEM": {func(w *world) string {
			return hmacToken("HS256", sha256.New, pemOf(w.t, w.issuer.Key()), w.issuer.Key().ID, w.payload(nil))
		}, "algorithm"},
		"key confusion: HS512 with the published key": {func(w *world) string {
			return hmacToken("HS512", sha512.New, marshal(w.issuer.Key().Public()), w.issuer.Key().ID, w.payload(nil))
		}, "algorithm"},
		"an algorithm for another kind of key": {func(w *world) string { return w.issuer.Key().Sign(claims{"alg": "RS256"}, w.payload(nil)) }, "signature"},
		"an algorithm for another curve":       {func(w *world) string { return w.issuer.Key().Sign(claims{"alg": "ES384"}, w.payload(nil)) }, "signature"},
		"another key with the issuer's key id": {func(w *world) string {
			k := oidctest.Unserved("", w.now).AddKey("ES256")
			k.ID = w.issuer.Key().ID
			return k.Sign(nil, w.payload(nil))
		}, "signature"},
		"a signature of zeros (CVE-2022-21449)": {func(w *world) string {
			t := w.token(nil)
			return t[:strings.LastIndexByte(t, '.')+1] + b64(make([]byte, 64))
		}, "signature"},
		"a signature in ASN.1, of another length": {func(w *world) string {
			t := w.token(nil)
			text := t[:strings.LastIndexByte(t, '.')]
			sum := sha256.Sum256([]byte(text))
			sig, err := ecdsa.SignASN1(nil, w.issuer.Key().Signer.(*ecdsa.PrivateKey), sum[:])
			if err != nil {
				w.t.Fatal(err)
			}
			return text + "." + b64(sig)
		}, "signature"},
		"the signature of another token": {func(w *world) string {
			a, b := w.token(nil), w.issuer.Token(audience, nil)
			return a[:strings.LastIndexByte(a, '.')] + b[strings.LastIndexByte(b, '.'):]
		}, "signature"},

		// The key.
		"an embedded key: jwk": {func(w *world) string {
			k := oidctest.Unserved("", w.now).AddKey("ES256")
			return k.Sign(claims{"jwk": k.Public()}, w.payload(nil))
		}, "header"},
		"the address of a key: jku": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"jku": "https://evil.example/keys"}, w.payload(nil))
		}, "header"},
		"the address of a certificate: x5u": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"x5u": "https://evil.example/cert"}, w.payload(nil))
		}, "header"},
		"an embedded certificate: x5c": {func(w *world) string { return w.issuer.Key().Sign(claims{"x5c": []string{"MIIB"}}, w.payload(nil)) }, "header"},
		"a kid that is a path": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"kid": "../../../../dev/null"}, w.payload(nil))
		}, "key"},
		"a kid that is a URL": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"kid": "https://evil.example/keys"}, w.payload(nil))
		}, "key"},
		"a kid that is SQL": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"kid": "x' UNION SELECT 'secret"}, w.payload(nil))
		}, "key"},
		"a kid with a NUL at its end": {func(w *world) string { return w.issuer.Key().Sign(claims{"kid": "key-1\x00"}, w.payload(nil)) }, "key"},
		"a kid in another case":       {func(w *world) string { return w.issuer.Key().Sign(claims{"kid": "KEY-1"}, w.payload(nil)) }, "key"},
		"a kid that is a list":        {func(w *world) string { return w.issuer.Key().Sign(claims{"kid": []string{"key-1"}}, w.payload(nil)) }, "header"},
		"no kid":                      {func(w *world) string { return w.issuer.Key().Sign(claims{"kid": nil}, w.payload(nil)) }, "header"},
		"an unknown critical extension": {func(w *world) string {
			return w.issuer.Key().Sign(claims{"crit": []string{"b64"}, "b64": false}, w.payload(nil))
		}, "header"},
		"a compressed payload": {func(w *world) string { return w.issuer.Key().Sign(claims{"zip": "DEF"}, w.payload(nil)) }, "header"},
		"a nested token":       {func(w *world) string { return w.issuer.Key().Sign(claims{"cty": "JWT"}, w.payload(nil)) }, "header"},
		"an access token":      {func(w *world) string { return w.issuer.Key().Sign(claims{"typ": "at+jwt"}, w.payload(nil)) }, "header"},
		"a logout token":       {func(w *world) string { return w.issuer.Key().Sign(claims{"typ": "logout+jwt"}, w.payload(nil)) }, "header"},

		// Ambiguous encodings.
		"a duplicate header": {func(w *world) string {
			return w.issuer.Key().SignRaw([]byte(`{"alg":"none","alg":"ES256","kid":"key-1"}`), w.payload(nil))
		}, "malformed"},
		"a duplicate claim, the right one last": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"sub":"other",`), w.payload(nil)[1:]...))
		}, "malformed"},
		"a duplicate claim, once escaped": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"su\u0062":"other",`), w.payload(nil)[1:]...))
		}, "malformed"},
		"a duplicate nested claim": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"k":{"a":"x","a":"y"},`), w.payload(nil)[1:]...))
		}, "malformed"},
		"a duplicate audience": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"aud":"`+audience+`",`), w.payload(claims{"aud": "x"})[1:]...))
		}, "malformed"},
		"a second object after the first": {func(w *world) string { return w.issuer.Key().Sign(nil, append(w.payload(nil), `{"sub":"x"}`...)) }, "malformed"},
		"claims that are a list":          {func(w *world) string { return w.issuer.Key().Sign(nil, []byte(`[]`)) }, "malformed"},
		"claims in Latin-1": {func(w *world) string {
			return w.issuer.Key().Sign(nil, bytes.Replace(w.payload(nil), []byte("org"), []byte("\xf6rg"), 1))
		}, "malformed"},
		"claims with a lone surrogate": {func(w *world) string {
			return w.issuer.Key().Sign(nil, bytes.Replace(w.payload(nil), []byte("org"), []byte(`\ud800`), 1))
		}, "malformed"},
		"claims with deep nesting": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"k":`+strings.Repeat("[", 50)+strings.Repeat("]", 50)+`,`), w.payload(nil)[1:]...))
		}, "malformed"},
		"Sub next to sub": {func(w *world) string {
			return w.token(claims{"Sub": main, "sub": "repo:org/other:ref:refs/heads/main"})
		}, "claims"},
		"another encoding of the same bytes": {func(w *world) string {
			t := []byte(w.token(nil))
			t[len(t)-1]++ // 64 bytes leave bits of the last letter unused
			return string(t)
		}, "malformed"},
		"an encoding with padding":        {func(w *world) string { return w.token(nil) + "==" }, "malformed"},
		"the standard alphabet of base64": {func(w *world) string { return w.token(claims{"x": ""})[:40] + "+/" + w.token(nil)[42:] }, "malformed"},
		"a line break":                    {func(w *world) string { t := w.token(nil); return t[:9] + "\n" + t[9:] }, "malformed"},
		"four parts":                      {func(w *world) string { return w.token(nil) + ".AA" }, "malformed"},
		"five parts, as if encrypted":     {func(w *world) string { return w.token(nil) + ".AA.AA" }, "malformed"},
		"the JSON serialisation":          {func(w *world) string { return `{"payload":"` + b64(w.payload(nil)) + `","signatures":[]}` }, "malformed"},
		"more than MaxToken bytes":        {func(w *world) string { return w.token(claims{"x": strings.Repeat("x", oidc.MaxToken)}) }, "malformed"},
		"an empty token":                  {func(*world) string { return "" }, "malformed"},
		"only dots":                       {func(*world) string { return ".." }, "malformed"},

		// The times.
		"expired": {func(w *world) string {
			return w.token(claims{"iat": noon.Add(-time.Hour).Unix(), "exp": noon.Add(-time.Minute).Unix()})
		}, "expired"},
		"not yet valid":        {func(w *world) string { return w.token(claims{"nbf": noon.Add(61 * time.Second).Unix()}) }, "early"},
		"issued in the future": {func(w *world) string { return w.token(claims{"iat": noon.Add(61 * time.Second).Unix()}) }, "early"},
		"no exp":               {func(w *world) string { return w.token(claims{"exp": nil}) }, "time"},
		"no iat":               {func(w *world) string { return w.token(claims{"iat": nil}) }, "time"},
		"exp before iat":       {func(w *world) string { return w.token(claims{"exp": noon.Add(-30 * time.Second).Unix()}) }, "time"},
		"valid for a year":     {func(w *world) string { return w.token(claims{"exp": noon.Add(365 * 24 * time.Hour).Unix()}) }, "lifetime"},
		"exp as text":          {func(w *world) string { return w.token(claims{"exp": fmt.Sprint(noon.Add(time.Minute).Unix())}) }, "time"},
		"exp is null": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"exp":null,`), w.payload(claims{"exp": nil})[1:]...))
		}, "time"},
		"exp larger than every number": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"exp":1e400,`), w.payload(claims{"exp": nil})[1:]...))
		}, "time"},
		"exp that overflows to now": {func(w *world) string {
			return w.issuer.Key().Sign(nil, append([]byte(`{"exp":18446744075504464216,`), w.payload(claims{"exp": nil})[1:]...))
		}, "time"},
		"a negative iat":            {func(w *world) string { return w.token(claims{"iat": -1}) }, "time"},
		"an nbf that is not a time": {func(w *world) string { return w.token(claims{"nbf": "now"}) }, "time"},

		// The issuer and the subject.
		"another issuer's token with the same sub": {func(w *world) string {
			i := oidctest.New(w.now)
			w.t.Cleanup(i.Close)
			return i.Token(audience, claims{"sub": main})
		}, "issuer"},
		"an issuer with an extra slash":        {func(w *world) string { return w.token(claims{"iss": w.issuer.URL + "/"}) }, "issuer"},
		"an issuer in another case":            {func(w *world) string { return w.token(claims{"iss": strings.ToUpper(w.issuer.URL)}) }, "issuer"},
		"an issuer with a path":                {func(w *world) string { return w.token(claims{"iss": w.issuer.URL + "/../"}) }, "issuer"},
		"an issuer with a user":                {func(w *world) string { return w.token(claims{"iss": strings.Replace(w.issuer.URL, "//", "//x@", 1)}) }, "issuer"},
		"an issuer that is a list":             {func(w *world) string { return w.token(claims{"iss": []string{w.issuer.URL}}) }, "issuer"},
		"no issuer":                            {func(w *world) string { return w.token(claims{"iss": nil}) }, "issuer"},
		"another sub":                          {func(w *world) string { return w.token(claims{"sub": "repo:org/y:ref:refs/heads/main"}) }, "claims"},
		"a sub that begins with the right one": {func(w *world) string { return w.token(claims{"sub": main + "-x"}) }, "claims"},
		"a sub that ends with the right one":   {func(w *world) string { return w.token(claims{"sub": "x" + main}) }, "claims"},
		"a sub in another case":                {func(w *world) string { return w.token(claims{"sub": strings.ToUpper(main)}) }, "claims"},
		"a sub with a space at its end":        {func(w *world) string { return w.token(claims{"sub": main + " "}) }, "claims"},
		"a sub with a NUL at its end":          {func(w *world) string { return w.token(claims{"sub": main + "\x00"}) }, "claims"},
		"a sub with a Cyrillic о in it":        {func(w *world) string { return w.token(claims{"sub": strings.Replace(main, "org", "оrg", 1)}) }, "claims"},
		"a sub of full-width letters":          {func(w *world) string { return w.token(claims{"sub": strings.Replace(main, "org", "ｏｒｇ", 1)}) }, "claims"},
		"a sub with an invisible character":    {func(w *world) string { return w.token(claims{"sub": strings.Replace(main, "org", "o\u200brg", 1)}) }, "claims"},
		"a sub that is a list":                 {func(w *world) string { return w.token(claims{"sub": []string{main}}) }, "claims"},
		"a sub that is a number":               {func(w *world) string { return w.token(claims{"sub": 7}) }, "claims"},
		"no sub":                               {func(w *world) string { return w.token(claims{"sub": nil}) }, "claims"},
		"a sub of more than 1,024 bytes":       {func(w *world) string { return w.token(claims{"sub": strings.Repeat("x", 2000)}) }, "claims"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			token := row.forge(w)
			id, err := w.verify(token)
			if got := reasonOf(err); got != row.reason || id != (oidc.Identity{}) {
				t.Errorf("the reason is %q, want %q (%v)", got, row.reason, err)
			}
			if err != nil && token != "" && len(token) > 10 && strings.Contains(err.Error(), token) {
				t.Error("the error contains the token")
			}
			w.want(w.token(nil), "") // the valid token is accepted
		})
	}
}

// A person who makes another valid signature of the same content must not get a second
// token.
func TestAnotherSignatureIsTheSameToken(t *testing.T) {
	w := newWorld(t)
	token := w.token(nil)
	cut := strings.LastIndexByte(token, '.') + 1
	sig, err := base64.RawURLEncoding.DecodeString(token[cut:])
	if err != nil {
		t.Fatal(err)
	}
	// For an ECDSA signature (r, s), (r, n-s) is valid too.
	n := w.issuer.Key().Signer.(*ecdsa.PrivateKey).Curve.Params().N
	other := new(big.Int).Sub(n, new(big.Int).SetBytes(sig[32:])).FillBytes(make([]byte, 32))
	again := token[:cut] + b64(append(sig[:32:32], other...))
	a, err1 := w.verify(token)
	b, err2 := w.verify(again)
	if err1 != nil || err2 != nil || a.Use != b.Use || token == again {
		t.Errorf("errors %v, %v: want the same token for both signatures", err1, err2)
	}
	if c, err := w.verify(w.token(nil)); err != nil || c.Use == a.Use {
		t.Errorf("another token has the same Use: %v", err)
	}
}

// A pattern must not match more than its author expects.
func TestPatternsDoNotMatchTooMuch(t *testing.T) {
	for _, row := range []struct {
		pattern, sub, what string
		match              bool
	}{
		{"repo:org/*:ref:refs/heads/main", "repo:org/x:ref:refs/heads/main", "the main branch of any repository", true},
		{"repo:org/*", "repo:org/x:pull_request", "a pull request, which everyone can open", false},
		{"repo:org/*", "repo:org/x:ref:refs/heads/main", "any branch", false},
		{"repo:org/*", "repo:org/x", "one name", true},
		{"repo:org/x:ref:refs/heads/*", "repo:org/x:ref:refs/heads/release", "a branch without a slash", true},
		{"repo:org/x:ref:refs/heads/*", "repo:org/x:ref:refs/heads/a/b", "a branch with a slash", false},
		{"repo:org*:ref:refs/heads/main", "repo:org/x:ref:refs/heads/main", "a * across a slash", false},
		{"repo:org*/x:ref:refs/heads/main", "repo:org-of-others/x:ref:refs/heads/main", "another org with the same prefix", true},
		{"repo:org/x:*", "repo:org/x:environment:prod", "a * across a colon", false},
		{"repo:org/*-infra:ref:refs/heads/main", "repo:org/shop-infra:ref:refs/heads/main", "a suffix", true},
		{"repo:org/*-infra:ref:refs/heads/main", "repo:org/-infra:ref:refs/heads/main", "a * for nothing", false},
		{"system:serviceaccount:*:runner", "system:serviceaccount:a:b:runner", "a namespace with a colon", false},
		{"system:serviceaccount:prod-*:runner", "system:serviceaccount:prod-eu:runner", "a namespace", true},
		{"*@acme.example", "evil@other.example@acme.example", "a * across an @", false},
		{"auth0|*", "auth0|abc|google|me", "a * across a bar", false},
		{"runner-*", "runner-ü", "a letter outside ASCII", false},
		{"runner-*", "runner-1\nadmin", "a * across a line break", false},
		{"runner-*", "runner- ", "a space", false},
		{"runner-*", "runner-%2f", "an escape", false},
		{"a*b*c", "aXbYbZc", "two stars", true},
		{"a*b*c", "abc", "two * for nothing", false},
		{"[a-z]?x", "bx", "other wildcards", false},
		{"a.c", "abc", "a dot is not a wildcard", false},
	} {
		w := newWorld(t)
		w.trust.Claims = map[string]string{"sub": row.pattern}
		if err := w.trust.Check(oidc.Rules{}); err != nil {
			t.Errorf("%s: %v", row.pattern, err)
			continue
		}
		_, err := w.verify(w.token(claims{"sub": row.sub}))
		if (err == nil) != row.match {
			t.Errorf("%s against %q: %v; want %t: %s", row.pattern, row.sub, err, row.match, row.what)
		}
	}
}

func TestClaimsOfAnotherTypeAreRefused(t *testing.T) {
	for name, v := range map[string]any{
		"a list with one value":       []string{"prod"},
		"a list with the right value": []string{"dev", "prod"},
		"a number":                    7,
		"true":                        true,
		"an object":                   claims{"prod": "prod"},
		"null":                        nil,
		"an empty object":             claims{},
	} {
		w := newWorld(t)
		w.trust.Claims = map[string]string{"environment": "prod"}
		w.want(w.token(claims{"environment": v}), "claims")
		w.trust.Claims = map[string]string{"/a/environment": "prod"}
		w.want(w.token(claims{"a": v, "environment": "prod"}), "claims")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestABoundTrustRefusesUnboundTokens(t *testing.T) {
	w := newWorld(t)
	w.trust.Bound = true
	w.want(w.issuer.Token(audience+"#"+binding, claims{"sub": main}), "")
	w.want(w.token(nil), "unbound")
	// A control plane that does not know its own host has no binding. Then an
	// audience with an empty binding must not count as bound.
	if _, err := w.verifier.Verify(t.Context(), w.issuer.Token(audience+"#", claims{"sub": main}), "", []oidc.Trust{w.trust}); reasonOf(err) != "audience" {
		t.Errorf("an empty binding: %v", err)
	}
}

// Invented tokens do not show what a trust requires. A token that no trust can match
// causes no request for keys.
func TestInventedTokensRevealNothing(t *testing.T) {
	w := newWorld(t)
	stranger := oidctest.Unserved(w.issuer.URL, w.now)
	right, wrong := stranger.Token(audience, claims{"sub": main}), stranger.Token("x", claims{"sub": "y", "exp": 1})
	_, err1 := w.verify(right)
	_, err2 := w.verify(wrong)
	if err1 == nil || err2 == nil || err1.Error() != err2.Error() {
		t.Errorf("the errors differ: %v, and %v", err1, err2)
	}
	other := newWorld(t)
	other.want(w.token(nil), "issuer")
	other.want("x.y.z", "malformed")
	if other.issuer.Asked(oidctest.ConfigPath) > 0 {
		t.Error("a request was sent to the issuer of the trust")
	}
	_, err := w.verify(w.token(claims{"sub": "repo:org/other:ref:refs/heads/main"}))
	if strings.Contains(err.Error(), "org/x") || fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("the refusal shows the pattern of the trust: %v", err)
	}
}

// For every signed text: no panic, and an identity only if the claims match the trust.
func FuzzClaims(f *testing.F) {
	issuer := oidctest.Unserved("https://issuer.example", func() time.Time { return noon })
	f.Add([]byte(`{"alg":"ES256","kid":"key-1"}`), marshal(issuer.Claims("a", nil)))
	f.Add([]byte(`{"alg":"ES256","kid":"key-1","typ":"JWT"}`), []byte(`{"iss":"https://issuer.example","aud":["a"],"sub":"someone","iat":1795262400,"exp":1795262500.5}`))
	f.Add([]byte(`{"alg":"none"}`), []byte(`{}`))
	v := oidc.NewVerifier(answers(func(*http.Request) (*http.Response, error) { panic("no request is expected") }), func() time.Time { return noon }, oidc.Rules{})
	trust := oidc.Trust{Issuer: issuer.URL, Audience: "a", Claims: map[string]string{"sub": "some*"}, Keys: issuer.KeySet()}
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		id, err := v.Verify(t.Context(), issuer.Key().SignRaw(header, payload), binding, []oidc.Trust{trust})
		if err != nil {
			if fairlead.KindOf(err) != fairlead.KindUnauthenticated || id != (oidc.Identity{}) {
				t.Errorf("the error is %v, with the identity %+v", err, id)
			}
			return
		}
		if !strings.HasPrefix(id.Subject, "some") || id.Issuer != issuer.URL || !id.Expires.After(noon.Add(-oidc.MaxSkew)) {
			t.Errorf("%s %s gave %+v", header, payload, id)
		}
	})
}
