// Package kms keeps the control plane's three keys in AWS KMS, which they never
// leave: one seals values (Sealer), one signs job specs (Signing), and from one
// the key of tokens is derived (Derive).
//
// A value is sealed under a data key that KMS wraps. One data key seals many
// values, so KMS is asked once an hour and process, and not for each value. A
// sealed value is
//
//	1 byte    format, 2
//	2 bytes   length n of the wrapped data key, big endian
//	n bytes   the wrapped data key; it names its KMS key
//	12 bytes  nonce, random
//	m bytes   the value, encrypted with AES-256-GCM
//	16 bytes  authentication tag, over the above and the place
//
// The place binds each value; the encryption context, which CloudTrail records,
// says what the data key is for. The place cannot be in it: a data key would
// serve one place only.
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
	header  = 1 + 2 // before the wrapped key

	// maxWrapped is the longest wrapped key: KMS's ciphertexts have 6,144 bytes
	// at most.
	maxWrapped = 6144

	// keyAge is how long a data key is used, and so how long a process goes on
	// after the KMS key was disabled.
	keyAge = time.Hour
	// keySeals is how many values a data key seals: far below the 2^32 that
	// random nonces allow (NIST SP 800-38D, section 8.3).
	keySeals = 1 << 20
	// keysKept bounds the data keys that are kept open: one for each process
	// and hour whose values are being read.
	keysKept = 1000

	// attemptTimeout bounds one attempt of one request, callTimeout all of
	// those of one call that several callers share.
	attemptTimeout = 5 * time.Second
	callTimeout    = 20 * time.Second
)

// purpose is the encryption context of data keys. A data key of another use of
// the same KMS key does not pass for one of these.
func purpose() map[string]string { return map[string]string{"fairlead": "seal"} }

// Sealer implements seal.Sealer. Safe for concurrent use.
type Sealer struct {
	client *kms.Client
	keys   []string // ARNs; the first one seals
	now    func() time.Time
	calls  singleflight.Group

	mu      sync.Mutex
	current *dataKey
	open    *simplelru.LRU[string, *dataKey] // by the wrapped key
}

var _ seal.Sealer = (*Sealer)(nil)

// dataKey is a data key that KMS has given us.
type dataKey struct {
	wrapped []byte
	aead    cipher.AEAD
	until   time.Time
	seals   int // guarded by Sealer.mu
}

// New returns a Sealer whose first key seals and all of whose keys open. Keys
// are ARNs of symmetric KMS keys: an alias could be moved to a stranger's key.
// Rotation within a KMS key is KMS's business. It sends nothing, and panics
// without a key.
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
		return nil, seal.Damaged(place) // the cause says no more
	}
	return plaintext, nil
}

// sealing returns a data key that may seal one more value.
func (s *Sealer) sealing(ctx context.Context) (*dataKey, error) {
	for range 3 { // a key that is used up before its turn comes, twice, is not met
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
	return nil, errors.New("no data key lasts for one value")
}

func (s *Sealer) generate(ctx context.Context) (*dataKey, error) {
	out, err := s.client.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{KeyId: &s.keys[0], KeySpec: types.DataKeySpecAes256, EncryptionContext: purpose()})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "make a data key of "+s.keys[0], err)
	}
	if len(out.CiphertextBlob) > maxWrapped {
		return nil, fmt.Errorf("make a data key of %s: its ciphertext has %d bytes", s.keys[0], len(out.CiphertextBlob))
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

// opening returns the data key that was wrapped.
func (s *Sealer) opening(ctx context.Context, wrapped []byte, place string) (*dataKey, error) {
	s.mu.Lock()
	k, ok := s.open.Get(string(wrapped))
	s.mu.Unlock()
	if ok && s.now().Before(k.until) {
		return k, nil
	}
	k, err := s.once(ctx, "open"+string(wrapped), func(ctx context.Context) (*dataKey, error) {
		out, err := s.client.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: wrapped, EncryptionContext: purpose()})
		if err != nil {
			return nil, err
		}
		// A stranger's key that this role may use is no key of ours.
		if !slices.Contains(s.keys, aws.ToString(out.KeyId)) {
			clear(out.Plaintext)
			return nil, &types.IncorrectKeyException{Message: aws.String("it was wrapped by " + aws.ToString(out.KeyId))}
		}
		return s.keep(bytes.Clone(wrapped), out.Plaintext)
	})
	if err != nil {
		return nil, s.openError(ctx, place, err)
	}
	return k, nil
}

// unknownHint says what to do when KMS will not open a data key.
const unknownHint = "Give the function the ARN of the KMS key that sealed the value, and its role kms:Decrypt on it. A key that is disabled or about to be deleted can be enabled again."

func (s *Sealer) openError(ctx context.Context, place string, err error) error {
	switch awsapi.Code(err) {
	case "InvalidCiphertextException":
		return seal.Damaged(place)
	case "IncorrectKeyException", "NotFoundException", "AccessDeniedException", "DisabledException", "KMSInvalidStateException", "InvalidKeyUsageException":
		return seal.UnknownKey(place, "of KMS", unknownHint, err)
	}
	return awsapi.Classify(ctx, "KMS", "open the data key of "+place, err)
}

// keep makes a data key of its plaintext, which it wipes, and remembers it.
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

// once has one caller ask KMS while the others wait for the answer. The call
// outlives the caller that began it, because others may want the answer.
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
