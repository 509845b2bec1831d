// Package bound binds a launch token or a warm token to an AWS role. Who has a bound token must also prove that it has
// the role. The agent binds the token before it gives it to a task, because others can read the settings of a task: ECS
// sends them to each rule of the account's event bus, and shows them to each role that may describe tasks.
//
// A binding is like the caveat of a macaroon (Birgisson et al., 2014): the new signature is a MAC of the role whose key is the
// old signature. So the agent needs no request, and no holder can remove the binding, or replace the role.
package bound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// separator ends the signed text of the original token. It is in no identifier.
const separator = "~"

// Token returns the token, bound to the role with this ARN. A token that is no minted token is returned unchanged: the
// control plane refuses it anyway.
func Token(token, role string) string {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return token
	}
	return token[:i] + separator + base64.RawURLEncoding.EncodeToString([]byte(role)) + "." + MAC(token[i+1:], role)
}

// Role returns the ARN of the role that a token is bound to, or "" if it is bound to none. It does not verify the token.
func Role(token string) string {
	_, role, _ := Cut(token[:max(0, strings.LastIndexByte(token, '.'))])
	return role
}

// Cut splits the signed text of a token into the text of the original token and the role. ok is false if the token is
// bound to no role. The role is "" if the binding is not valid.
func Cut(text string) (original, role string, ok bool) {
	original, encoded, ok := strings.Cut(text, separator)
	if b, err := base64.RawURLEncoding.Strict().DecodeString(encoded); err == nil {
		role = string(b)
	}
	return original, role, ok
}

// MAC returns the signature of a bound token. mac is the signature of the original token.
func MAC(mac, role string) string {
	h := hmac.New(sha256.New, []byte(mac))
	h.Write([]byte("role\n" + role))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Nonce returns what a proof of the role must sign instead of a nonce of the control plane. It does not reveal the token to
// STS.
func Nonce(token string) string {
	sum := sha256.Sum256([]byte("token\n" + token))
	return hex.EncodeToString(sum[:])
}
