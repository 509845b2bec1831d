package enginetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestMeterConforms(t *testing.T) {
	enginetest.Run(t, func(*testing.T) engine.Engine {
		return enginetest.Meter(enginetest.Memory())
	}, enginetest.Options{})
}

// overhead is the size in bytes of the item p/s without its body, if the version is 1 to 10
// and the token has four letters: "pk" 2 + "p" 1 + "sk" 2 + "s" 1 + "v" 1 + number 2 + "t" 1 +
// token 4 + "b" 1. A number has one byte, plus one byte for each two significant digits. The
// number 10 has one significant digit, so it has the same size as 9.
const overhead = 15

// The prices were computed by hand from the rules that meter.go cites. An item of s bytes
// costs ⌈s/1024⌉ to write and ⌈s/4096⌉ to read, at least 1.
func TestMeterCountsWrites(t *testing.T) {
	k, j := engine.Key{Partition: "p", Sort: "s"}, engine.Key{Partition: "p", Sort: "j"}
	l1, l2 := &engine.Key{Partition: "l", Sort: "1"}, &engine.Key{Partition: "l", Sort: "2"}
	put := func(k engine.Key, size int, list, due *engine.Key, cond engine.Precondition) engine.Write {
		return engine.Write{
			Item: engine.Item{Key: k, Body: make([]byte, size-overhead), List: list, Due: due}, If: cond,
		}
	}
	del := engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Any()}
	check := func(k engine.Key, cond engine.Precondition) engine.Write {
		return engine.Write{Op: engine.Check, Item: engine.Item{Key: k}, If: cond}
	}
	delOne := engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Version(1)}
	absent, one := engine.Absent(), engine.Version(1)
	const many = enginetest.OpCommitMany

	for _, c := range []struct {
		name   string
		before []engine.Write // committed first, one by one, and not counted
		writes []engine.Write
		op     string // "": a commit of one write
		table  float64
		index  float64
		read   float64
	}{
		{name: "1,024 bytes cost one unit", writes: []engine.Write{put(k, 1024, nil, nil, absent)}, table: 1},
		{name: "1,025 bytes cost two units", writes: []engine.Write{put(k, 1025, nil, nil, absent)}, table: 2},
		{name: "a small item over a large one costs as much as the large one",
			before: []engine.Write{put(k, 5000, nil, nil, absent)}, writes: []engine.Write{put(k, 100, nil, nil, one)}, table: 5},
		{name: "a delete costs as much as its item",
			before: []engine.Write{put(k, 2049, nil, nil, absent)}, writes: []engine.Write{del}, table: 3},
		{name: "a conditional delete costs as a transaction",
			before: []engine.Write{put(k, 2049, nil, nil, absent)}, writes: []engine.Write{delOne}, table: 6},
		{name: "a delete of a missing item costs one unit", writes: []engine.Write{del}, table: 1},
		{name: "a single check costs a read",
			before: []engine.Write{put(k, 4097, nil, nil, absent)}, writes: []engine.Write{check(k, one)}, read: 2},
		{name: "a check of Any costs nothing", writes: []engine.Write{check(k, engine.Any())}},
		{name: "a write with a check of Any costs as a single write",
			writes: []engine.Write{put(k, 100, nil, nil, absent), check(j, engine.Any())}, table: 1},

		{name: "an index entry adds one unit", writes: []engine.Write{put(k, 100, l1, nil, absent)}, table: 1, index: 1},
		{name: "entries in two indexes add two units", writes: []engine.Write{put(k, 100, l1, l2, absent)}, table: 1, index: 2},
		{name: "a large body adds nothing to the cost of an index", writes: []engine.Write{put(k, 10_000, l1, nil, absent)}, table: 10, index: 1},
		{name: "an unchanged index key costs nothing",
			before: []engine.Write{put(k, 100, l1, nil, absent)}, writes: []engine.Write{put(k, 900, l1, nil, one)}, table: 1},
		{name: "a changed index key costs two units", before: []engine.Write{put(k, 100, l1, nil, absent)}, writes: []engine.Write{put(k, 100, l2, nil, one)}, table: 1, index: 2},
		{name: "a removed index entry costs one unit", before: []engine.Write{put(k, 100, l1, nil, absent)}, writes: []engine.Write{put(k, 100, nil, nil, one)}, table: 1, index: 1},
		{name: "a delete removes both index entries", before: []engine.Write{put(k, 100, l1, l2, absent)}, writes: []engine.Write{del}, table: 1, index: 2},

		{name: "a transaction writes each item twice", op: many,
			writes: []engine.Write{put(k, 1025, nil, nil, absent), put(j, 100, nil, nil, absent)}, table: 6},
		{name: "a transaction writes index entries once", op: many,
			writes: []engine.Write{put(k, 100, l1, nil, absent), put(j, 100, l2, l1, absent)}, table: 4, index: 3},
		{name: "a check in a transaction costs as much as a write", op: many,
			before: []engine.Write{put(k, 1025, nil, nil, absent)},
			writes: []engine.Write{check(k, one), put(j, 100, nil, nil, absent)}, table: 6},
		{name: "a check of a missing item in a transaction costs two units", op: many,
			writes: []engine.Write{check(k, absent), put(j, 100, nil, nil, absent)}, table: 4},

		{name: "a failed condition costs as much as the stored item", op: enginetest.OpConflict,
			before: []engine.Write{put(k, 2000, l1, nil, absent)}, writes: []engine.Write{put(k, 9000, l2, nil, absent)}, table: 2},
		{name: "a cancelled transaction is counted in full", op: enginetest.OpConflict,
			before: []engine.Write{put(k, 2000, l1, nil, absent)},
			writes: []engine.Write{put(k, 100, l2, nil, absent), put(j, 100, nil, nil, absent)}, table: 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := enginetest.Meter(enginetest.Memory())
			for i, w := range c.before {
				if err := m.Commit(t.Context(), fmt.Sprintf("set%d", i), w); err != nil {
					t.Fatal(err)
				}
			}
			m.Reset()
			if c.op == "" {
				c.op = enginetest.OpCommitOne
			}
			err := m.Commit(t.Context(), "tokn", c.writes...)
			if _, conflict := errors.AsType[*engine.ConflictError](err); conflict != (c.op == enginetest.OpConflict) || (err != nil && !conflict) {
				t.Fatal(err)
			}
			want := enginetest.Units{Calls: 1, Read: c.read, TableWrite: c.table, IndexWrite: c.index}
			if got := m.Usage()[c.op]; got != want || m.Total() != want {
				t.Errorf("got %+v, want %+v (all: %v)", got, want, m.Usage())
			}
		})
	}
}

func TestMeterCountsReads(t *testing.T) {
	m := enginetest.Meter(enginetest.Memory())
	size := []int{4096, 4097, 100} // separately they cost 1, 2 and 1 units; together, 8,293 bytes, they cost 3
	for i, s := range size {
		w := engine.Write{Item: engine.Item{
			Key:  engine.Key{Partition: "p", Sort: fmt.Sprint(i)},
			Body: make([]byte, s-overhead-8), // the index key: "lpk" 3 + "l" 1 + "lsk" 3 + "s" 1
			List: &engine.Key{Partition: "l", Sort: "s"},
		}}
		if err := m.Commit(t.Context(), "tokn", w); err != nil {
			t.Fatal(err)
		}
	}
	m.Reset()
	for i := range 4 { // the last item is missing, which costs one unit
		if _, err := m.Get(t.Context(), engine.Key{Partition: "p", Sort: fmt.Sprint(i)}); err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Fatal(err)
		}
	}
	for _, q := range []engine.Query{
		{Partition: "p"}, {Partition: "empty"}, // these cost 3 and 1 units
		{Index: engine.List, Partition: "l"},    // the entries cost half of 1 unit, the items cost 4
		{Index: engine.Due, Partition: "empty"}, // costs half of 1 unit
	} {
		if _, err := m.Query(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]enginetest.Units{
		enginetest.OpGet:        {Calls: 4, Read: 5},
		enginetest.OpQueryTable: {Calls: 2, Read: 4},
		enginetest.OpQueryList:  {Calls: 1, Read: 4.5},
		enginetest.OpQueryDue:   {Calls: 1, Read: 0.5},
	}
	for op, w := range want {
		if got := m.Usage()[op]; got != w {
			t.Errorf("%s: got %+v, want %+v", op, got, w)
		}
	}
	if got := m.Total(); got.Calls != 8 || got.Read != 14 || got.Write() != 0 {
		t.Errorf("total: %+v", got)
	}
	m.Reset()
	if got := m.Total(); got != (enginetest.Units{}) {
		t.Errorf("after Reset: %+v", got)
	}
}

func TestMeterCountsRepeats(t *testing.T) {
	m := enginetest.Meter(enginetest.Memory())
	writes := []engine.Write{put(keyA, "", engine.Absent()), put(keyB, "", engine.Absent())}
	for range 2 {
		m.Reset()
		if err := m.Commit(t.Context(), "tokn", writes...); err != nil {
			t.Fatal(err)
		}
	}
	// DynamoDB recognises the token of the second commit, so it only reads both items.
	if got, want := m.Total(), (enginetest.Units{Calls: 1, Read: 4}); got != want {
		t.Errorf("several writes: got %+v, want %+v", got, want)
	}
	m.Reset()
	if err := m.Commit(t.Context(), "tokn", writes[0]); err != nil {
		t.Fatal(err)
	}
	// A request of a single write has no token. DynamoDB cannot recognise the repeat, so the
	// condition fails.
	if got, want := m.Total(), (enginetest.Units{Calls: 1, TableWrite: 1}); got != want {
		t.Errorf("one write: got %+v, want %+v", got, want)
	}
}
