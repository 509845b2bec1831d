// Package installkey seals values so that only the customer's side of one install can open them. The control plane is to
// store and return the sealed bytes. It has no key that opens them. The package is pure.
//
// The customer's side keeps a *seed*: a random text, in a file, in a Secret of a cluster, or in a secret store under a key
// of the customer. Each install that uses the seed has an X25519 key pair of its own, which is derived from the seed and the
// install's identifier. So the customer keeps one secret for a runner, and a value of one install cannot be opened as a
// value of another.
//
// Anyone who has the public key can seal a value: the CLI seals the inputs that a person sets. A step seals what it
// produces (outputs, plans, states) with the private key: Open then also proves that the value comes from a holder of the
// seed, so the control plane cannot replace a plan by one of its own making.
//
// A sealed value is
//
//	4 bytes   format, "FLK1"
//	1 byte    origin: 0 sealed with the public key, 1 sealed by a holder of the seed
//	8 bytes   id of the key pair
//	32 bytes  encapsulated key
//	n bytes   the value, encrypted by HPKE (RFC 9180, base mode) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM
//	16 bytes  authentication tag of AES-256-GCM
//	32 bytes  origin 1 only: HMAC-SHA256 of the place and of all bytes above
//
// The place of the value, such as "input/password", is the info of HPKE. It is not stored, and Open needs the same place.
// So a person who can write the control plane's table cannot move a value to another place. Open accepts an earlier value
// of the same place, because this package does not detect a rollback.
package installkey

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/hpke"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	format     = "FLK1"
	idSize     = 8
	keySize    = 32 // of an X25519 key
	tagSize    = sha256.Size
	headerSize = len(format) + 1 + idSize
	// minSealed is the size of the empty value, sealed with the public key.
	minSealed = headerSize + keySize + 16

	fromAnyone = 0
	fromHolder = 1

	publicPrefix = "flk1_"

	// minSeed is the shortest seed. 43 letters and digits, chosen at random, have 256 bits.
	minSeed = 43
	// newSeedSize is the length of a seed that NewSeed makes.
	newSeedSize = 64
	// maxSeeds limits the seeds of a customer: the current one and earlier ones.
	maxSeeds = 10
)

// Overhead is the largest number of bytes that sealing adds to a value.
const Overhead = minSealed + tagSize

// Errors of Open. They are wrapped in a *fairlead.Error with a hint.
var (
	// ErrUnknownKey reports that the value was sealed for a key that the ring does not have.
	ErrUnknownKey = errors.New("the value was encrypted for a key that is missing here")
	// ErrDamaged reports that the bytes were changed, or were sealed for another place or install.
	ErrDamaged = errors.New("the encrypted value is damaged or belongs to another place")
	// ErrForeign reports that the value does not come from a holder of the seed, although it must.
	ErrForeign = errors.New("the encrypted value was not made by the customer's side")
)

// Public is the public key of an install. The zero value is no key.
type Public struct {
	key *ecdh.PublicKey
}

// ParsePublic reads the text of a public key, as String writes it.
func ParsePublic(text string) (Public, error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, publicPrefix))
	if err != nil || !strings.HasPrefix(text, publicPrefix) {
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidInstallKey, "the key of an install begins with %s, followed by 43 letters, digits, - and _", publicPrefix)
	}
	key, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidInstallKey, "the key of an install has %d bytes, and this one has %d", keySize, len(raw))
	}
	p := Public{key: key}
	if p.String() != text { // base64 ignores the ends of lines and the last bits
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidInstallKey, "the key of an install has a character that it must not have")
	}
	return p, nil
}

// String returns the text of the key: flk1_ and its 32 bytes in base64url. It returns "" for the zero value.
func (p Public) String() string {
	if p.key == nil {
		return ""
	}
	return publicPrefix + base64.RawURLEncoding.EncodeToString(p.key.Bytes())
}

// IsZero reports whether p is no key.
func (p Public) IsZero() bool { return p.key == nil }

// Fingerprint returns the text by which two people compare a key: "SHA256:" and the SHA-256 of the key in base64, as
// OpenSSH shows keys.
func (p Public) Fingerprint() string {
	if p.key == nil {
		return ""
	}
	sum := sha256.Sum256(p.key.Bytes())
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func (p Public) id() [idSize]byte {
	sum := sha256.Sum256(append([]byte("fairlead-install-key-id-v1\n"), p.key.Bytes()...))
	return [idSize]byte(sum[:idSize])
}

// Seal encrypts a value for the install. Any holder of the public key can make such a value. The place must not be empty.
func (p Public) Seal(place string, value []byte) ([]byte, error) {
	return p.seal(place, value, fromAnyone)
}

func (p Public) seal(place string, value []byte, origin byte) ([]byte, error) {
	switch {
	case p.key == nil:
		return nil, errors.New("encrypt a value: the install has no key")
	case place == "":
		return nil, errors.New("encrypt a value: its place is empty")
	}
	to, err := hpke.NewDHKEMPublicKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encrypt the value of %s: %w", place, err)
	}
	enc, sender, err := hpke.NewSender(to, hpke.HKDFSHA256(), hpke.AES256GCM(), infoOf(place, origin))
	if err != nil {
		return nil, fmt.Errorf("encrypt the value of %s: %w", place, err)
	}
	encrypted, err := sender.Seal(nil, value)
	if err != nil {
		return nil, fmt.Errorf("encrypt the value of %s: %w", place, err)
	}
	id := p.id()
	out := make([]byte, 0, headerSize+len(enc)+len(encrypted)+tagSize)
	out = append(out, format...)
	out = append(out, origin)
	out = append(out, id[:]...)
	out = append(out, enc...)
	return append(out, encrypted...), nil
}

// infoOf returns the info of HPKE, which the key schedule covers.
func infoOf(place string, origin byte) []byte {
	return fmt.Appendf(nil, "fairlead-install-key-v1\n%d %s", origin, place)
}

// Private is the key of an install on the customer's side. The zero value is no key.
type Private struct {
	key          *ecdh.PrivateKey
	authenticity []byte
	fingerprints []byte
}

// derive makes the key of an install from a seed.
func derive(seed string, install fairlead.InstallID) (Private, error) {
	secret := func(use string) ([]byte, error) {
		return hkdf.Key(sha256.New, []byte(seed), nil, "fairlead-install-key-v1\n"+use+"\n"+string(install), keySize)
	}
	var k Private
	raw, err := secret("x25519")
	if err == nil {
		k.key, err = ecdh.X25519().NewPrivateKey(raw)
	}
	if err == nil {
		k.authenticity, err = secret("authenticity")
	}
	if err == nil {
		k.fingerprints, err = secret("fingerprints")
	}
	return k, err
}

// Public returns the public half of the key.
func (k Private) Public() Public { return Public{key: k.key.PublicKey()} }

// Seal encrypts a value for the install, with a proof that a holder of the seed made it.
func (k Private) Seal(place string, value []byte) ([]byte, error) {
	out, err := k.Public().seal(place, value, fromHolder)
	if err != nil {
		return nil, err
	}
	return append(out, k.tag(place, out)...), nil
}

func (k Private) tag(place string, sealed []byte) []byte {
	h := hmac.New(sha256.New, k.authenticity)
	// The length separates the place from the bytes.
	fmt.Fprintf(h, "fairlead-install-key-v1\n%d %s\n", len(place), place)
	h.Write(sealed)
	return h.Sum(nil)
}

// FingerprintKey returns the key of the install's fingerprints (package fingerprint), 32 bytes.
func (k Private) FingerprintKey() []byte { return k.fingerprints }

func (k Private) open(place string, sealed []byte, origin byte) ([]byte, error) {
	enc, encrypted := sealed[headerSize:headerSize+keySize], sealed[headerSize+keySize:]
	private, err := hpke.NewDHKEMPrivateKey(k.key)
	if err != nil {
		return nil, err
	}
	from, err := hpke.NewRecipient(enc, private, hpke.HKDFSHA256(), hpke.AES256GCM(), infoOf(place, origin))
	if err != nil {
		return nil, err
	}
	return from.Open(nil, encrypted)
}

// Ring holds the keys of one install: the current one, and earlier ones that still open values. The zero value has no key.
// Safe for concurrent use.
type Ring struct {
	keys []Private
}

// NewRing derives the keys of an install from the text that the customer keeps: one seed a line, the current one first.
// Empty lines are ignored.
func NewRing(seeds string, install fairlead.InstallID) (Ring, error) {
	if install == "" {
		return Ring{}, errors.New("derive the key of an install: the install has no identifier")
	}
	var r Ring
	for seed := range strings.Lines(seeds) {
		seed = strings.TrimSpace(seed)
		if seed == "" {
			continue
		}
		if err := checkSeed(seed); err != nil {
			return Ring{}, err
		}
		if len(r.keys) == maxSeeds {
			return Ring{}, fairlead.Invalid(fairlead.CodeInvalidKeySeed, "there are more than %d seeds", maxSeeds)
		}
		k, err := derive(seed, install)
		if err != nil {
			return Ring{}, fmt.Errorf("derive the key of install %s: %w", install, err)
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return Ring{}, fairlead.Invalid(fairlead.CodeInvalidKeySeed, "there is no seed")
	}
	return r, nil
}

// seedIDSize is the number of bytes of a seed's identifier: two seeds of a customer do not share one by chance.
const seedIDSize = 8

// SeedIDs returns an identifier of each seed in the text, one seed a line, in their order: 16 hexadecimal digits. An identifier does
// not reveal its seed. It shows only that two runners have the same seed.
func SeedIDs(seeds string) (ids []string, err error) {
	if _, err := NewRing(seeds, "ins_any"); err != nil { // the checks are the same for each install
		return nil, err
	}
	for seed := range strings.Lines(seeds) {
		if seed = strings.TrimSpace(seed); seed == "" {
			continue
		}
		id, err := hkdf.Key(sha256.New, []byte(seed), nil, "fairlead-install-key-v1\nidentifier", seedIDSize)
		if err != nil {
			return nil, fmt.Errorf("derive the identifier of a seed: %w", err)
		}
		ids = append(ids, fmt.Sprintf("%x", id))
	}
	return ids, nil
}

// checkSeed refuses a seed that people might have chosen. The error does not contain the seed.
func checkSeed(seed string) error {
	if len(seed) < minSeed {
		return fairlead.Invalid(fairlead.CodeInvalidKeySeed, "a seed has at least %d letters and digits, and this one has %d", minSeed, len(seed))
	}
	if strings.ContainsFunc(seed, func(c rune) bool { return !strings.ContainsRune(seedAlphabet, c) }) {
		return fairlead.Invalid(fairlead.CodeInvalidKeySeed, "a seed has only letters and digits")
	}
	return nil
}

const seedAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// NewSeed makes a seed of 64 letters and digits from a source of random bytes, such as crypto/rand.Reader.
func NewSeed(random io.Reader) (string, error) {
	out := make([]byte, 0, newSeedSize)
	for b := [1]byte{}; len(out) < newSeedSize; {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return "", fmt.Errorf("make a seed: %w", err)
		}
		// A byte of 248 or more is dropped, because it would make the first 8 characters more frequent.
		if i := int(b[0]); i < 4*len(seedAlphabet) {
			out = append(out, seedAlphabet[i%len(seedAlphabet)])
		}
	}
	return string(out), nil
}

// IsZero reports whether the ring has no key.
func (r Ring) IsZero() bool { return len(r.keys) == 0 }

// Current returns the key with which new values are sealed. The ring must have a key.
func (r Ring) Current() Private { return r.keys[0] }

// Publics returns the public keys of the ring, the current one first.
func (r Ring) Publics() []Public {
	out := make([]Public, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.Public()
	}
	return out
}

// Seal encrypts a value with the current key, with a proof that a holder of the seed made it.
func (r Ring) Seal(place string, value []byte) ([]byte, error) {
	if r.IsZero() {
		return nil, errors.New("encrypt a value: the install has no key")
	}
	return r.Current().Seal(place, value)
}

// Open returns a value that was sealed for this place, by anyone. It returns ErrUnknownKey or ErrDamaged.
func (r Ring) Open(place string, sealed []byte) ([]byte, error) { return r.open(place, sealed, false) }

// OpenOwn returns a value that a holder of the seed sealed for this place. It returns ErrForeign if anyone else made the
// value, ErrUnknownKey or ErrDamaged.
func (r Ring) OpenOwn(place string, sealed []byte) ([]byte, error) {
	return r.open(place, sealed, true)
}

func (r Ring) open(place string, sealed []byte, own bool) ([]byte, error) {
	if !Sealed(sealed) {
		return nil, damaged(place)
	}
	origin := sealed[len(format)]
	var k Private
	for _, candidate := range r.keys {
		id := candidate.Public().id()
		if subtle.ConstantTimeCompare(id[:], sealed[len(format)+1:headerSize]) == 1 {
			k = candidate
		}
	}
	switch {
	case k.key == nil:
		return nil, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeInstallKeyMissing,
			Message: fmt.Sprintf("the value of %s was encrypted for a key that is missing here", place),
			Hint:    "Add the earlier seed of this install below the current one, or set the value again.", Err: ErrUnknownKey}
	case origin == fromHolder:
		at := len(sealed) - tagSize
		if at < minSealed || !hmac.Equal(k.tag(place, sealed[:at]), sealed[at:]) {
			return nil, damaged(place)
		}
		sealed = sealed[:at]
	case own:
		return nil, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeEncryptedValueForeign,
			Message: fmt.Sprintf("the value of %s was not made by the customer's side", place),
			Hint:    "Another program made this value. Do not use it: ask the operator of the control plane where it comes from.", Err: ErrForeign}
	}
	value, err := k.open(place, sealed, origin)
	if err != nil {
		return nil, damaged(place)
	}
	return value, nil
}

func damaged(place string) error {
	return &fairlead.Error{Kind: fairlead.KindInternal, Code: fairlead.CodeEncryptedValueDamaged,
		Message: fmt.Sprintf("the encrypted value of %s cannot be opened", place),
		Hint:    "The value was changed on its way, or was made for another place. Set it again, or run the job again that makes it.", Err: ErrDamaged}
}

// Sealed reports whether the bytes have the format of a sealed value. It does not verify them.
func Sealed(b []byte) bool {
	return len(b) >= minSealed && string(b[:len(format)]) == format && (b[len(format)] == fromAnyone || b[len(format)] == fromHolder)
}

// KeyOf returns the id of the key for which a value was sealed, in hexadecimal. It returns "" if the bytes do not have the
// format of a sealed value.
func KeyOf(b []byte) string {
	if !Sealed(b) {
		return ""
	}
	return fmt.Sprintf("%x", b[len(format)+1:headerSize])
}

// ID returns the id of the key in hexadecimal, as KeyOf returns it for values that were sealed for the key.
func (p Public) ID() string {
	if p.key == nil {
		return ""
	}
	id := p.id()
	return fmt.Sprintf("%x", id[:])
}
