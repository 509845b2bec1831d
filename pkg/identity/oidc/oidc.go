// Package oidc verifies the identity of a workload with the token that its platform
// issues: to a Kubernetes service account, a CI job or a virtual machine. No secret is
// exchanged. Trusts name issuers, and the claims that their tokens must have.
// A token is accepted if the issuer has signed it, its audience is the control plane,
// it is valid now, and its claims match one trust.
//
// The verifier never uses a location of keys from the token. It uses only the keys that
// the issuer of a trust publishes, or the keys in the trust. go-jose does the
// cryptography. This package decides which keys, algorithms and claims are accepted.
package oidc

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The limits of a token.
const (
	// MaxToken is the longest accepted token, in bytes. Azure's tokens, the longest
	// known ones, have some 2,000. A request header of 8 KiB has room for each known
	// token.
	MaxToken = 12 << 10
	// MaxLifetime is the longest lifetime of a token, from iat to exp. Tokens of
	// Azure's managed identities are valid for a day, and iat is five minutes in the
	// past. All others are valid for an hour or less. An old Kubernetes token from a
	// Secret never expires and is refused.
	MaxLifetime = 24*time.Hour + 10*time.Minute
	// MaxSkew is how much the issuer's clock may differ from this clock.
	MaxSkew = time.Minute
	// maxSubject is the maximum size of the claim sub, in bytes. sub is stored with the
	// session.
	maxSubject = 1024
)

// algorithms returns the accepted signature algorithms. All are asymmetric, so that a key
// that verifies a token cannot sign one.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// Identity is the content of an accepted token.
type Identity struct {
	Issuer  string
	Subject string
	// Trust is the index of the trust that the token matches, in the list that
	// Verify got.
	Trust int
	// Use identifies the token. It depends on the signed content and not on the
	// signature: a person who can make another valid signature of the same content
	// must not get a second token.
	Use     string
	Expires time.Time
	// Bound reports whether the issuer has also signed the request's binding, so that
	// the token is valid only for this request.
	Bound bool
}

// refused returns the error for a token that may not open a session.
func refused(reason, format string, args ...any) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeOIDCTokenRefused,
		Message: "the OIDC token is not accepted: " + fmt.Sprintf(format, args...), Details: map[string]string{"reason": reason}}
}

// unavailable returns the error for a token that could not be verified.
func unavailable(message string, err error) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeOIDCIssuerUnavailable, Message: message, Err: err}
}

// quote shortens and quotes text from a caller.
func quote(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 80)]) }
