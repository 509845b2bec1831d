// Package seal encrypts sensitive values at rest under a key that lives
// outside of the database: who copies the database, or a backup of it, has
// nothing.
//
// A sealed value is
//
//	1 byte    format, 1
//	8 bytes   id of the key
//	12 bytes  nonce, random
//	n bytes   the value, encrypted with AES-256-GCM
//	16 bytes  authentication tag, over the above and the context
//
// The context names the place of the value, such as
// "install/ins_x/input/password". It is not stored but must be given again to
// open the value, so that who can write the database cannot make one install
// read another's password by moving rows. The same place's earlier value does
// open: a rollback of a row is not detected here.
//
// Values are sealed by the key itself rather than by a data key of their own.
// Random nonces bound a key to 2^32 values (NIST SP 800-38D, section 8.3, for
// a collision chance of 2^-32): 13 years of ten a second, against which keys
// rotate anyway. Data keys would raise that bound, cost 40 bytes a value and a
// second key schedule, and protect from nothing else: they are opened by the
// same key at the same place. The driver for a key service (package kms), where
// wrapping saves a call for each value, does have data keys, and format 2.
package seal

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Sealer seals and opens values. Safe for concurrent use. Every driver passes
// sealtest.
type Sealer interface {
	// Seal encrypts plaintext so that only Open with the same context returns
	// it. The context must not be empty, and is no secret: it may show up in
	// errors. Sealing the same value again gives other bytes.
	Seal(ctx context.Context, plaintext []byte, context string) ([]byte, error)

	// Open returns what was sealed with the context. It is ErrUnknownKey when
	// the key that sealed it is not at hand, and ErrDamaged when the bytes were
	// changed or cut, or were sealed with another context; the two last cannot
	// be told apart.
	Open(ctx context.Context, sealed []byte, context string) ([]byte, error)
}

// Errors of Open. They come wrapped in a *fairlead.Error that says what to do.
var (
	// ErrDamaged says that the bytes are not what Seal made for this context.
	ErrDamaged = errors.New("the sealed value is damaged or belongs elsewhere")
	// ErrUnknownKey says that the value was sealed with a key that is missing.
	ErrUnknownKey = errors.New("the key that sealed the value is missing")
)

// Overhead is how many bytes a value that a Keyring sealed is longer than the
// plain one.
const Overhead = 1 + keyIDSize + 12 + 16

// Check reports why every driver refuses to seal or open a value for the
// place: it is missing, or the context has ended.
func Check(ctx context.Context, place string) error {
	if place == "" {
		return fairlead.Invalid(fairlead.CodeInvalidSealContext, "a value is sealed for a place, which is missing")
	}
	return ctx.Err()
}

// Damaged returns the error of a driver's Open that wraps ErrDamaged.
func Damaged(place string) error {
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeSealedValueDamaged,
		Message: fmt.Sprintf("the sealed value of %s cannot be opened", place),
		Hint:    "The data was changed outside of fairlead, or the disk damaged it. Set the value again, or restore a backup.",
		Err:     ErrDamaged,
	}
}

// UnknownKey returns the error of a driver's Open that wraps ErrUnknownKey and
// the cause, if there is one. The hint says how the key may be had.
func UnknownKey(place, key, hint string, cause error) error {
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeSealingKeyMissing,
		Message: fmt.Sprintf("the value of %s was sealed with key %s, which is missing", place, key),
		Hint:    hint,
		Err:     errors.Join(ErrUnknownKey, cause),
	}
}
