// Package identity has the tokens that authenticate callers. A token of the control API
// is random, and the table stores its hash. The tokens of runners and jobs are minted
// with a key that is not in the table. A minted token contains its purpose and subject,
// and is valid only as long as the subject is valid.
package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
)

// Purpose is the use of a minted token. It is also the token's prefix, so that a leaked
// token can be recognised.
type Purpose string

// The purposes of minted tokens.
const (
	Session   Purpose = "fls" // an agent's session: subject is runner "/" session
	Launch    Purpose = "fll" // to exchange for a job spec, once: subject is the job
	Lease     Purpose = "flj" // to report for one epoch of a job: subject is the job
	State     Purpose = "flt" // to read, lock and write the state of one epoch of a job: subject is the job
	Warm      Purpose = "flw" // to wait for a job and get its launch token, once: subject is runner "/" warm step
	Challenge Purpose = "fln" // a nonce to sign: subject is random
	Renewal   Purpose = "flr" // a nonce to sign for the renewal of a session: subject is runner "-" session, epoch counts the renewals
)

// LoginNonce is the purpose of the nonce of a person's login: subject is random.
const LoginNonce Purpose = "flo"

// The prefixes of random tokens.
const (
	PrefixAPI       = "fla" // control API
	PrefixLogin     = "flu" // control API, for a person who has logged in
	PrefixLink      = "fli" // control API, one login of a person of a customer
	PrefixAccount   = "flm" // control API, for a program that has proved to be a service account
	PrefixEnrolment = "fle" // single-use enrolment
)

// Claims is the content of a minted token.
type Claims struct {
	Purpose Purpose
	Subject string
	Epoch   int64     // of jobs and renewals; 0 otherwise
	Expires time.Time // zero: only the table decides
	// Role is the ARN of the AWS role that the caller must prove; "": none. Only launch tokens and warm tokens have one.
	// Read sets it; an agent adds it to a minted token (see package bound).
	Role string
}

// Minter makes and reads tokens with one secret key. Safe for concurrent use.
type Minter struct {
	key        []byte
	generation string // the last part of each minted token; "": generation 0
}

// MinKey is the shortest key of a Minter, in bytes.
const MinKey = 32

// NewMinter returns a Minter for a table that was never restored. It panics if key is
// shorter than MinKey.
func NewMinter(key []byte) *Minter {
	if len(key) < MinKey {
		panic("identity: the key of a minter is shorter than MinKey")
	}
	return &Minter{key: append([]byte(nil), key...)}
}

// InGeneration returns a Minter with the same key for a generation of the table. It refuses
// the minted tokens of all other generations: after a restore, the table grants an epoch
// of a job a second time, and the token of the first attempt must not fit.
func (m *Minter) InGeneration(number int64) *Minter {
	in := &Minter{key: m.key}
	if number != 0 {
		in.generation = ".g" + strconv.FormatInt(number, 10)
	}
	return in
}

// Mint returns the token with the claims. The same claims give the same token, so that a
// lost answer can be repeated.
func (m *Minter) Mint(c Claims) string {
	var exp int64
	if !c.Expires.IsZero() {
		exp = c.Expires.Unix()
	}
	body := string(c.Purpose) + "_" + c.Subject + "." + strconv.FormatInt(c.Epoch, 10) + "." + strconv.FormatInt(exp, 10) + m.generation
	return body + "." + m.mac(body)
}

func (m *Minter) mac(body string) string {
	h := hmac.New(sha256.New, m.key)
	h.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Read returns the claims of a token if it was minted for one of the purposes and has
// not expired. Otherwise the error is of KindUnauthenticated, with the same text for
// every cause.
func (m *Minter) Read(token string, now time.Time, purposes ...Purpose) (Claims, error) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return Claims{}, Unauthenticated()
	}
	text, role, isBound := bound.Cut(token[:i])
	mac := m.mac(text)
	if isBound {
		mac = bound.MAC(mac, role)
	}
	if !hmac.Equal([]byte(token[i+1:]), []byte(mac)) {
		return Claims{}, Unauthenticated()
	}
	prefix, rest, ok := strings.Cut(text, "_")
	if isBound && (role == "" || Purpose(prefix) != Launch && Purpose(prefix) != Warm) {
		return Claims{}, Unauthenticated()
	}
	parts := strings.Split(rest, ".")
	if !ok || len(parts) < 3 {
		return Claims{}, Unauthenticated()
	}
	if generation := strings.Join(append([]string{""}, parts[3:]...), "."); generation != m.generation {
		return Claims{}, NoLonger()
	}
	epoch, err1 := strconv.ParseInt(parts[1], 10, 64)
	exp, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		return Claims{}, Unauthenticated()
	}
	c := Claims{Purpose: Purpose(prefix), Subject: parts[0], Epoch: epoch, Role: role}
	if exp != 0 {
		c.Expires = time.Unix(exp, 0)
		if !now.Before(c.Expires) {
			return Claims{}, NoLonger()
		}
	}
	for _, p := range purposes {
		if p == c.Purpose {
			return c, nil
		}
	}
	return Claims{}, NoLonger()
}

// Unauthenticated returns the same error for every refused token, so that a caller
// cannot find out which part of the token is wrong.
func Unauthenticated() *fairlead.Error {
	return &fairlead.Error{
		Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeUnauthenticated,
		Message: "the token is missing, wrong or expired",
		Hint:    "Log in with {session.login}; a runner asks for a new session.",
	}
}

// errWasGood marks the refusal of a token that the control plane has issued.
var errWasGood = errors.New("the control plane has issued this token")

// NoLonger returns an error that looks like Unauthenticated to the caller. It is for a
// token that the control plane has issued, and that has expired, was revoked, or has
// another purpose. WasGood distinguishes this error from the error for an invented token.
func NoLonger() *fairlead.Error {
	e := Unauthenticated()
	e.Err = errWasGood
	return e
}

// WasGood reports whether the error comes from NoLonger.
func WasGood(err error) bool { return errors.Is(err, errWasGood) }

// NewToken returns a random token: the prefix, "_", and 256 bits.
func NewToken(prefix string) string {
	b := make([]byte, 32)
	rand.Read(b) // never fails (crypto/rand)
	return prefix + "_" + base64.RawURLEncoding.EncodeToString(b)
}

// Token returns the token for the prefix and the text. The text must contain a value
// that only the requester knows. The same text gives the same token, so that a lost
// answer can be repeated.
func (m *Minter) Token(prefix, text string) string {
	return prefix + "_" + m.mac("token\n"+prefix+"\n"+text)
}

// Hash returns the digest of a token that the table stores. The token is random, so a
// fast digest is as safe as a slow one.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Digest returns a keyed digest of the text. The text may contain secrets that are easy
// to guess: without the key, a reader of the table cannot test guesses.
func (m *Minter) Digest(text string) string { return m.mac("digest\n" + text) }
