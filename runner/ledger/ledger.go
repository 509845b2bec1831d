// Package ledger is where the steps of a runner keep what several jobs decide together, on the customer's side: the changes that
// a policy has admitted in a deployment, the change sets of plans, and later which approvals are used up. The control plane
// cannot reach it.
//
// Every driver passes ledgertest.
package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// Ledger stores entries that never change. Safe for concurrent use, also by several processes.
type Ledger interface {
	// Create stores an entry, and is the only one to do so for its key: of several callers at once exactly one succeeds, and an
	// entry that was created is complete for each reader, also after a crash. The error wraps ErrExists if the key has an entry.
	// After any other error the entry may exist.
	Create(ctx context.Context, key string, value []byte) error
	// List returns the entries whose keys begin with a prefix that ends with a slash, sorted by key. It has each entry whose Create
	// returned before.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Keys returns the keys of what List returns, without reading the entries.
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Remove removes an entry. It is no error if there is none.
	Remove(ctx context.Context, key string) error
}

// Entry is an entry of a ledger.
type Entry struct {
	Key   string
	Value []byte
}

// ErrExists is wrapped by the error of Create if the key has an entry.
var ErrExists = errors.New("the ledger has the entry already")

// MaxValue is the largest value, in bytes. An object of a cluster has at most 1 MiB.
const MaxValue = 512 << 10

var validKey = pattern.New(`^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}(?:/[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}){1,4}$`)

// Check returns an error for a key or value that a driver might not store.
func Check(key string, value []byte) error {
	switch {
	case !validKey.MatchString(key):
		return fmt.Errorf("the ledger has no key such as %.200q", key)
	case len(value) > MaxValue:
		return fmt.Errorf("the entry %s has %d bytes, more than %d", key, len(value), MaxValue)
	}
	return nil
}
