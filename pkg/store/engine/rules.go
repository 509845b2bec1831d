package engine

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Holds reports whether the write is permitted when the stored item has version
// stored; 0 means that there is no item. A write is permitted if its precondition
// is true. There is one exception: if there is no item, a Delete is permitted only
// with the precondition Any. So a Delete with Absent is never permitted.
func (w Write) Holds(stored int64) bool {
	if w.Op == Delete && stored == 0 {
		return w.If.IsAny()
	}
	return w.If.Holds(stored)
}

// Repeated reports whether a commit with a conflict happened before: it has a put,
// and the stored items of all its puts have token. stored returns the token of the
// item at a key, or "" if there is no item. A commit without a put stores no
// token, so Repeated reports false for it.
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

// CheckKey returns an error if no item can have the key.
//
// Both parts of a key are text: valid UTF-8 without U+0000. So DynamoDB can store them as
// type S, which its console shows and accepts as text; The console shows type B as
// base64. DynamoDB orders type S by the bytes of the UTF-8
// (amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html), so an
// engine that compares bytes has the same order. Other bytes must be refused before they
// are sent: JSON cannot carry them, and a client library replaces them with U+FFFD, so
// two keys could become one. U+0000 is refused because many tools end a string there, so
// a person could not look up the key.
func CheckKey(k Key) error {
	if len(k.Partition) == 0 || len(k.Partition) > MaxPartition || len(k.Sort) == 0 || len(k.Sort) > MaxSort {
		return fmt.Errorf("key %q: a partition is 1 to %d bytes, a sort key 1 to %d", k, MaxPartition, MaxSort)
	}
	if !isText(k.Partition) || !isText(k.Sort) {
		return fmt.Errorf("key %q: a partition and a sort key are UTF-8 without U+0000", k)
	}
	return nil
}

// isText reports whether every engine stores s unchanged and in the same order.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// CheckQuery returns the number of items in a page, or an error if an engine must refuse
// the query. Every engine calls CheckQuery first and uses this limit. A prefix is text
// like a key, so it cannot end inside a character.
func CheckQuery(q Query) (limit int, err error) {
	switch q.Index {
	case Table, List, Due:
	default:
		return 0, fmt.Errorf("query of index %q: there is no such index", q.Index)
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

// Place returns the item's key in the index, or nil if it is not in the index.
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

// ExpirySeconds returns t as engines store it: in seconds since 1970, rounded up so
// that no item expires early. The zero time, never, is 0.
func ExpirySeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return max(s, 1) // 0 means never, so a time at or before 1970 is stored as 1, which is also in the past
}

// ExpiryTime is the inverse of ExpirySeconds. The time is in UTC.
func ExpiryTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// checkOp returns an error if the operation does not exist, which is a bug of the
// caller.
func checkOp(op Op) error {
	switch op {
	case Put, Delete, Check:
		return nil
	}
	return fmt.Errorf("commit with operation %d: there is no such operation", op)
}
