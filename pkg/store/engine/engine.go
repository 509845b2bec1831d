// Package engine is the seam between the typed store and a database: one table
// of items, read by key or by partition, written in small atomic commits.
//
// It is as small as the weakest engine allows, and holds every engine to that:
// sizes and counts are DynamoDB's, checked by Check before an engine sees them.
// Engines compare versions and nothing else; rules live in package job and
// package deployment. Every engine passes enginetest.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Key names an item: a partition, and a place in the partition's byte order.
// Both are text; see CheckKey.
type Key struct {
	Partition string
	Sort      string
}

func (k Key) String() string { return k.Partition + "/" + k.Sort }

// Index names one of the two sparse secondary orders of the table. An index
// holds keys only: its membership may lag behind the table, but the items that
// a query of it returns are read from the table, and so are never stale.
type Index string

// The indexes. What each orders is listed in docs/contributing/table-items.md.
const (
	Table Index = ""     // the table's own order: always up to date
	List  Index = "list" // things in the order people list them
	Due   Index = "due"  // things in the order the sweep must look at them
)

// Item is one row. Body is opaque to the engine.
type Item struct {
	Key     Key
	Version int64     // 1 when first written, one more with each commit; set by the engine
	Token   string    // token of the commit that wrote this version; set by the engine
	Body    []byte    // at most MaxBody bytes
	List    *Key      // place in the List index; nil: not in it
	Due     *Key      // place in the Due index; nil: not in it
	Expires time.Time // after it the engine may drop the item at any time; kept in seconds, rounded up; zero: never
}

// Op is what a Write does.
type Op int

// The operations of a commit.
const (
	Put    Op = iota // write the item
	Delete           // remove the item; it must exist unless the precondition is Any
	Check            // write nothing, but hold the precondition
)

// Precondition is what must be true of the stored item for a commit to happen.
// The zero value is Absent, so that an unconditional write has to be spelt out.
type Precondition struct {
	version int64 // 0: absent; -1: any; n: version n
}

// Absent holds when no item has the key.
func Absent() Precondition { return Precondition{} }

// Version holds when the stored item has version n (n ≥ 1).
func Version(n int64) Precondition { return Precondition{version: n} }

// Any always holds. It is for items whose last writer may win, such as "last
// seen", and for migrations.
func Any() Precondition { return Precondition{version: -1} }

// IsAbsent, IsAny and N take a precondition apart, for engines.
func (p Precondition) IsAbsent() bool { return p.version == 0 }

// IsAny reports whether the precondition always holds.
func (p Precondition) IsAny() bool { return p.version == -1 }

// N returns the version that must be stored, or 0 for Absent and -1 for Any.
func (p Precondition) N() int64 { return p.version }

// Holds reports whether the precondition holds of the stored version, which is
// 0 when there is no item.
func (p Precondition) Holds(stored int64) bool {
	return p.version == -1 || p.version == stored
}

func (p Precondition) String() string {
	switch p.version {
	case 0:
		return "absent"
	case -1:
		return "any"
	}
	return fmt.Sprintf("version %d", p.version)
}

// Write is one part of a commit. Only Item.Key matters to Delete and Check.
type Write struct {
	Op   Op
	Item Item
	If   Precondition
}

// Query asks for the items of one partition in the byte order of their sort
// keys (of their place in the index, when Index is set).
type Query struct {
	Index     Index
	Partition string
	Prefix    string // of the sort key; "": all
	After     string // Page.Next of the page before; "": from the start
	Limit     int    // items a page, 1 to MaxPage; 0: MaxPage
	Backward  bool   // from the greatest sort key down
}

// Page is part of a query's answer. Next is "" at the end, and otherwise an
// opaque cursor for the same query on the same engine. A page that is not the
// last may still hold fewer items than asked for, even none: only Next tells.
// Items that share a place in an index come in an order of the engine's own.
type Page struct {
	Items []Item
	Next  string
}

// Engine stores items in one table. Safe for concurrent use.
type Engine interface {
	// Get returns the item at k as of the last commit, or ErrNotFound.
	Get(ctx context.Context, k Key) (Item, error)

	// Query returns one page. A query of the table sees every commit that
	// returned before; a query of an index may miss or still hold recent ones.
	Query(ctx context.Context, q Query) (Page, error)

	// Commit applies every write or none, durably. A *ConflictError means that
	// a precondition did not hold and nothing was written; it names the first
	// write, in the order given, that did not hold. There is one exception:
	// when every stored item that was to be put already carries token, the
	// commit has happened before, and Commit returns nil. (A commit without a
	// put leaves no token, so repeating it may meet a conflict; repeating one
	// with Any may write again.) Any other error leaves it unknown whether the
	// commit happened: repeat it with the same token, or read.
	//
	// A token belongs to one commit: using it for another one is a fault that
	// an engine may refuse.
	Commit(ctx context.Context, token string, writes ...Write) error
}

// ErrNotFound says that no item has the key.
var ErrNotFound = errors.New("no such item")

// ConflictError says which write of a commit did not hold. Current is nil when
// there is no item, or when the engine could not tell.
type ConflictError struct {
	Key     Key
	If      Precondition
	Current *Item
}

func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("conflict at %s: wanted %s, found none", e.Key, e.If)
	}
	return fmt.Sprintf("conflict at %s: wanted %s, found version %d", e.Key, e.If, e.Current.Version)
}

// The limits, all DynamoDB's: 400 KB an item (we keep 25 KB for keys and
// names), 100 writes and 4 MB a transaction, 2,048 bytes a partition key, 1,024
// a sort key, 36 characters a token. MaxPage is ours, because DynamoDB pages by
// bytes. MaxCommitSum is of bodies and keys; what is left of the 4 MB is for
// attribute names, versions and tokens.
const (
	MaxBody      = 375_000
	MaxCommit    = 100
	MaxCommitSum = 4_000_000
	MaxPartition = 2048
	MaxSort      = 1024
	MaxToken     = 36
	MaxPage      = 1000
)

// CheckCommit reports why an engine must refuse the commit, or nil. Every
// engine calls it first, so that all refuse the same.
func CheckCommit(token string, writes []Write) error {
	if token == "" || len(token) > MaxToken {
		return fmt.Errorf("commit token of %d bytes: 1 to %d are allowed", len(token), MaxToken)
	}
	if !isText(token) { // what comes back must be what was given, or no repeat is recognised
		return fmt.Errorf("commit token %q: a token is UTF-8 without U+0000", token)
	}
	if len(writes) == 0 || len(writes) > MaxCommit {
		return fmt.Errorf("commit of %d writes: 1 to %d are allowed", len(writes), MaxCommit)
	}
	seen := make(map[Key]bool, len(writes))
	sum := 0
	for _, w := range writes {
		if err := checkOp(w.Op); err != nil {
			return err
		}
		k := w.Item.Key
		if seen[k] {
			return fmt.Errorf("commit writes %q twice", k)
		}
		seen[k] = true
		for _, k := range []*Key{&k, w.Item.List, w.Item.Due} {
			if k == nil {
				continue
			}
			if err := CheckKey(*k); err != nil {
				return err
			}
			sum += len(k.Partition) + len(k.Sort)
		}
		if len(w.Item.Body) > MaxBody {
			return fmt.Errorf("item %q has a body of %d bytes: at most %d are allowed", k, len(w.Item.Body), MaxBody)
		}
		sum += len(w.Item.Body)
	}
	if sum > MaxCommitSum {
		return fmt.Errorf("commit of %d bytes in bodies and keys: at most %d are allowed", sum, MaxCommitSum)
	}
	return nil
}
