// Package blob keeps what is too large for an item of the table: Terraform
// state and saved plans, always sealed before they come here. A blob never
// changes; the row that names it is written after it. Every driver passes
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

// Store keeps blobs by key (see CheckKey). One key may continue another ("a"
// and "a/b"), and keys that differ in case are different. Safe for concurrent
// use: of concurrent Puts of one key, one stays, whole. Every method returns
// the context's error once its context has ended, and a *fairlead.Error of
// KindInvalid for a bad key.
type Store interface {
	// Put stores data under key, durably and whole or not at all. Putting the
	// same key again replaces it whole. It keeps no reference to data; empty
	// data is a blob. ErrTooLarge for more than MaxSize bytes.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns the blob, or ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, error)
	// Delete removes the blob. Deleting an absent blob is no error.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with prefix, in byte order. The prefix
	// may end within a segment; "" lists all.
	List(ctx context.Context, prefix string) ([]string, error)
}
