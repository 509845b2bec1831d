// Package engine is the interface between the typed store and a database: one
// table of items, read by key or by partition, written in small atomic commits.
//
// All engines have the same limits of sizes and counts, which are DynamoDB's. Each engine
// calls CheckQuery or CheckCommit first. Engines only compare versions; packages job and
// deployment have the rules. Every engine passes the conformance suite enginetest.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Key identifies an item by its partition and its sort key. The items of a partition are
// in the byte order of their sort keys. Both parts are text; see CheckKey.
type Key struct {
	Partition string
	Sort      string
}

func (k Key) String() string { return k.Partition + "/" + k.Sort }

// Index names the table itself or one of its two sparse secondary indexes. An
// index holds only keys. It may lag behind the table, so a query can miss items or
// return items that have left the index. A query reads the items themselves from
// the table, so their content is never stale.
type Index string

// The indexes. docs/contributing/table-items.md lists their items.
const (
	Table Index = ""     // the table itself: always up to date
	List  Index = "list" // items in the order in which lists show them
	Due   Index = "due"  // items in the order in which the sweep must check them
)

// Item is one row. Body is opaque to the engine.
type Item struct {
	Key     Key
	Version int64     // 1 after the first write, plus 1 for each commit; set by the engine
	Token   string    // token of the commit that wrote this version; set by the engine
	Body    []byte    // at most MaxBody bytes
	List    *Key      // key in the List index; nil: the item is not in this index
	Due     *Key      // key in the Due index; nil: the item is not in this index
	Expires time.Time // the engine may drop the item at any time after Expires; stored in seconds, rounded up; zero: never
	// Note is what the commit adds about this version of the item, for those who read the stream of changes. Only Change.New has
	// it: Get and Query return none, and the next write of the item removes it.
	Note []byte
}

// Op is what a Write does.
type Op int

// The operations of a commit.
const (
	Put    Op = iota // write the item
	Delete           // remove the item; it must exist unless the precondition is Any
	Check            // write nothing, only check the precondition
)

// Precondition is a condition on the stored item. If the condition does not hold, the
// commit fails. The zero value is Absent, so that a caller must write Any explicitly.
type Precondition struct {
	version int64 // 0: absent; -1: any; n: version n
}

// Absent holds when no item has the key.
func Absent() Precondition { return Precondition{} }

// Version holds when the stored item has version n (n ≥ 1).
func Version(n int64) Precondition { return Precondition{version: n} }

// Any always holds. Use it for migrations, and for items that each write may overwrite,
// for example "last seen".
func Any() Precondition { return Precondition{version: -1} }

// IsAbsent reports whether the precondition is Absent. IsAbsent, IsAny and N are for
// engines.
func (p Precondition) IsAbsent() bool { return p.version == 0 }

// IsAny reports whether the precondition always holds.
func (p Precondition) IsAny() bool { return p.version == -1 }

// N returns the version that must be stored, or 0 for Absent and -1 for Any.
func (p Precondition) N() int64 { return p.version }

// Holds reports whether the precondition holds for the stored version; 0 means that
// there is no item.
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

// Write is one part of a commit. Delete and Check use only Item.Key.
type Write struct {
	Op   Op
	Item Item
	If   Precondition
}

// Query selects the items of one partition in the byte order of their sort keys. If Index
// is set, Partition, Prefix and the order refer to the keys in the index.
type Query struct {
	Index     Index
	Partition string
	Prefix    string // of the sort key; "": all
	After     string // Page.Next of the previous page; "": from the start
	Limit     int    // items in a page, 1 to MaxPage; 0: MaxPage
	Backward  bool   // descending order of sort keys
}

// Page is a part of a query's result. Next is "" at the end, and otherwise an
// opaque cursor for the same query on the same engine. A page that is not the last
// can have fewer items than Limit, even none: only Next shows the end. The engine
// chooses the order of items with the same key in an index.
type Page struct {
	Items []Item
	Next  string
}

// Engine stores items in one table. Safe for concurrent use.
type Engine interface {
	// Get returns the item at k after the last commit, or ErrNotFound.
	Get(ctx context.Context, k Key) (Item, error)

	// Query returns one page. A query of the table sees every commit that returned
	// before it. A query of an index may not show recent commits yet.
	Query(ctx context.Context, q Query) (Page, error)

	// Commit applies all writes or none, durably. A *ConflictError means that a
	// precondition did not hold and nothing was written. It names the first
	// write, in the given order, whose precondition did not hold.
	//
	// Exception: if the stored items of all puts already have token, the commit happened
	// before, and Commit returns nil. A commit without a put stores no token, so a repeat
	// of it can return a conflict. A repeat of a commit with Any can write again.
	//
	// After any other error it is unknown whether the commit happened: repeat it
	// with the same token, or read.
	//
	// Use a token for one commit only. An engine may refuse a token that another commit
	// has used.
	Commit(ctx context.Context, token string, writes ...Write) error
}

// ErrNotFound means that no item has the key.
var ErrNotFound = errors.New("no such item")

// ConflictError is the write of a commit whose precondition did not hold. Current
// is nil if there is no item, or if the engine does not know the item.
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

// The limits. All but MaxPage are DynamoDB's: 400 KB an item (25 KB of it are reserved
// for keys and names), 100 writes and 4 MB a transaction, 2,048 bytes a partition key,
// 1,024 bytes a sort key, 36 characters a token. MaxPage is Fairlead's own limit, because
// DynamoDB limits pages by bytes. MaxCommitSum counts bodies and keys; the rest of the 4
// MB is for attribute names, versions and tokens.
const (
	MaxBody      = 375_000
	MaxCommit    = 100
	MaxCommitSum = 4_000_000
	MaxPartition = 2048
	MaxSort      = 1024
	MaxToken     = 36
	MaxPage      = 1000
)

// CheckCommit returns an error if an engine must refuse the commit. Every engine
// calls it first, so that all engines refuse the same commits.
func CheckCommit(token string, writes []Write) error {
	if token == "" || len(token) > MaxToken {
		return fmt.Errorf("commit token of %d bytes: 1 to %d are allowed", len(token), MaxToken)
	}
	if !isText(token) { // a database could alter other tokens, and a repeat of the commit would not be recognised
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
