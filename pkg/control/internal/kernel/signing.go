package kernel

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// SigningKeys keeps the private keys of a control plane that changes its keys itself. Safe for concurrent use.
type SigningKeys interface {
	// Signer returns the key with an identifier.
	Signer(id string) (*events.Signer, error)
	// Make makes a key and keeps it.
	Make() (*events.Signer, error)
}

// Signing is what the control plane signs with, and what its runners trust.
type Signing struct {
	Set    events.KeySet // number 0: the keys never changed
	Chain  [][]byte      // the envelopes of all key sets
	Signer *events.Signer
	// First signs specs for steps that do not follow key sets, which trust the keys that they pinned. It is Signer if the first key
	// was revoked.
	First *events.Signer
	own   *events.Signer // that of Deps
}

// TrustedKeys returns the public keys in base64, in the order of the set.
func (s Signing) TrustedKeys() []string {
	var out []string
	for _, k := range s.Set.Keys {
		out = append(out, base64.StdEncoding.EncodeToString(k))
	}
	return out
}

// Ever returns the keys that sign or signed before, also those that were revoked: they verify the audit of that time. It lacks a key that
// was revoked by the first key set, after the control plane has no part of it any more.
func (s Signing) Ever() []events.Key {
	all := slices.Clone(s.Set.Keys)
	add := func(keys ...events.Key) {
		for _, k := range keys {
			if !slices.ContainsFunc(all, func(o events.Key) bool { return bytes.Equal(o, k) }) {
				all = append(all, k)
			}
		}
	}
	for _, envelope := range s.Chain {
		if set, err := events.ReadKeySet(envelope); err == nil { // each was read when it was committed
			add(set.Keys...)
		}
	}
	if s.own != nil {
		add(events.Key(s.own.Public()))
	}
	return all
}

// Sign returns the envelope of the spec for a step that knows the fields, and the key sets that the step follows to its key.
func (s Signing) Sign(ctx context.Context, spec events.JobSpec, fields []string) (envelope []byte, keySets [][]byte, err error) {
	if !slices.Contains(fields, events.FieldKeySets) {
		envelope, err = s.First.Sign(ctx, spec)
		return envelope, nil, err
	}
	envelope, err = s.Signer.Sign(ctx, spec)
	return envelope, s.Chain, err
}

// signingAge is how long a process uses what it read of the key sets. A revoked key of another process signs until then.
const signingAge = 10 * time.Second

type readSigning struct {
	at time.Time
	Signing
}

// Signing returns the keys, as they were at most signingAge ago. Its error has the code signing-key-unusable if this process has no
// key of the newest key set.
func (k *Kernel) Signing(ctx context.Context) (Signing, error) {
	now := k.Now()
	if last := k.signing.Load(); last != nil && now.Sub(last.at) < signingAge && !now.Before(last.at) {
		return last.Signing, nil
	}
	r, err := k.Store.KeySets(ctx)
	if err != nil {
		return Signing{}, err
	}
	s, err := k.SigningOf(r.V)
	if err == nil {
		k.signing.Store(&readSigning{now, s})
	}
	return s, err
}

// SigningOf returns the keys of key sets.
func (k *Kernel) SigningOf(sets store.KeySets) (Signing, error) {
	out := Signing{Chain: sets.Envelopes, Signer: k.Signer, First: k.Signer, own: k.Signer}
	if len(sets.Envelopes) == 0 {
		if k.Signer == nil {
			return out, errors.New("this process has no signing key")
		}
		keys := []ed25519.PublicKey{k.Signer.Public()}
		if k.Spare != nil {
			keys = append(keys, k.Spare)
		}
		out.Set = events.FirstKeySet(keys...)
		return out, nil
	}
	set, err := events.ReadKeySet(sets.Envelopes[len(sets.Envelopes)-1])
	if err != nil {
		return out, fmt.Errorf("read the newest key set: %w", err)
	}
	out.Set = set
	has := func(s *events.Signer) bool {
		return s != nil && slices.ContainsFunc(set.Keys, func(key events.Key) bool { return key.ID() == events.KeyID(s.Public()) })
	}
	if k.SigningKeys != nil {
		out.Signer, err = k.SigningKeys.Signer(set.Keys[0].ID())
	} else if !has(k.Signer) {
		err = &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeSigningKeyUnusable,
			Message: fmt.Sprintf("key set %d has no key with which this control plane signs", set.Number),
			Hint:    "Let the control plane sign with the first key that {key.list} prints."}
	}
	if !has(out.First) {
		out.First = out.Signer
	}
	return out, err
}

// ForgetSigning makes the next request read the key sets.
func (k *Kernel) ForgetSigning() { k.signing.Store(nil) }

// Facts returns what an agent must know of this control plane. Its URL is "" in a process that serves no API.
func (k *Kernel) Facts(ctx context.Context) (AgentFacts, error) {
	if k.AgentURL == "" {
		return AgentFacts{}, nil
	}
	s, err := k.Signing(ctx)
	return AgentFacts{URL: k.AgentURL, TrustedKeys: s.TrustedKeys()}, err
}
