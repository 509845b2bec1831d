// Package kms uses three keys of the control plane. The keys never leave AWS KMS. The first
// key seals values (Sealer). The second key signs job specs (Signing). The key of tokens is
// derived from the third key (Derive).
//
// A data key encrypts a value, and KMS wraps the data key. One data key seals many values.
// So each process that seals calls KMS once an hour instead of once for each value. A sealed
// value is
//
//	1 byte    format, 2
//	2 bytes   length n of the wrapped data key, big endian
//	n bytes   the wrapped data key; it contains its KMS key
//	12 bytes  nonce, random
//	m bytes   the value, encrypted with AES-256-GCM
//	16 bytes  authentication tag of all bytes above and the place
//
// Because of the tag, a value can only be opened at its place. The encryption context of KMS
// contains the purpose of the data key, and CloudTrail records it. The encryption context
// cannot contain the place, because a data key seals values of many places.
package kms

import (
	"bytes"
	"context"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/seal"
)

const (
	format2 = 2
	header  = 1 + 2 // number of bytes before the wrapped data key

	// maxWrapped is the maximum length of a wrapped data key. A ciphertext of KMS has at
	// most 6,144 bytes.
	maxWrapped = 6144

	// keyAge is the time for which a process uses a data key. If the KMS key is disabled,
	// a process can continue to seal and open values for at most this time.
	keyAge = time.Hour
	// keySeals is the maximum number of values that a data key seals. It is much less than
	// 2^32, the limit for random nonces (NIST SP 800-38D, section 8.3).
	keySeals = 1 << 20
	// keysKept is the maximum number of cached data keys. Each process that seals values
	// uses a new data key every hour. To open the values, a process needs all these data
	// keys.
	keysKept = 1000

	// attemptTimeout limits one attempt of one request. callTimeout limits the total time
	// of all attempts of one call. Several callers can share the call.
	attemptTimeout = 5 * time.Second
	callTimeout    = 20 * time.Second
)

// purpose returns the encryption context of data keys. If the same KMS key also wrapped data
// keys for another use, KMS does not unwrap those data keys with this context.
func purpose() map[string]string { return map[string]string{"fairlead": "seal"} }

// Sealer implements seal.Sealer. Safe for concurrent use.
type Sealer struct {
	client *kms.Client
	keys   []string // ARNs of the KMS keys; the first KMS key seals
	now    func() time.Time
	calls  singleflight.Group

	mu      sync.Mutex
	current *dataKey
	open    *simplelru.LRU[string, *dataKey] // cached data keys by wrapped data key
}

var _ seal.Sealer = (*Sealer)(nil)

// dataKey is a data key from KMS.
type dataKey struct {
	wrapped []byte
	aead    cipher.AEAD
	until   time.Time
	seals   int // guarded by Sealer.mu
}

// New returns a Sealer. The first key seals values. All keys can open values. Keys are ARNs
// of symmetric KMS keys, not aliases, because a person could move an alias to another key.
// The rotation inside a KMS key is a function of KMS. New sends no request. It panics if
// keys is empty or contains "".
func New(cfg aws.Config, now func() time.Time, keys ...string) *Sealer {
	if len(keys) == 0 || slices.Contains(keys, "") {
		panic("kms: a sealer needs a key")
	}
	open, err := simplelru.NewLRU[string, *dataKey](keysKept, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Sealer{client: newClient(cfg), keys: keys, now: now, open: open}
}

func newClient(cfg aws.Config) *kms.Client {
	return kms.NewFromConfig(awsapi.Bound(cfg, attemptTimeout))
}

// Seal implements seal.Sealer.
func (s *Sealer) Seal(ctx context.Context, plaintext []byte, place string) ([]byte, error) {
	if err := seal.Check(ctx, place); err != nil {
		return nil, err
	}
	k, err := s.sealing(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal the value of %s: %w", place, err)
	}
	sealed := make([]byte, 0, header+len(k.wrapped)+len(plaintext)+k.aead.Overhead())
	sealed = append(sealed, format2)
	sealed = binary.BigEndian.AppendUint16(sealed, uint16(len(k.wrapped)))
	sealed = append(sealed, k.wrapped...)
	return k.aead.Seal(sealed, nil, plaintext, seal.Additional(sealed, place)), nil
}

// Open implements seal.Sealer.
func (s *Sealer) Open(ctx context.Context, sealed []byte, place string) ([]byte, error) {
	if err := seal.Check(ctx, place); err != nil {
		return nil, err
	}
	if len(sealed) < header || sealed[0] != format2 {
		return nil, seal.Damaged(place)
	}
	n := header + int(binary.BigEndian.Uint16(sealed[1:]))
	if n == header || n > header+maxWrapped || n > len(sealed) {
		return nil, seal.Damaged(place)
	}
	k, err := s.opening(ctx, sealed[header:n], place)
	if err != nil {
		return nil, err
	}
	plaintext, err := k.aead.Open(nil, nil, sealed[n:], seal.Additional(sealed[:n], place))
	if err != nil {
		return nil, seal.Damaged(place) // err contains no additional information
	}
	return plaintext, nil
}

// sealing returns a data key that can seal one more value.
func (s *Sealer) sealing(ctx context.Context) (*dataKey, error) {
	for range 3 { // other callers can use a new key up to its limit first; this is very unlikely to happen twice
		s.mu.Lock()
		if k := s.current; k != nil && k.seals < keySeals && s.now().Before(k.until) {
			k.seals++
			s.mu.Unlock()
			return k, nil
		}
		s.mu.Unlock()
		if _, err := s.once(ctx, "generate", s.generate); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("every new data key was used up or expired before its first value")
}

func (s *Sealer) generate(ctx context.Context) (*dataKey, error) {
	out, err := s.client.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{KeyId: &s.keys[0], KeySpec: types.DataKeySpecAes256, EncryptionContext: purpose()})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "generate a data key of "+s.keys[0], err)
	}
	if len(out.CiphertextBlob) > maxWrapped {
		return nil, fmt.Errorf("generate a data key of %s: its ciphertext has %d bytes", s.keys[0], len(out.CiphertextBlob))
	}
	k, err := s.keep(out.CiphertextBlob, out.Plaintext)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = k
	return k, nil
}

// opening returns the data key for a wrapped data key: from the cache, or unwrapped by KMS.
func (s *Sealer) opening(ctx context.Context, wrapped []byte, place string) (*dataKey, error) {
	s.mu.Lock()
	k, ok := s.open.Get(string(wrapped))
	s.mu.Unlock()
	if ok && s.now().Before(k.until) {
		return k, nil
	}
	k, err := s.once(ctx, "open"+string(wrapped), func(ctx context.Context) (*dataKey, error) {
		in := &kms.DecryptInput{CiphertextBlob: wrapped, EncryptionContext: purpose()}
		if len(s.keys) == 1 {
			in.KeyId = &s.keys[0] // in another Region than that of the seal, a replica: KMS need not derive it from the ciphertext
		}
		out, err := s.client.Decrypt(ctx, in)
		if err != nil {
			return nil, err
		}
		// The role of this process may have access to KMS keys that do not belong to this
		// control plane. Refuse data keys that such a KMS key wrapped.
		if !slices.Contains(s.keys, aws.ToString(out.KeyId)) {
			clear(out.Plaintext)
			return nil, &types.IncorrectKeyException{Message: aws.String("the data key was wrapped by " + aws.ToString(out.KeyId))}
		}
		return s.keep(bytes.Clone(wrapped), out.Plaintext)
	})
	if err != nil {
		return nil, s.openError(ctx, place, err)
	}
	return k, nil
}

// unknownHint is the hint if KMS refuses to unwrap a data key.
const unknownHint = "Give the function the ARN of the KMS key that sealed the value, and its role kms:Decrypt on that key. If the key is disabled or scheduled to be deleted, enable it again."

func (s *Sealer) openError(ctx context.Context, place string, err error) error {
	switch awsapi.Code(err) {
	case "InvalidCiphertextException":
		return seal.Damaged(place)
	case "IncorrectKeyException", "NotFoundException", "AccessDeniedException", "DisabledException", "KMSInvalidStateException", "InvalidKeyUsageException":
		return seal.UnknownKey(place, "of KMS", unknownHint, err)
	}
	return awsapi.Classify(ctx, "KMS", "open the data key of "+place, err)
}

// keep creates a data key from its plaintext, clears the plaintext, and caches the data key.
func (s *Sealer) keep(wrapped, plaintext []byte) (*dataKey, error) {
	defer clear(plaintext)
	aead, err := seal.NewAEAD(plaintext)
	if err != nil {
		return nil, fmt.Errorf("use a data key of KMS: %w", err)
	}
	k := &dataKey{wrapped: wrapped, aead: aead, until: s.now().Add(keyAge)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Add(string(wrapped), k)
	return k, nil
}

// once calls KMS once for all callers that need the same data key at the same time. The
// first caller starts the call, and the other callers wait for the result. If the context of
// the first caller ends, the call continues, because other callers may need the result.
func (s *Sealer) once(ctx context.Context, what string, call func(context.Context) (*dataKey, error)) (*dataKey, error) {
	ch := s.calls.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return call(ctx)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*dataKey), nil
	}
}
