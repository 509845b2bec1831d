package control_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/controltest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// newKeyedPlane returns a control plane that changes its keys itself, and its keys.
func newKeyedPlane(t *testing.T) (*plane, *controltest.Keys) {
	p := newPlane(t, enginetest.Memory())
	held := controltest.NewKeys(p.Signer)
	spare, err := held.Make()
	if err != nil {
		t.Fatal(err)
	}
	p.Spare, p.SigningKeys = spare.Public(), held
	return p, held
}

var keyOperator = access.Principal{Org: org, Operator: true}

func TestKeysRotateAndAreRevoked(t *testing.T) {
	p, held := newKeyedPlane(t)
	id := func(i int) string { return events.KeyID(held.Made()[i].Public()) }
	signs := func(what string, fields []string, want int) {
		t.Helper()
		signing, err := p.Signing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		envelope, _, err := signing.Sign(t.Context(), events.JobSpec{}, fields)
		if err != nil {
			t.Fatal(err)
		}
		_, err = events.Verify(t.Context(), envelope, []ed25519.PublicKey{held.Made()[want].Public()}, events.Expect{Operations: []string{""}}, time.Time{})
		if err != nil {
			t.Errorf("%s: key %d did not sign: %v", what, want, err)
		}
	}
	follows := []string{events.FieldKeySets}
	signs("before", follows, 0)
	rotated, err := p.RotateKeys(t.Context(), keyOperator)
	if err != nil || rotated.Set.Number != 1 || len(rotated.Set.Keys) != 3 || len(held.Made()) != 3 {
		t.Fatalf("%+v, %v", rotated.Set, err)
	}
	signs("a step that follows", follows, 2)
	signs("a step of a release before key sets", nil, 0)
	if _, err := p.RotateKeys(t.Context(), keyOperator); fairlead.CodeOf(err) != fairlead.CodeKeysOverlap || len(held.Made()) != 3 {
		t.Errorf("%v; %d keys were made, want none for a refused rotation", err, len(held.Made()))
	}
	if _, err := p.RevokeKey(t.Context(), keyOperator, "0123456789abcdef"); fairlead.CodeOf(err) != fairlead.CodeKeyNotFound {
		t.Errorf("%v", err)
	}
	if s, err := p.RevokeKey(t.Context(), keyOperator, id(0)); err != nil || s.Set.Number != 2 || len(s.Set.Keys) != 2 || len(held.Made()) != 3 {
		t.Errorf("%+v, %v, %d keys", s.Set, err, len(held.Made()))
	}
	signs("a step of a release before, whose key was revoked", nil, 2)
	if s, err := p.RevokeKey(t.Context(), keyOperator, id(2)); err != nil || s.Set.Number != 3 || s.Set.Keys[0].ID() != id(3) || s.Set.Keys[1].ID() != id(1) || len(held.Made()) != 4 {
		t.Errorf("%+v, %v, %d keys", s.Set, err, len(held.Made()))
	}
	signs("after the key that signs was revoked", follows, 3)
	trusted, err := events.Follow(t.Context(), []ed25519.PublicKey{held.Made()[0].Public(), held.Made()[1].Public()}, mustSigning(t, p).Chain)
	if err != nil || trusted.Number() != 3 {
		t.Errorf("a runner follows to key set %d, %v", trusted.Number(), err)
	}
	if ever := mustSigning(t, p).Ever(); len(ever) != 4 {
		t.Errorf("%d keys verify the audit, want also those that were revoked", len(ever))
	}
	if facts, err := p.Facts(t.Context()); err != nil || facts.URL != "" {
		t.Errorf("%+v, %v", facts, err)
	}
}

// A rotation was refused with keys-overlap after its own commit, if the answer of the table was lost. A rotation that fails leaves the
// keys as they were, and can be repeated.
func TestKeysRotateUnderEveryFault(t *testing.T) {
	everyFault{least: 2}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		p := newPlane(t, e)
		held := controltest.NewKeys(p.Signer)
		spare, err := held.Make()
		if err != nil {
			t.Fatal(err)
		}
		p.Spare, p.SigningKeys = spare.Public(), held
		first := p.Signer.Public()
		for number, change := range []func() error{
			func() error { _, err := p.RotateKeys(p.ctx, keyOperator); return err },
			func() error { _, err := p.RevokeKey(p.ctx, keyOperator, events.KeyID(first)); return err },
		} {
			*armed = true
			err := change()
			*armed = false
			got := mustSigning(t, p)
			if want := int64(number + 1); (err == nil) != (int64(got.Set.Number) == want) {
				t.Fatalf("change %d returns %v, and the key set is %d", want, err, got.Set.Number)
			}
			if err != nil {
				if err := change(); err != nil {
					t.Fatalf("the repeated change fails: %v", err)
				}
			}
		}
		got := mustSigning(t, p)
		trusted, err := events.Follow(t.Context(), []ed25519.PublicKey{first, spare.Public()}, got.Chain)
		if err != nil || trusted.Number() != 2 || got.Set.Keys[0].ID() == events.KeyID(first) {
			t.Errorf("a runner follows to %+v, %v", trusted, err)
		}
	})
}

func mustSigning(t *testing.T, p *plane) control.Signing {
	t.Helper()
	s, err := p.Signing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A control plane on AWS has one key, and no way to the spare key.
func TestSpareKeyElsewhereSignsTheChange(t *testing.T) {
	p, held := newKeyedPlane(t)
	p.SigningKeys = nil
	next, err := held.Make()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RotateKeys(t.Context(), keyOperator); fairlead.CodeOf(err) != fairlead.CodeKeysElsewhere {
		t.Errorf("%v", err)
	}
	set, err := mustSigning(t, p).Set.Rotated(next.Public(), p.Now())
	if err != nil {
		t.Fatal(err)
	}
	without, err := mustSigning(t, p).Set.Revoked(events.KeyID(p.Signer.Public()), next.Public(), p.Now())
	if err != nil {
		t.Fatal(err)
	}
	sign := func(s events.KeySet, by ...*events.Signer) []byte {
		envelope, err := events.SignKeySet(context.Background(), s, by...)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	for what, row := range map[string]struct {
		by       access.Principal
		envelope []byte
		code     fairlead.Code
	}{
		"a caller that is no operator":                           {access.Principal{Org: org}, sign(set, held.Made()[1]), fairlead.CodeOperatorOnly},
		"a change that only the key which signs jobs has signed": {keyOperator, sign(set, p.Signer), fairlead.CodeKeySetRefused},
		"a change without a key that the functions can use":      {keyOperator, sign(without, held.Made()[1]), fairlead.CodeSigningKeyUnusable},
		"no envelope": {keyOperator, []byte(`{}`), fairlead.CodeKeySetRefused},
	} {
		if _, err := p.PutKeySet(t.Context(), row.by, row.envelope); fairlead.CodeOf(err) != row.code {
			t.Errorf("%s: %v, want %s", what, err, row.code)
		}
	}
	good := sign(set, held.Made()[1], p.Signer)
	for _, what := range []string{"the first request", "the same request again"} {
		s, err := p.PutKeySet(t.Context(), keyOperator, good)
		if err != nil || s.Set.Number != 1 || events.KeyID(s.Signer.Public()) != events.KeyID(p.Signer.Public()) {
			t.Errorf("%s: %+v, %v", what, s.Set, err)
		}
	}
	// The functions sign with the key that was revoked since: they stop, and name the remedy.
	p.Signer = next
	p.ForgetSigning()
	if _, err := p.Signing(t.Context()); err != nil {
		t.Errorf("the new key is in the set: %v", err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Signer = events.NewSigner(other)
	p.ForgetSigning()
	var e *fairlead.Error
	if _, err := p.Signing(t.Context()); !errors.As(err, &e) || e.Code != fairlead.CodeSigningKeyUnusable || e.Hint == "" {
		t.Errorf("%v", err)
	}
}
