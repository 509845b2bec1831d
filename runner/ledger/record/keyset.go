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
	Number int64     `json:"number"`
	Digest string    `json:"digest"` // sha256:… of the key set as it was signed
	At     time.Time `json:"at"`     // when a step first kept it
	Job    string    `json:"job"`
}

// LostKeySetError reports that the control plane offers keys without a key set that a job has followed before.
type LostKeySetError struct{ Kept KeySet }

func (e *LostKeySetError) Error() string {
	return fmt.Sprintf("job %s has followed key set %d of the control plane, and the control plane does not offer it any more. A key may be revoked since: nothing was started", e.Kept.Job, e.Kept.Number)
}

// KeepKeySet keeps the newest of the key sets that a step has followed from the pinned keys, whose identifiers are sorted. The error is a
// *LostKeySetError if these key sets lack the newest one in the ledger: it is hidden, or another key set is in its place.
func KeepKeySet(ctx context.Context, l ledger.Ledger, pinned []string, followed []KeySet) error {
	sum := sha256.Sum256([]byte(strings.Join(pinned, "\n")))
	prefix := keySetKeys + hex.EncodeToString(sum[:8]) + "/"
	entries, err := l.List(ctx, prefix)
	if err != nil {
		return err
	}
	var kept KeySet
	if len(entries) > 0 {
		newest := entries[len(entries)-1]
		if err := json.Unmarshal(newest.Value, &kept); err != nil {
			return fmt.Errorf("read %s of the ledger: %w", newest.Key, err)
		}
		if !slices.ContainsFunc(followed, func(s KeySet) bool { return s.Number == kept.Number && s.Digest == kept.Digest }) {
			return &LostKeySetError{kept}
		}
	}
	if len(followed) == 0 || followed[len(followed)-1].Number == kept.Number {
		return nil
	}
	last := followed[len(followed)-1]
	value, err := json.Marshal(last)
	if err != nil {
		return fmt.Errorf("encode a key set: %w", err)
	}
	if err := l.Create(ctx, fmt.Sprintf("%s%012d", prefix, last.Number), value); !errors.Is(err, ledger.ErrExists) {
		return err
	}
	return nil // a job beside this one keeps it, and later jobs compare it
}
