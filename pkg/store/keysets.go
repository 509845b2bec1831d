package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// KeySets are the signed changes of the keys with which the control plane signs job specs.
type KeySets struct {
	fairlead.Actors
	Envelopes [][]byte  `json:"envelopes"` // of events.KeySet, by number; at most events.MaxKeySets of less than 2 KiB
	Changed   time.Time `json:"changed"`
}

// KeySets returns the key sets: none if the keys never changed.
func (s *Store) KeySets(ctx context.Context) (Stored[KeySets], error) {
	return getOr(ctx, s, keySetsKey(), KeySets{})
}

// PutKeySets writes the key sets.
func (t *Tx) PutKeySets(r Stored[KeySets]) { put(t, keySetsKey(), r) }
