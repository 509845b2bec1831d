package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Verifier verifies tokens by the keys of their issuers, which it keeps. Safe
// for concurrent use.
type Verifier struct {
	rules   Rules
	now     func() time.Time
	issuers *issuers
}

// NewVerifier returns a Verifier that reaches issuers by transport, one of
// Transport's or a test's. A transport follows no redirects and keeps no
// cookies; that is why it is not a client.
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

// Rules are what trusts have to keep to.
func (v *Verifier) Rules() Rules { return v.rules }

// Verify returns who has the token, if one of the trusts wants it; the first
// that does is the one. binding is what the audience may hold, behind its own
// text and a #, to be good for this request alone; "": nothing. That a token
// which is not bound is used by one holder alone is the caller's business.
//
// The error is of KindUnauthenticated when the token opens nothing, with the
// reason in its details, and of KindUnavailable when its issuer could not be
// asked for its keys. Nobody is asked but the issuers of the trusts, and only
// of a token that they might have made.
func (v *Verifier) Verify(ctx context.Context, raw, binding string, trusts []Trust) (Identity, error) {
	t, err := parse(raw)
	if err != nil {
		return Identity{}, err
	}
	iss, _ := t.claims["iss"].(string)
	subject, _ := t.claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject {
		return Identity{}, refused("claims", "its sub is missing, too long or no text")
	}
	var last error = refused("issuer", "the runner does not trust its issuer %s", quote(iss))
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

// one judges the token by one trust. What it claims is looked at only once it
// is known who says so: nobody learns what a trust wants by making tokens up.
func (v *Verifier) one(ctx context.Context, t token, binding string, trust Trust) (expires time.Time, bound bool, err error) {
	var keys []jose.JSONWebKey
	if len(trust.Keys) > 0 {
		all, err := parseKeys(trust.Keys)
		if err != nil {
			return expires, false, refused("key", "the keys of its trust cannot be read")
		}
		if keys = named(all, t.kid); len(keys) == 0 {
			return expires, false, refused("key", "its trust has no key of the name that the token gives")
		}
	} else if keys, err = v.issuers.find(ctx, trust.Issuer, t.kid); err != nil {
		return expires, false, err
	}
	if !t.signedBy(keys) {
		return expires, false, refused("signature", "its signature is not its issuer's")
	}
	if expires, err = t.timely(v.now()); err != nil {
		return expires, false, err
	}
	bound, err = trust.matches(t.claims, binding)
	return expires, bound, err
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
