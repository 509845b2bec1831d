package enginetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

func queryTests() []test {
	return []test{
		{"a partition is in byte order", byteOrder},
		{"a prefix has no wildcards", prefixes},
		{"pages of every size give all items, in both directions", pages},
		{"a cursor works after the delete of its item", cursorOfDeleted},
		{"partitions with unusual characters are separate", partitions},
		{"an empty partition has one empty page", emptyPartition},
		{"a query sees every commit that returned", queryAfterCommit},
		{"a query returns complete items", wholeItems},
		{"an invalid query is refused", badQueries},
	}
}

// last is the greatest character. A key that begins with another character sorts before
// last.
const last = "\U0010ffff"

// oddKeys returns keys with characters of one to four bytes, including the first and the
// last character of each length. Their byte order differs from alphabetical order and from
// UTF-16 order, in which 𝄞 is before U+E000. Two keys show whether an engine normalises
// Unicode: é as one character, and é as two characters.
func oddKeys() []string {
	return []string{
		"\x01", "\x01\x01", "\x01a", "\x02", "\n", " ", "!", "%", "0", "10", "2", "A", "A\x01", "A\x01" + last, "A" + last, "B",
		"_", "a", "a b", "a'b", `a"b`, "a/b", "a\\", "ab", "b", "<z>&", "z", "~", "\x7f", "\u0080", "é", "e\u0301", "ä", "ß", "\u07ff",
		"\u0800", "–", "\u2028", "語", "\ud7ff", "\ue000", "\ufeff", "\ufffd", "\uffff", "\U00010000", "𝄞", last, last + "\x01", last + "\uffff", last + last,
	}
}

// notText returns strings that are invalid as key, prefix or token. The map's key describes
// the defect.
func notText() map[string]string {
	return map[string]string{
		"is no UTF-8":              "a\xff",
		"has half a character":     "\xc3",
		"has a surrogate":          "\xed\xa0\x80",
		"is beyond Unicode":        "\xf4\x90\x80\x80",
		"has an overlong encoding": "\xc0\xaf",
		"has a NUL":                "a\x00b",
	}
}

func (f *fixture) fill(partition string, sorts ...string) {
	f.Helper()
	// Write the keys in random order. Otherwise an engine that lists them in the order of
	// the writes would pass the test.
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(sorts)) {
		f.commit(put(f.key(partition, sorts[i]), fmt.Sprint(i), engine.Any()))
	}
}

func byteOrder(f *fixture) {
	want := oddKeys()
	slices.Sort(want)
	f.fill("p", want...)
	q := engine.Query{Partition: f.part("p")}
	f.wantSorts(q, 0, want...)
	q.Backward = true
	slices.Reverse(want)
	f.wantSorts(q, 0, want...)
	for _, s := range want {
		if it := f.get(f.key("p", s)); it.Key.Sort != s {
			f.Errorf("get of %q returned %q", s, it.Key.Sort)
		}
	}
}

func prefixes(f *fixture) {
	keys := append(oddKeys(), "job/1", "job/10", "job/2", "job0", "Job/1", "jo", "job", "job%2", "job_2", "job*", last+last+last)
	slices.Sort(keys)
	f.fill("p", keys...)
	for _, prefix := range []string{
		"", "job", "job/", "job/1", "job%", "job_", "job*", "none", "a", "\x01", last, last + last, "A\x01", "e", "é", "\x7f", "\u07ff", "\uffff",
	} {
		var want []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		for _, limit := range []int{0, 1, 3} {
			f.wantSorts(engine.Query{Partition: f.part("p"), Prefix: prefix}, limit, want...)
			back := slices.Clone(want)
			slices.Reverse(back)
			f.wantSorts(engine.Query{Partition: f.part("p"), Prefix: prefix, Backward: true}, limit, back...)
		}
	}
}

func pages(f *fixture) {
	var want []string
	for i := range 23 {
		want = append(want, fmt.Sprintf("%03d", i))
	}
	f.fill("p", want...)
	back := slices.Clone(want)
	slices.Reverse(back)
	for _, limit := range []int{1, 2, 7, 22, 23, 24, engine.MaxPage} {
		f.wantSorts(engine.Query{Partition: f.part("p")}, limit, want...)
		f.wantSorts(engine.Query{Partition: f.part("p"), Backward: true}, limit, back...)
	}
}

func cursorOfDeleted(f *fixture) {
	f.fill("p", "a", "b", "c", "d", "e")
	for _, backward := range []bool{false, true} {
		q := engine.Query{Partition: f.part("p"), Limit: 2, Backward: backward}
		page, err := f.e.Query(f.Context(), q)
		if err != nil || len(page.Items) != 2 || page.Next == "" {
			f.Fatalf("first page: %+v, %v", page, err)
		}
		last := page.Items[1].Key
		f.commit(del(last, engine.Any()))
		// The query must return items that were added after the cursor, but not items
		// before it.
		f.commit(put(f.key("p", "c5"), "", engine.Any()))
		q.After, q.Limit = page.Next, 0
		page, err = f.e.Query(f.Context(), q)
		if err != nil {
			f.Fatal(err)
		}
		want := []string{"c", "c5", "d", "e"}
		if backward {
			want = []string{"c5", "c", "a"}
		}
		if got := sorts(page.Items); !slices.Equal(got, want) {
			f.Errorf("backward %t: the items after %q are %q, want %q", backward, last.Sort, got, want)
		}
		f.commit(put(last, "", engine.Any()), del(f.key("p", "c5"), engine.Any()))
		f.commit(del(f.key("p", "b"), engine.Any())) // so that the next direction starts without b
	}
}

func partitions(f *fixture) {
	names := []string{"a", "a/", "a\x01", "a\x01b", "A", "a ", last, "ä", "a\u0308", "a" + last, "\ufffd"}
	for _, n := range names {
		f.commit(put(f.key(n, "k"), n, engine.Absent()))
	}
	for _, n := range names {
		items := f.all(engine.Query{Partition: f.part(n)}, 0)
		if len(items) != 1 || string(items[0].Body) != n {
			f.Errorf("partition %q holds %v", n, items)
		}
	}
}

func emptyPartition(f *fixture) {
	for _, index := range []engine.Index{engine.Table, engine.List, engine.Due} {
		page, err := f.e.Query(f.Context(), engine.Query{Index: index, Partition: f.part("empty")})
		if err != nil || len(page.Items) != 0 || page.Next != "" {
			f.Errorf("index %q: got %+v, %v", index, page, err)
		}
	}
}

func queryAfterCommit(f *fixture) {
	q := engine.Query{Partition: f.part("p")}
	var want []string
	for i := range 20 {
		s := fmt.Sprintf("%02d", i)
		f.commit(put(f.key("p", s), "", engine.Absent()))
		want = append(want, s)
		if i%3 == 0 {
			f.commit(del(f.key("p", want[0]), engine.Version(1)))
			want = want[1:]
		}
		if got := sorts(f.all(q, 0)); !slices.Equal(got, want) {
			f.Fatalf("after commit %d: got %q, want %q", i, got, want)
		}
	}
}

func wholeItems(f *fixture) {
	k := f.key("p", "k")
	list, due := f.key("l", "1"), f.key("d", "2")
	it := engine.Item{Key: k, Body: []byte{0, 1, 0xff}, List: &list, Due: &due, Expires: engine.ExpiryTime(7e9)}
	it.Token, it.Version = f.commit(engine.Write{Item: it}), 1
	f.want(it)
	for _, q := range []engine.Query{
		{Partition: k.Partition},
		{Index: engine.List, Partition: list.Partition},
		{Index: engine.Due, Partition: due.Partition},
	} {
		f.eventually(func() error {
			items, err := all(f.Context(), f.e, q, 0)
			if err != nil || len(items) != 1 {
				return fmt.Errorf("index %q: got %d items, %v", q.Index, len(items), err)
			}
			if d := differ(it, items[0]); d != "" {
				return fmt.Errorf("index %q: %s", q.Index, d)
			}
			return nil
		})
	}
}

func badQueries(f *fixture) {
	f.fill("p", "a", "b", "c")
	bad := map[string]engine.Query{
		"a page larger than MaxPage": {Partition: f.part("p"), Limit: engine.MaxPage + 1},
		"a negative page":            {Partition: f.part("p"), Limit: -1},
		"no partition":               {},
		"an unknown index":           {Index: "other", Partition: f.part("p")},
		"a huge prefix":              {Partition: f.part("p"), Prefix: strings.Repeat("x", engine.MaxSort+1)},
	}
	keys := []engine.Key{{}, {Partition: "p"}, {Sort: "s"}, f.key("p", strings.Repeat("x", engine.MaxSort+1))}
	for what, s := range notText() {
		for _, index := range []engine.Index{engine.Table, engine.List, engine.Due} {
			bad[fmt.Sprintf("a partition that %s, index %q", what, index)] = engine.Query{Index: index, Partition: f.part(s)}
			bad[fmt.Sprintf("a prefix that %s, index %q", what, index)] = engine.Query{Index: index, Partition: f.part("p"), Prefix: s}
		}
		keys = append(keys, f.key(s, "a"), f.key("p", s))
	}
	for name, q := range bad {
		_, want := engine.CheckQuery(q)
		if _, err := f.e.Query(f.Context(), q); err == nil || err.Error() != want.Error() {
			f.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	for _, cursor := range []string{"nonsense", "!", "AAAA", "bnVsbA", strings.Repeat("A", 9999)} {
		_, err := f.e.Query(f.Context(), engine.Query{Partition: f.part("p"), After: cursor})
		if fairlead.KindOf(err) != fairlead.KindInvalid {
			f.Errorf("cursor %.20q: got %v, want an error of kind invalid", cursor, err)
		}
	}
	for _, k := range keys {
		if _, err := f.e.Get(f.Context(), k); !errors.Is(err, engine.ErrNotFound) {
			f.Errorf("get of %.40q, a key that no item can have: got %v, want ErrNotFound", k, err)
		}
	}
}

func indexTests() []test {
	return []test{
		{"an item is in the index of its latest version", membership},
		{"an index is in byte order across pages", indexOrder},
		{"items of many partitions share an index partition", indexAcross},
		{"items with the same index key are all listed once", samePlace},
		{"the two indexes are separate", twoIndexes},
		{"a query of an index returns current items", freshBodies},
	}
}

func at(w engine.Write, list, due *engine.Key) engine.Write {
	w.Item.List, w.Item.Due = list, due
	return w
}

func membership(f *fixture) {
	k := f.key("p", "k")
	ready, done := f.key("ready", "5"), f.key("done", "5")
	later := f.key("ready", "9")
	in := func(partition string, want ...string) {
		f.Helper()
		f.wantSorts(engine.Query{Index: engine.List, Partition: f.part(partition)}, 0, want...)
	}
	f.commit(put(k, "outside", engine.Absent()))
	in("ready")
	f.commit(at(put(k, "enters", engine.Version(1)), &ready, nil))
	in("ready", "k")
	f.commit(at(put(k, "stays", engine.Version(2)), &ready, nil))
	in("ready", "k")
	f.commit(at(put(k, "moves within", engine.Version(3)), &later, nil))
	in("ready", "k")
	f.wantSorts(engine.Query{Index: engine.List, Partition: f.part("ready"), Prefix: "5"}, 0)
	f.commit(at(put(k, "moves away", engine.Any()), &done, nil))
	in("ready")
	in("done", "k")
	f.commit(put(k, "leaves", engine.Any()))
	in("done")
	f.commit(at(put(k, "returns", engine.Version(6)), &done, nil))
	in("done", "k")
	f.commit(del(k, engine.Version(7)))
	in("done")
	f.commit(at(put(k, "again", engine.Absent()), &done, nil), check(f.key("p", "j"), engine.Absent()))
	in("done", "k")
}

func indexOrder(f *fixture) {
	for _, index := range []engine.Index{engine.List, engine.Due} {
		p := "order of " + string(index)
		want := oddKeys()
		slices.Sort(want)
		for i, s := range want {
			place := f.key(p, s)
			// The order of the items in the table is the reverse of their order in the index.
			w := put(f.key(p, fmt.Sprintf("%03d", len(want)-i)), s, engine.Absent())
			if index == engine.List {
				w = at(w, &place, nil)
			} else {
				w = at(w, nil, &place)
			}
			f.commit(w)
		}
		bodies := func(q engine.Query, limit int, want []string) {
			f.Helper()
			f.eventually(func() error {
				items, err := all(f.Context(), f.e, q, limit)
				if err != nil {
					return err
				}
				var got []string
				for _, it := range items {
					got = append(got, string(it.Body))
				}
				if !slices.Equal(got, want) {
					return fmt.Errorf("%+v: got %q, want %q", q, got, want)
				}
				return nil
			})
		}
		back := slices.Clone(want)
		slices.Reverse(back)
		for _, limit := range []int{0, 1, 4, len(want)} {
			bodies(engine.Query{Index: index, Partition: f.part(p)}, limit, want)
			bodies(engine.Query{Index: index, Partition: f.part(p), Backward: true}, limit, back)
		}
		bodies(engine.Query{Index: index, Partition: f.part(p), Prefix: last}, 1, []string{last, last + "\x01", last + "\uffff", last + last})
		bodies(engine.Query{Index: index, Partition: f.part(p), Prefix: "A"}, 2, []string{"A", "A\x01", "A\x01" + last, "A" + last})
	}
}

func indexAcross(f *fixture) {
	for _, p := range []string{"x", "y", "z"} {
		place := f.key("all", p)
		f.commit(at(put(f.key(p, "from "+p), p, engine.Absent()), &place, nil))
	}
	f.wantSorts(engine.Query{Index: engine.List, Partition: f.part("all")}, 2, "from x", "from y", "from z")
}

func samePlace(f *fixture) {
	place := f.key("due", "2026-11-20")
	var want []string
	for i := range 9 {
		s := fmt.Sprint(i)
		f.commit(at(put(f.key("p"+fmt.Sprint(i%2), s), "", engine.Absent()), nil, &place))
		want = append(want, s)
	}
	for _, limit := range []int{0, 1, 2, 5} {
		for _, backward := range []bool{false, true} {
			f.eventually(func() error {
				items, err := all(f.Context(), f.e, engine.Query{Index: engine.Due, Partition: place.Partition, Backward: backward}, limit)
				got := sorts(items)
				if slices.Sort(got); err != nil || !slices.Equal(got, want) {
					return fmt.Errorf("%d a page: got %q, %v; want each of %q once", limit, got, err, want)
				}
				return nil
			})
		}
	}
}

func twoIndexes(f *fixture) {
	place := f.key("same name", "1")
	f.commit(at(put(f.key("same name", "in list"), "", engine.Absent()), &place, nil))
	f.commit(at(put(f.key("same name", "in due"), "", engine.Absent()), nil, &place))
	f.commit(put(f.key("same name", "in none"), "", engine.Absent()))
	f.wantSorts(engine.Query{Index: engine.List, Partition: place.Partition}, 0, "in list")
	f.wantSorts(engine.Query{Index: engine.Due, Partition: place.Partition}, 0, "in due")
	f.wantSorts(engine.Query{Partition: place.Partition}, 0, "in due", "in list", "in none")
}

func freshBodies(f *fixture) {
	k, place := f.key("p", "k"), f.key("l", "1")
	for v := range int64(30) {
		f.commit(at(put(k, fmt.Sprint(v), engine.Version(v)), &place, nil))
		for _, it := range f.all(engine.Query{Index: engine.List, Partition: place.Partition}, 0) {
			if string(it.Body) != fmt.Sprint(v) || it.Version != v+1 {
				f.Fatalf("the latest write is version %d, but the index returned version %d", v+1, it.Version)
			}
		}
	}
}
