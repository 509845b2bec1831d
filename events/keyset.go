package events

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// KeySetPayloadType is the payload type of a key set's envelope.
const KeySetPayloadType = "application/vnd.fairlead.key-set.v1+json"

// FieldKeySets is the name with which a step declares that it follows the key sets of a control plane.
const FieldKeySets = "key-sets"

const (
	// MaxKeys is the largest number of keys in a key set: one that signs, one that signed before, and the spare key.
	MaxKeys = 3
	// MaxKeySets is the largest number of key sets of a control plane.
	MaxKeySets = 64
	// maxAfter is the largest number of sets of keys that a key set replaces: the first one replaces both keys and each of them.
	maxAfter = 3
)

// KeySet replaces the public keys that verify job specs. A runner accepts it if the last of its own keys signed it.
//
// The first key signs job specs. The last one is the spare key: it signs the next key set, and a control plane on AWS cannot
// use it, so who controls the control plane cannot replace the keys. Therefore a rotation never makes the spare key the first
// one: a runner that pinned it long ago trusts it with changes for ever. A key between them signed before, and remains valid
// until it is revoked.
type KeySet struct {
	V      int       `json:"v"`      // 1
	Number int64     `json:"number"` // 1 is that of the first key set; each later one has a higher number
	After  []KeyIDs  `json:"after"`  // the sets of keys that it replaces
	Keys   []Key     `json:"keys"`   // one to MaxKeys, all different
	At     time.Time `json:"at"`
}

// Key is a public key of a key set, in base64.
type Key []byte

// ID returns the KeyID.
func (k Key) ID() string { return KeyID(ed25519.PublicKey(k)) }

// KeyIDs are the identifiers of a set of keys, sorted.
type KeyIDs []string

// IDsOf returns the identifiers of keys.
func IDsOf(keys []ed25519.PublicKey) KeyIDs {
	out := make(KeyIDs, len(keys))
	for i, k := range keys {
		out[i] = KeyID(k)
	}
	slices.Sort(out)
	return out
}

// Public returns the keys, in order.
func (s KeySet) Public() []ed25519.PublicKey {
	out := make([]ed25519.PublicKey, len(s.Keys))
	for i, k := range s.Keys {
		out[i] = ed25519.PublicKey(k)
	}
	return out
}

func (s KeySet) check() error {
	switch {
	case s.V != 1:
		return fmt.Errorf("the key set has version %d, but this release supports only version 1", s.V)
	case s.Number < 1 || len(s.Keys) < 1 || len(s.Keys) > MaxKeys || len(s.After) < 1 || len(s.After) > maxAfter:
		return fmt.Errorf("a key set has a number, one to %d keys, and one to %d sets of keys that it replaces", MaxKeys, maxAfter)
	}
	for i, k := range s.Keys {
		if len(k) != ed25519.PublicKeySize || slices.ContainsFunc(s.Keys[:i], func(o Key) bool { return bytes.Equal(k, o) }) {
			return fmt.Errorf("key %d of key set %d is not an Ed25519 public key, or the set has it twice", i+1, s.Number)
		}
	}
	return nil
}

// Encode returns the payload of the key set's envelope.
func (s KeySet) Encode() ([]byte, error) {
	s.V = 1
	if err := s.check(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// SignKeySet returns the DSSE envelope, as JSON, around a key set that each of the signers signed.
func SignKeySet(ctx context.Context, s KeySet, signers ...*Signer) ([]byte, error) {
	payload, err := s.Encode()
	if err != nil {
		return nil, err
	}
	var by []dsse.Signer
	for _, signer := range signers {
		key := signer.key
		key.whole = true
		by = append(by, key)
	}
	es, err := dsse.NewEnvelopeSigner(by...)
	if err != nil {
		return nil, fmt.Errorf("sign key set %d: %w", s.Number, err)
	}
	env, err := es.SignPayload(ctx, KeySetPayloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign key set %d: %w", s.Number, err)
	}
	return json.Marshal(env)
}

// ReadKeySet returns the key set in an envelope. It verifies no signature.
func ReadKeySet(envelope []byte) (KeySet, error) {
	_, s, err := readKeySet(envelope)
	return s, err
}

func readKeySet(envelope []byte) (dsse.Envelope, KeySet, error) {
	var env dsse.Envelope
	var s KeySet
	if err := json.Unmarshal(envelope, &env); err != nil || env.PayloadType != KeySetPayloadType {
		return env, s, errors.New("the key set is not a DSSE envelope around a key set")
	}
	payload, err := env.DecodeB64Payload()
	if err != nil {
		return env, s, errors.New("the key set has a payload that is not in base64")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields() // an unknown field might restrict what the keys are for
	if err := dec.Decode(&s); err != nil {
		return env, s, fmt.Errorf("the key set cannot be read: %w", err)
	}
	return env, s, s.check()
}

// Trusted are the keys that verify job specs.
type Trusted struct {
	Keys     []ed25519.PublicKey // in the order of the key set
	Followed []Followed          // the key sets from the pinned keys to these; empty: they are the pinned keys
}

// Followed is a key set that replaced the keys of a runner.
type Followed struct {
	Number int64
	Digest string // sha256:… of the key set as it was signed
}

// Number returns the number of the key set; 0: the pinned keys.
func (t Trusted) Number() int64 {
	if len(t.Followed) == 0 {
		return 0
	}
	return t.Followed[len(t.Followed)-1].Number
}

// Follow returns the keys that replace the pinned ones: those of the last key set in a chain of signed ones. The chain begins at
// any key set; those that replace other keys are left out. The error is a *Refusal. It is returned if the chain has a key
// set that replaces the runner's keys, and that the last of these did not sign.
func Follow(ctx context.Context, pinned []ed25519.PublicKey, chain [][]byte) (Trusted, error) {
	now := Trusted{Keys: pinned}
	if len(chain) > MaxKeySets {
		return now, refuse(fairlead.ReasonSpecSignature, "the control plane has changed its keys %d times, more often than a runner follows", len(chain))
	}
	var last int64
	for _, envelope := range chain {
		env, set, err := readKeySet(envelope)
		if err != nil {
			return now, refuse(fairlead.ReasonSpecSignature, "%v", err)
		}
		if set.Number <= last {
			return now, refuse(fairlead.ReasonSpecSignature, "key set %d follows key set %d", set.Number, last)
		}
		last = set.Number
		if len(now.Keys) == 0 || !slices.ContainsFunc(set.After, func(ids KeyIDs) bool { return slices.Equal(ids, IDsOf(now.Keys)) }) {
			continue
		}
		spare := now.Keys[len(now.Keys)-1]
		payload, _, err := opened(ctx, &env, []ed25519.PublicKey{spare})
		if err != nil {
			return now, refuse(fairlead.ReasonSpecSignature, "key set %d of the control plane is not signed by key %s, which is trusted with changes of keys", set.Number, KeyID(spare))
		}
		now.Keys, now.Followed = set.Public(), append(now.Followed, Followed{set.Number, fmt.Sprintf("sha256:%x", sha256.Sum256(payload))})
	}
	return now, nil
}

// Rotated returns the key set after s in which next signs job specs. The key that signed until now remains valid until it is
// revoked, and the spare key stays. s must have two keys.
func (s KeySet) Rotated(next ed25519.PublicKey, at time.Time) (KeySet, error) {
	if len(s.Keys) != 2 {
		return KeySet{}, fmt.Errorf("key set %d has %d keys, and only one with two keys is rotated", s.Number, len(s.Keys))
	}
	return s.followedBy([]Key{Key(next), s.Keys[0], s.Keys[1]}, at), nil
}

// Revoked returns the key set after s without the key. If NeedsKey reports so, next takes its place: it signs job specs, or is the
// spare key. Otherwise next is not used.
func (s KeySet) Revoked(id string, next ed25519.PublicKey, at time.Time) (KeySet, error) {
	i := slices.IndexFunc(s.Keys, func(k Key) bool { return k.ID() == id })
	if i < 0 {
		return KeySet{}, fmt.Errorf("key set %d has no key %s", s.Number, id)
	}
	left := slices.Clone(s.Keys)
	if s.NeedsKey(id) {
		left[i] = Key(next)
	} else {
		left = slices.Delete(left, i, i+1)
	}
	return s.followedBy(left, at), nil
}

// NeedsKey reports whether Revoked puts another key in the place of this one. It does unless the key only signed before. So no set of
// keys comes back: a runner that pins it could be led to a key that was revoked in between.
func (s KeySet) NeedsKey(id string) bool {
	return s.Keys[0].ID() == id || s.Keys[len(s.Keys)-1].ID() == id
}

func (s KeySet) followedBy(keys []Key, at time.Time) KeySet {
	after := s.After // the first key set replaces several sets of pinned keys
	if s.Number > 0 {
		after = []KeyIDs{IDsOf(s.Public())}
	}
	return KeySet{V: 1, Number: s.Number + 1, After: after, Keys: keys, At: at.UTC().Truncate(time.Second)}
}

// FirstKeySet returns the keys of a control plane that has never changed them, as key set 0, which has no envelope. Its runners
// pin both keys in any order, or one of them, if they are older than the other or outlive it.
func FirstKeySet(keys ...ed25519.PublicKey) KeySet {
	s := KeySet{V: 1, After: []KeyIDs{IDsOf(keys)}}
	for _, k := range keys {
		s.Keys = append(s.Keys, Key(k))
		if len(keys) > 1 {
			s.After = append(s.After, IDsOf([]ed25519.PublicKey{k}))
		}
	}
	return s
}

// Signers returns the keys that must sign the key set after s: the spare key, and the other keys of key set 0, since some runners
// trust them with a change of keys.
func (s KeySet) Signers() []ed25519.PublicKey {
	keys := s.Public()
	if s.Number > 0 {
		return keys[len(keys)-1:]
	}
	return keys
}

// Vouched returns the keys of the newest key set in a chain if one of by signed it; nil otherwise.
func Vouched(ctx context.Context, chain [][]byte, by []ed25519.PublicKey) []ed25519.PublicKey {
	if len(chain) == 0 || len(by) == 0 {
		return nil
	}
	env, set, err := readKeySet(chain[len(chain)-1])
	if err != nil {
		return nil
	}
	if _, _, err := opened(ctx, &env, by); err != nil {
		return nil
	}
	return set.Public()
}
