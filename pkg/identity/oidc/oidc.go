// Package oidc verifies who a workload is by the token that its platform gives
// it: a Kubernetes service account, a CI job, a virtual machine. Nobody hands a
// secret to anybody. A runner's trusts name issuers and what their tokens must
// say; a token opens a session if the issuer has signed it, it is meant for us,
// it is of now, and it says what one trust wants.
//
// What the token says of where keys are is never followed: keys are those that
// the issuer of a trust publishes, or those that the trust holds. Cryptography
// is go-jose's; what is here decides which keys, which algorithms, which claims.
package oidc

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The bounds of a token.
const (
	// MaxToken is the longest token, in bytes. Those of Azure, the longest that
	// are known, have some 2,000; a request header of 8 KiB carries any of them.
	MaxToken = 12 << 10
	// MaxLifetime is the longest that a token may be good for, from iat to exp.
	// Azure's managed identities have a day, and date it back by five minutes;
	// all others have an hour or less. A Kubernetes token of the old kind, in a
	// Secret, has no end at all and is refused.
	MaxLifetime = 24*time.Hour + 10*time.Minute
	// MaxSkew is how far the issuer's clock may be from ours, either way.
	MaxSkew = time.Minute
	// maxSubject bounds sub, in bytes, which is kept with the session.
	maxSubject = 1024
)

// algorithms are those that a token may be signed with: all are asymmetric, so
// what verifies a token cannot make one.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// Identity is what a token that was accepted says.
type Identity struct {
	Issuer  string
	Subject string
	// Trust is the index, among those that were given, of the trust that the
	// token meets.
	Trust int
	// Use names the token, by what was signed and not by its signature: who
	// can change the one and not the other has no second token.
	Use     string
	Expires time.Time
	// Bound says that the issuer has signed the request's binding as well: the
	// token is good for this request alone.
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
