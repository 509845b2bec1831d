// Package seal encrypts sensitive values at rest with a key that is outside the database. A person who copies only the
// database or its backup cannot read the values.
//
// A sealed value is
//
//	1 byte    format, 1
//	8 bytes   id of the key
//	12 bytes  nonce, random
//	n bytes   the value, encrypted with AES-256-GCM
//	16 bytes  authentication tag, over the above and the context
//
// The context is the place of the value, such as "install/ins_x/input/password". The context is not stored, and Open
// needs the same context. So a person who can write the database cannot move rows to let one install read another's
// password. Open accepts an earlier value of the same place, because this package does not detect a rollback of a row.
//
// The key itself encrypts the values, without data keys. Random nonces limit a key to 2^32 values (NIST SP 800-38D,
// section 8.3, for a collision chance of 2^-32). At ten values a second this takes 13 years, and keys rotate before
// that. Data keys would raise the limit, but cost 40 bytes a value and a second key schedule. They would not add
// protection, because the same key at the same place opens the data keys. The driver for a key service (package kms)
// uses data keys and format 2, because a data key saves a call of the service for each value.
package seal

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Sealer seals and opens values. Safe for concurrent use. Every driver passes sealtest.
type Sealer interface {
	// Seal encrypts plaintext so that only Open with the same context returns it. The context must not be empty. The
	// context is not secret and may appear in errors. Sealing the same value twice returns different bytes.
	Seal(ctx context.Context, plaintext []byte, context string) ([]byte, error)

	// Open returns the value that was sealed with the context. It returns ErrUnknownKey if
	// the Sealer does not have the key. It returns ErrDamaged if the bytes were changed or
	// truncated, or were sealed with another context; Open cannot distinguish these causes.
	Open(ctx context.Context, sealed []byte, context string) ([]byte, error)
}

// Errors of Open. They are wrapped in a *fairlead.Error with a hint.
var (
	// ErrDamaged reports that Seal did not create these bytes for this context.
	ErrDamaged = errors.New("the sealed value is damaged or belongs to another place")
	// ErrUnknownKey reports that the key that sealed the value is missing.
	ErrUnknownKey = errors.New("the key that sealed the value is missing")
)

// Overhead is the number of bytes that a Keyring adds to a value.
const Overhead = 1 + keyIDSize + 12 + 16

// Check returns an error if a driver must refuse to seal or open: the place is empty, or
// the context has ended.
func Check(ctx context.Context, place string) error {
	if place == "" {
		return fairlead.Invalid(fairlead.CodeInvalidSealContext, "the place of a sealed value is empty")
	}
	return ctx.Err()
}

// Damaged returns the error of a driver's Open that wraps ErrDamaged.
func Damaged(place string) error {
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeSealedValueDamaged,
		Message: fmt.Sprintf("the sealed value of %s cannot be opened", place),
		Hint:    "The value was changed outside of fairlead, or the disk damaged it. Set the value again, or restore a backup.",
		Err:     ErrDamaged,
	}
}

// UnknownKey returns the error of a driver's Open that wraps ErrUnknownKey and the cause,
// if there is one. The hint explains how to get the key.
func UnknownKey(place, key, hint string, cause error) error {
	return &fairlead.Error{
		Kind: fairlead.KindInternal, Code: fairlead.CodeSealingKeyMissing,
		Message: fmt.Sprintf("the value of %s was sealed with key %s, which is missing", place, key),
		Hint:    hint,
		Err:     errors.Join(ErrUnknownKey, cause),
	}
}
