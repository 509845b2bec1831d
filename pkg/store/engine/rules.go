package engine

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Holds reports whether the write may happen when the stored item has version
// stored, 0 meaning that there is none: its precondition must hold, and only
// with Any may a Delete find nothing. (So a Delete with Absent never holds.)
func (w Write) Holds(stored int64) bool {
	if w.Op == Delete && stored == 0 {
		return w.If.IsAny()
	}
	return w.If.Holds(stored)
}

// Repeated reports whether a commit that met a conflict has in truth happened
// before: it has a put, and every stored item that was to be put carries
// token. stored returns the token of the item at a key, or "" when there is no
// item. A commit without a put leaves no token behind and is never recognised.
func Repeated(token string, writes []Write, stored func(Key) (string, error)) (bool, error) {
	puts := 0
	for _, w := range writes {
		if w.Op != Put {
			continue
		}
		got, err := stored(w.Item.Key)
		if err != nil || got != token {
			return false, err
		}
		puts++
	}
	return puts > 0, nil
}

// CheckKey reports why no item can have the key, or nil.
//
// Both parts of a key are text: valid UTF-8 without U+0000. That lets DynamoDB
// keep them as type S, which its console shows and takes as people write them,
// where type B is base64 to everybody. Type S orders by the bytes of the UTF-8
// (amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html),
// so an engine that compares bytes gives the same order. Anything else must be
// refused before it is sent: JSON carries no other bytes, and a client library
// puts U+FFFD in their place, which would make two keys one. U+0000 ends a
// string in too many tools to be looked for by hand.
func CheckKey(k Key) error {
	if len(k.Partition) == 0 || len(k.Partition) > MaxPartition || len(k.Sort) == 0 || len(k.Sort) > MaxSort {
		return fmt.Errorf("key %q: a partition is 1 to %d bytes, a sort key 1 to %d", k, MaxPartition, MaxSort)
	}
	if !isText(k.Partition) || !isText(k.Sort) {
		return fmt.Errorf("key %q: a partition and a sort key are UTF-8 without U+0000", k)
	}
	return nil
}

// isText reports whether every engine keeps s as it is and in its order.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// CheckQuery reports why an engine must refuse the query, or nil. Every engine
// calls it first and uses the number of items a page that it returns. A prefix
// is text as keys are, so it cannot end within a character.
func CheckQuery(q Query) (limit int, err error) {
	switch q.Index {
	case Table, List, Due:
	default:
		return 0, fmt.Errorf("query of index %q: there is none", q.Index)
	}
	if len(q.Partition) == 0 || len(q.Partition) > MaxPartition || len(q.Prefix) > MaxSort {
		return 0, fmt.Errorf("query of partition %q: a partition is 1 to %d bytes, a prefix at most %d",
			q.Partition, MaxPartition, MaxSort)
	}
	if !isText(q.Partition) || !isText(q.Prefix) {
		return 0, fmt.Errorf("query of partition %q, prefix %q: both are UTF-8 without U+0000", q.Partition, q.Prefix)
	}
	if q.Limit < 0 || q.Limit > MaxPage {
		return 0, fmt.Errorf("query of partition %q: %d items a page: 1 to %d are allowed", q.Partition, q.Limit, MaxPage)
	}
	if q.Limit == 0 {
		return MaxPage, nil
	}
	return q.Limit, nil
}

// Place returns where the item stands in the index, or nil when it is not in it.
func (i *Item) Place(index Index) *Key {
	switch index {
	case List:
		return i.List
	case Due:
		return i.Due
	default:
		return &i.Key
	}
}

// ExpirySeconds returns t as engines keep it: in seconds since 1970, rounded
// up so that no item goes early; and 0 for the zero time, which is never.
func ExpirySeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return max(s, 1) // 0 is taken, and the past is the past
}

// ExpiryTime returns the time, in UTC, of what ExpirySeconds returned.
func ExpiryTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// checkOp reports an operation that does not exist, which is a fault of the
// caller's program.
func checkOp(op Op) error {
	switch op {
	case Put, Delete, Check:
		return nil
	}
	return fmt.Errorf("operation %d of a commit: there is none", op)
}
