package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

func TestWriteNeedsItsPrecondition(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     engine.Op
		cond   engine.Precondition
		stored int64
		want   bool
	}{
		{"the zero precondition is Absent", engine.Put, engine.Precondition{}, 1, false},
		{"a put with Absent creates an item", engine.Put, engine.Absent(), 0, true},
		{"a put with the stored version replaces the item", engine.Put, engine.Version(3), 3, true},
		{"a put with an older version is refused", engine.Put, engine.Version(3), 4, false},
		{"a put with a version needs an item", engine.Put, engine.Version(3), 0, false},
		{"a put with Any replaces any version", engine.Put, engine.Any(), 7, true},
		{"a delete with a version needs an item", engine.Delete, engine.Version(1), 0, false},
		{"a delete with Any needs no item", engine.Delete, engine.Any(), 0, true},
		{"a delete with Absent is refused", engine.Delete, engine.Absent(), 0, false},
		{"a check with Absent holds without an item", engine.Check, engine.Absent(), 0, true},
	} {
		if got := (engine.Write{Op: c.op, If: c.cond}).Holds(c.stored); got != c.want {
			t.Errorf("%s: got %t", c.name, got)
		}
	}
}

func TestKeysAreText(t *testing.T) {
	for _, c := range []struct {
		name string
		part string
		ok   bool
	}{
		{"a key of the product", "ORG#o#APP", true},
		{"control characters are text", "\x01\n\x7f", true},
		{"the replacement character is text", "\ufffd", true},
		{"the greatest character", "\U0010ffff", true},
		{"a NUL", "a\x00b", false},
		{"a byte that is not in UTF-8", "\xff", false},
		{"an incomplete character", "\xc3", false},
		{"half of a surrogate pair", "\xed\xa0\x80", false},
		{"an overlong encoding", "\xc0\xaf", false},
		{"the empty key", "", false},
	} {
		for _, k := range []engine.Key{{Partition: c.part, Sort: "s"}, {Partition: "p", Sort: c.part}} {
			if err := engine.CheckKey(k); (err == nil) != c.ok {
				t.Errorf("%s: key %q: got %v", c.name, k, err)
			} else if err != nil && !utf8.ValidString(err.Error()) {
				t.Errorf("%s: the error is not UTF-8: %q", c.name, err)
			}
		}
		if c.part == "" {
			continue // an empty prefix is allowed
		}
		if _, err := engine.CheckQuery(engine.Query{Partition: "p", Prefix: c.part}); (err == nil) != c.ok {
			t.Errorf("%s: prefix %q: got %v", c.name, c.part, err)
		}
		if err := engine.CheckCommit(c.part, []engine.Write{{Item: engine.Item{Key: engine.Key{Partition: "p", Sort: "s"}}}}); (err == nil) != c.ok {
			t.Errorf("%s: token %q: got %v", c.name, c.part, err)
		}
	}
}

func TestRepeatIsRecognisedByItsToken(t *testing.T) {
	a, b := engine.Key{Partition: "p", Sort: "a"}, engine.Key{Partition: "p", Sort: "b"}
	w := func(op engine.Op, k engine.Key) engine.Write {
		return engine.Write{Op: op, Item: engine.Item{Key: k}}
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		writes []engine.Write
		tokens map[engine.Key]string
		want   bool
	}{
		{"all puts have the token", []engine.Write{w(engine.Put, a), w(engine.Put, b)}, map[engine.Key]string{a: "t", b: "t"}, true},
		{"only one of two puts has the token", []engine.Write{w(engine.Put, a), w(engine.Put, b)}, map[engine.Key]string{a: "t", b: "u"}, false},
		{"the item was deleted", []engine.Write{w(engine.Put, a)}, nil, false},
		{"a delete stores no token", []engine.Write{w(engine.Delete, a)}, nil, false},
		{"deletes beside the puts do not matter", []engine.Write{w(engine.Delete, b), w(engine.Put, a)}, map[engine.Key]string{a: "t", b: "u"}, true},
	} {
		got, err := engine.Repeated("t", c.writes, func(k engine.Key) (string, error) { return c.tokens[k], nil })
		if got != c.want || err != nil {
			t.Errorf("%s: got %t, %v", c.name, got, err)
		}
	}
	if _, err := engine.Repeated("t", []engine.Write{w(engine.Put, a)}, func(engine.Key) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("an item that cannot be read: got %v", err)
	}
}

func TestCursorCarriesAnyBytes(t *testing.T) {
	parts := []string{"", "\x00\xff", "ä/b c"}
	cursor := engine.WriteCursor(parts...)
	if strings.Trim(cursor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("the cursor %q needs escaping in a URL", cursor)
	}
	if got, err := engine.ReadCursor(cursor, 3); err != nil || !slices.Equal(got, parts) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", "?", "bnVsbA", cursor + "x", engine.WriteCursor("two", "parts")} {
		if _, err := engine.ReadCursor(bad, 3); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("cursor %q: got %v", bad, err)
		}
	}
}

func TestExpiryIsNeverEarly(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Time
		want int64
	}{
		{"never", time.Time{}, 0},
		{"a whole second", time.Unix(100, 0), 100},
		{"a nanosecond past it", time.Unix(100, 1), 101},
		{"a time before 1970 is not never", time.Unix(-5, 0), 1},
	} {
		if got := engine.ExpirySeconds(c.at); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	if got := engine.ExpiryTime(0); !got.IsZero() {
		t.Errorf("0 is converted to %s, want the zero time", got)
	}
}
