package record

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/runner/ledger"
)

// keySetKeys begins the keys of key sets: the digest of the keys that the runner pinned and the number follow. If the customer
// pins other keys, the runner follows from these.
const keySetKeys = "keys/"

// KeySet is a key set of the control plane that a step has followed.
type KeySet struct {
	Number int64     `json:"number"` // 0: the pinned keys
	Keys   []string  `json:"keys"`   // identifiers, sorted
	At     time.Time `json:"at"`     // when a step first kept it
	Job    string    `json:"job"`
}

// OlderKeySetError reports that the control plane offered keys that it had replaced before.
type OlderKeySetError struct{ Offered, Newest KeySet }

func (e *OlderKeySetError) Error() string {
	return fmt.Sprintf("the job spec is signed with keys of key set %d, but job %s has seen key set %d of the control plane. A key was revoked since: nothing was started",
		e.Offered.Number, e.Newest.Job, e.Newest.Number)
}

// KeepKeySet keeps the key set that a step with the pinned keys follows: their identifiers, sorted. The error is an *OlderKeySetError if the ledger has a newer one
// with other keys. It reads the entries only in this case.
func KeepKeySet(ctx context.Context, l ledger.Ledger, pinned []string, set KeySet) error {
	sum := sha256.Sum256([]byte(strings.Join(pinned, "\n")))
	prefix := keySetKeys + hex.EncodeToString(sum[:8]) + "/"
	keys, err := l.Keys(ctx, prefix)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s%012d", prefix, set.Number)
	if len(keys) > 0 && keys[len(keys)-1] > key {
		entries, err := l.List(ctx, prefix)
		if err != nil {
			return err
		}
		var newest KeySet
		if err := json.Unmarshal(entries[len(entries)-1].Value, &newest); err != nil {
			return fmt.Errorf("read %s of the ledger: %w", entries[len(entries)-1].Key, err)
		}
		if slices.Equal(newest.Keys, set.Keys) {
			return nil
		}
		return &OlderKeySetError{set, newest}
	}
	if set.Number == 0 || slices.Contains(keys, key) {
		return nil // the pinned keys are in no entry: most control planes never change theirs
	}
	value, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("encode a key set: %w", err)
	}
	if err := l.Create(ctx, key, value); !errors.Is(err, ledger.ErrExists) {
		return err
	}
	return nil
}
