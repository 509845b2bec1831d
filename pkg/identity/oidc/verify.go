package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Verifier verifies tokens with the keys of their issuers, which it caches. Safe for
// concurrent use.
type Verifier struct {
	rules   Rules
	now     func() time.Time
	issuers *issuers
}

// NewVerifier returns a Verifier that requests issuers over transport: the result of
// Transport, or a test's. It takes a transport, not a client, because a transport follows
// no redirects and keeps no cookies.
func NewVerifier(transport http.RoundTripper, now func() time.Time, rules Rules) *Verifier {
	if transport == nil || now == nil {
		panic("oidc: a verifier needs a transport and a clock")
	}
	known, err := simplelru.NewLRU[string, *issuer](maxIssuers, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Verifier{rules: rules, now: now, issuers: &issuers{transport: transport, now: now, rules: rules,
		turns: make(chan struct{}, maxAsking), known: known}}
}

// Rules returns the rules for valid trusts.
func (v *Verifier) Rules() Rules { return v.rules }

// Verify returns the identity of the token for the first trust that it matches. A token
// is bound to this request if its audience is the trust's audience, "#" and binding. If
// binding is "", no token is bound. The caller must ensure that a token that is not bound
// has only one holder.
//
// The error is of KindUnauthenticated if the token matches no trust, with the reason in
// its details. It is of KindUnavailable if the issuer's keys could not be fetched. Verify
// sends requests only to issuers of the trusts, and only for tokens that name them.
func (v *Verifier) Verify(ctx context.Context, raw, binding string, trusts []Trust) (Identity, error) {
	t, err := parse(raw)
	if err != nil {
		return Identity{}, err
	}
	iss, _ := t.claims["iss"].(string)
	subject, _ := t.claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject {
		return Identity{}, refused("claims", "its sub is missing, too long or not text")
	}
	var last error = refused("issuer", "its issuer %s is not trusted", quote(iss))
	for i, trust := range trusts {
		if trust.Issuer != iss || trust.Check(v.rules) != nil {
			continue
		}
		expires, bound, err := v.one(ctx, t, binding, trust)
		if err == nil {
			use := sha256.Sum256([]byte(iss + "\n" + string(t.payload)))
			return Identity{Issuer: iss, Subject: subject, Trust: i, Use: hex.EncodeToString(use[:]), Expires: expires, Bound: bound}, nil
		}
		last = err
	}
	return Identity{}, last
}

// one compares the token with one trust. It checks the claims only after the signature.
// So a sender of invented tokens cannot find out what a trust requires.
func (v *Verifier) one(ctx context.Context, t token, binding string, trust Trust) (expires time.Time, bound bool, err error) {
	if expires, err = v.signed(ctx, t, trust.Issuer, trust.Keys); err != nil {
		return expires, false, err
	}
	bound, err = trust.matches(t.claims, binding)
	return expires, bound, err
}

// signed returns when the token expires. It returns an error unless the issuer has signed the token, with one of the given
// keys if there are any, and the token is valid now.
func (v *Verifier) signed(ctx context.Context, t token, issuer string, given json.RawMessage) (expires time.Time, err error) {
	var keys []jose.JSONWebKey
	if len(given) > 0 {
		all, err := parseKeys(given)
		if err != nil {
			return expires, refused("key", "the keys that were given for its issuer cannot be read")
		}
		if keys = named(all, t.kid); len(keys) == 0 {
			return expires, refused("key", "the keys that were given for its issuer have none with the token's key id")
		}
	} else if keys, err = v.issuers.find(ctx, issuer, t.kid); err != nil {
		return expires, err
	}
	if !t.signedBy(keys) {
		return expires, refused("signature", "its signature is not valid for the issuer's key")
	}
	return t.timely(v.now())
}

// signedBy reports whether one of the keys has signed the token.
func (t token) signedBy(keys []jose.JSONWebKey) bool {
	for _, k := range keys {
		for _, a := range suits(k) {
			if string(a) != t.alg {
				continue
			}
			jws, err := jose.ParseSignedCompact(t.raw, []algorithm{a})
			if err != nil {
				return false
			}
			if payload, err := jws.Verify(k.Key); err == nil && bytes.Equal(payload, t.payload) {
				return true
			}
		}
	}
	return false
}
