package control

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Signing is what the control plane signs with, and what its runners trust.
type Signing = kernel.Signing

// RotateKeys makes a new key that signs job specs. The key that signed until now remains valid until it is revoked. Only an operator can, and only on a control plane that holds its keys itself.
func (c *Control) RotateKeys(ctx context.Context, by access.Principal) (Signing, error) {
	return c.replaceKeys(ctx, by, "rotate the signing keys", func(s events.KeySet, makeKey newKey) (events.KeySet, error) {
		if len(s.Keys) > 2 {
			return s, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeKeysOverlap,
				Message: fmt.Sprintf("two keys are valid: %s signs job specs, and %s signed them before", s.Keys[0].ID(), s.Keys[1].ID()),
				Hint:    "Revoke the earlier one first: {key.revoke}."}
		}
		next, err := makeKey()
		if err != nil {
			return s, err
		}
		return s.Rotated(next.Public(), c.Now())
	})
}

// RevokeKey removes a key from those that runners trust. A new key takes its place, unless it only signed before. Only an operator
// can, and only on a control plane that holds its keys itself.
func (c *Control) RevokeKey(ctx context.Context, by access.Principal, id string) (Signing, error) {
	return c.replaceKeys(ctx, by, "revoke signing key "+id, func(s events.KeySet, makeKey newKey) (events.KeySet, error) {
		if !slices.ContainsFunc(s.Keys, func(k events.Key) bool { return k.ID() == id }) {
			return s, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeKeyNotFound, Message: "runners trust no key " + id, Hint: "{key.list} shows those that they trust."}
		}
		if !s.NeedsKey(id) {
			return s.Revoked(id, nil, c.Now())
		}
		next, err := makeKey()
		if err != nil {
			return s, err
		}
		return s.Revoked(id, next.Public(), c.Now())
	})
}

// newKey makes a key and keeps it. A repeated call returns the same key.
type newKey func() (*events.Signer, error)

// replaceKeys commits the key set that change returns, which this control plane signs.
func (c *Control) replaceKeys(ctx context.Context, by access.Principal, op string, change func(events.KeySet, newKey) (events.KeySet, error)) (Signing, error) {
	if !by.Operator {
		return Signing{}, operatorOnly("only an operator changes the keys of the control plane")
	}
	if c.SigningKeys == nil {
		return Signing{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeKeysElsewhere,
			Message: "this control plane cannot use its spare key, so that who controls it cannot replace its keys",
			Hint:    "Sign the change with the spare key from your own machine: {key.rotate-with}."}
	}
	makeKey := sync.OnceValues(c.SigningKeys.Make) // the commit may be tried again
	return c.putKeySet(ctx, op, func(s Signing) ([]byte, error) {
		set, err := change(s.Set, makeKey)
		if err != nil {
			return nil, err
		}
		var signers []*events.Signer
		for _, key := range s.Set.Signers() {
			signer, err := c.SigningKeys.Signer(events.KeyID(key))
			if err != nil {
				return nil, err
			}
			signers = append(signers, signer)
		}
		return events.SignKeySet(ctx, set, signers...)
	})
}

// PutKeySet commits a key set that was signed elsewhere. Only an operator can. The code of the error is key-set-refused unless the
// spare key signed it, it follows the newest one, and it has a key with which this control plane can sign.
func (c *Control) PutKeySet(ctx context.Context, by access.Principal, envelope []byte) (Signing, error) {
	if !by.Operator {
		return Signing{}, operatorOnly("only an operator changes the keys of the control plane")
	}
	return c.putKeySet(ctx, "put a key set", func(Signing) ([]byte, error) { return envelope, nil })
}

func (c *Control) putKeySet(ctx context.Context, op string, sign func(Signing) ([]byte, error)) (Signing, error) {
	var out Signing
	var wrote []byte
	err := c.Transact(ctx, op, func(tx *kernel.Tx) error {
		r, err := c.Store.KeySets(ctx)
		if err != nil {
			return err
		}
		now, err := c.SigningOf(r.V)
		if err != nil {
			return err
		}
		newest := func(envelope []byte) bool {
			return len(r.V.Envelopes) > 0 && slices.Equal(r.V.Envelopes[len(r.V.Envelopes)-1], envelope)
		}
		if wrote != nil && newest(wrote) {
			out = now
			return nil // our own earlier commit, whose outcome was unclear
		}
		envelope, err := sign(now)
		if err != nil {
			return err
		}
		if newest(envelope) {
			out = now
			return nil // a repeated request
		}
		trusted, err := events.Follow(ctx, now.Set.Public(), [][]byte{envelope})
		if err != nil {
			return fairlead.Invalid(fairlead.CodeKeySetRefused, "%v", err)
		}
		if trusted.Number() != now.Set.Number+1 || len(r.V.Envelopes) >= events.MaxKeySets {
			return fairlead.Invalid(fairlead.CodeKeySetRefused, "the key set does not follow key set %d, or the control plane has %d already", now.Set.Number, events.MaxKeySets)
		}
		if r.Version == 0 {
			r.V.Actors = tx.Made()
		}
		r.V.Envelopes, r.V.Changed = append(slices.Clone(r.V.Envelopes), envelope), tx.Now
		if out, err = c.SigningOf(r.V); err != nil {
			return err
		}
		tx.PutKeySets(r)
		wrote = envelope
		return nil
	})
	c.ForgetSigning()
	return out, err
}
