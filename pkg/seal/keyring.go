package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	// KeySize is the length of a key's secret in bytes: AES-256.
	KeySize = 32

	keyIDSize = 8
	format1   = 1
)

// Key is a secret and the id that is derived from it, so no other key can have this id. A Key prints as its id. The
// zero Key is invalid.
type Key struct {
	id     [keyIDSize]byte
	secret [KeySize]byte
	valid  bool
}

// NewKey returns the key with the secret, which must be KeySize random bytes.
func NewKey(secret []byte) (Key, error) {
	if len(secret) != KeySize {
		return Key{}, fairlead.Invalid(fairlead.CodeInvalidKey, "a key has %d bytes, but this one has %d", KeySize, len(secret))
	}
	k := Key{valid: true}
	copy(k.secret[:], secret)
	// HKDF ensures that the id reveals nothing about the secret.
	id, err := hkdf.Key(sha256.New, secret, nil, "fairlead seal key id", keyIDSize)
	if err != nil {
		return Key{}, fmt.Errorf("derive key id: %w", err)
	}
	copy(k.id[:], id)
	return k, nil
}

// GenerateKey returns a new random key.
func GenerateKey() Key {
	secret := make([]byte, KeySize)
	_, _ = rand.Read(secret) // its contract guarantees that it never fails
	k, err := NewKey(secret)
	if err != nil {
		panic(err) // the length is correct, and HKDF supports 8 bytes
	}
	return k
}

// ID returns the key's id, 16 hex digits. It is not secret.
func (k Key) ID() string { return hex.EncodeToString(k.id[:]) }

// String returns the id, never the secret.
func (k Key) String() string { return "key " + k.ID() }

// Format writes String for every verb, because %x and %d would print the bytes of the
// secret.
func (k Key) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, k.String()) }

// LogValue returns String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Keyring is a Sealer that has its keys in memory.
type Keyring struct {
	first Key
	aeads map[[keyIDSize]byte]cipher.AEAD
}

var _ Sealer = (*Keyring)(nil)

// NewKeyring returns a Sealer. The first key seals, and all keys can open. To rotate, put a
// new key before the old ones. NewKeyring panics if there is no key, an invalid key or a
// key twice.
func NewKeyring(keys ...Key) *Keyring {
	if len(keys) == 0 {
		panic("seal: a keyring needs a key")
	}
	r := &Keyring{first: keys[0], aeads: make(map[[keyIDSize]byte]cipher.AEAD, len(keys))}
	for _, k := range keys {
		if !k.valid {
			panic("seal: a key was not made by NewKey or GenerateKey")
		}
		if r.aeads[k.id] != nil {
			panic("seal: " + k.String() + " is in the list twice")
		}
		var err error
		if r.aeads[k.id], err = NewAEAD(k.secret[:]); err != nil {
			panic(err) // the length is correct
		}
	}
	return r
}

// NewAEAD returns AES-256-GCM with random nonces and a secret of KeySize bytes.
func NewAEAD(secret []byte) (cipher.AEAD, error) {
	if len(secret) != KeySize {
		return nil, fmt.Errorf("a key has %d bytes, not %d", len(secret), KeySize)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// KeyID returns the id of the key that seals.
func (r *Keyring) KeyID() string { return r.first.ID() }

// Seal implements Sealer.
func (r *Keyring) Seal(ctx context.Context, plaintext []byte, place string) ([]byte, error) {
	if err := Check(ctx, place); err != nil {
		return nil, err
	}
	sealed := make([]byte, 0, len(plaintext)+Overhead)
	sealed = append(sealed, format1)
	sealed = append(sealed, r.first.id[:]...)
	return r.aeads[r.first.id].Seal(sealed, nil, plaintext, Additional(sealed, place)), nil
}

// Open implements Sealer.
func (r *Keyring) Open(ctx context.Context, sealed []byte, place string) ([]byte, error) {
	if err := Check(ctx, place); err != nil {
		return nil, err
	}
	if len(sealed) < Overhead || sealed[0] != format1 {
		return nil, Damaged(place)
	}
	header, body := sealed[:1+keyIDSize], sealed[1+keyIDSize:]
	aead := r.aeads[[keyIDSize]byte(header[1:])]
	if aead == nil {
		return nil, UnknownKey(place, hex.EncodeToString(header[1:]), "Restore the key file that belongs to this data, or add the missing key to the current file.", nil)
	}
	plaintext, err := aead.Open(nil, nil, body, Additional(header, place))
	if err != nil {
		return nil, Damaged(place) // the cause has no more information
	}
	return plaintext, nil
}

// Additional returns the bytes that the tag covers in addition to the value. A header has a
// fixed length or contains its length, so no two pairs of header and place have the same
// bytes.
func Additional(header []byte, place string) []byte {
	return append(header[:len(header):len(header)], place...)
}
