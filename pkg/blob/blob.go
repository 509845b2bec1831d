// Package blob stores data that is too large for an item of the table: Terraform state and saved plans. The caller
// seals them first. A blob never changes. The row that refers to a blob is written after the blob. Every driver passes
// blobtest.
package blob

import (
	"context"
	"errors"
)

// MaxSize is the largest blob, in bytes.
const MaxSize = 128 << 20

// ErrNotFound reports that the blob does not exist.
var ErrNotFound = errors.New("no such blob")

// ErrTooLarge reports that a blob would exceed MaxSize.
var ErrTooLarge = errors.New("the blob is too large")

// Store stores blobs by key (see CheckKey). A key may be the start of another key ("a" and "a/b"). Keys that differ
// only in case are different. Safe for concurrent use: after concurrent Puts of one key, the blob is the complete data
// of one Put. Every method returns the context's error once its context has ended. It returns a *fairlead.Error of
// KindInvalid for an invalid key.
type Store interface {
	// Put stores data under key, durably and atomically. A second Put of a key replaces its
	// blob. Put keeps no reference to data; empty data is a valid blob. For more than
	// MaxSize bytes it returns ErrTooLarge.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns the blob, or ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, error)
	// Delete removes the blob. Deleting a missing blob is no error.
	Delete(ctx context.Context, key string) error
	// List returns the keys with the prefix, in byte order. The prefix may end within a
	// segment; "" lists all keys.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Reviver is a Store that keeps the bytes of a deleted blob for a time.
type Reviver interface {
	Store
	// Revive makes a deleted blob exist again, with its last bytes, and returns true. If the blob exists, Revive changes nothing
	// and returns false. If the bytes are no longer kept, it returns ErrNotFound.
	Revive(ctx context.Context, key string) (bool, error)
}
