package oidc

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// algorithm is a signature algorithm of tokens.
type algorithm = jose.SignatureAlgorithm

// The limits of an issuer's keys.
const (
	maxKeyCount = 100
	// minRSA is the minimum of NIST SP 800-131A; maxRSA limits the time of a
	// verification.
	minRSA, maxRSA = 2048, 8192 // bits
)

// parseKeys returns the keys of a JSON Web Key Set that can verify a token. It skips all
// other keys, because a set may contain keys for other uses.
func parseKeys(data []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("it is not a JSON Web Key Set")
	}
	if len(set.Keys) > maxKeyCount {
		return nil, errors.New("it has too many keys")
	}
	var out []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !k.Valid() || !k.IsPublic() || k.KeyID == "" || k.Use != "" && k.Use != "sig" || len(suits(k)) == 0 {
			continue
		}
		out = append(out, k)
	}
	return out, nil
}

// secretIn reports whether the set contains a private or a symmetric key, which must not
// be in a trust.
func secretIn(data []byte) bool {
	var set struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(data, &set) != nil {
		return false
	}
	return slices.ContainsFunc(set.Keys, func(k map[string]json.RawMessage) bool { return k["d"] != nil || k["k"] != nil })
}

// suits returns the algorithms of the key. A key is never used with an algorithm of
// another kind of key.
func suits(k jose.JSONWebKey) (out []algorithm) {
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n >= minRSA && n <= maxRSA {
			out = []algorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			out = []algorithm{jose.ES256}
		case elliptic.P384():
			out = []algorithm{jose.ES384}
		case elliptic.P521():
			out = []algorithm{jose.ES512}
		}
	case ed25519.PublicKey:
		out = []algorithm{jose.EdDSA}
	}
	if k.Algorithm != "" {
		out = slices.DeleteFunc(out, func(a algorithm) bool { return string(a) != k.Algorithm })
	}
	return out
}

// named returns the keys with the key id.
func named(keys []jose.JSONWebKey, kid string) (out []jose.JSONWebKey) {
	for _, k := range keys {
		if k.KeyID == kid {
			out = append(out, k)
		}
	}
	return out
}
