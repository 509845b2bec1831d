package controltest

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
)

// Keys are signing keys in memory. They implement control.SigningKeys.
type Keys struct {
	mu   sync.Mutex
	made []*events.Signer
}

// NewKeys returns signing keys with these of key set 0.
func NewKeys(first ...*events.Signer) *Keys { return &Keys{made: first} }

// Made returns all keys, in the order in which they were made.
func (k *Keys) Made() []*events.Signer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*events.Signer(nil), k.made...)
}

// Signer implements control.SigningKeys.
func (k *Keys) Signer(id string) (*events.Signer, error) {
	for _, s := range k.Made() {
		if events.KeyID(s.Public()) == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no key %s", id)
}

// Make implements control.SigningKeys.
func (k *Keys) Make() (*events.Signer, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	s := events.NewSigner(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made = append(k.made, s)
	return s, nil
}

// SigningKeys runs the conformance suite of control.SigningKeys. reopen returns the same keys as after a restart.
func SigningKeys(t *testing.T, keys control.SigningKeys, reopen func() control.SigningKeys) {
	one, err := keys.Make()
	if err != nil {
		t.Fatal(err)
	}
	two, err := keys.Make()
	if err != nil {
		t.Fatal(err)
	}
	if one.Public().Equal(two.Public()) {
		t.Error("two keys are the same")
	}
	for what, k := range map[string]control.SigningKeys{"at once": keys, "after a restart": reopen()} {
		for _, s := range []*events.Signer{one, two} {
			if got, err := k.Signer(events.KeyID(s.Public())); err != nil || !got.Public().Equal(s.Public()) {
				t.Errorf("%s: the key %s is not found: %v", what, events.KeyID(s.Public()), err)
			}
		}
		if _, err := k.Signer("0123456789abcdef"); err == nil {
			t.Errorf("%s: an unknown key is found", what)
		}
	}
}
