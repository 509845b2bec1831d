package enginetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

func commitTests() []test {
	return []test{
		{"an item can be written, changed and deleted", itemLife},
		{"every precondition is compared with the version", preconditions},
		{"a conflict in one write prevents all writes", atomicity},
		{"a conflict names the first write that failed", firstConflict},
		{"checks are compared and write nothing", checks},
		{"one commit can put, delete and check", mixed},
		{"the engine copies the caller's bytes", aliasing},
		{"an expiry is stored in seconds, rounded up", expiry},
		{"a call stops when its context ends", ended},
	}
}

func itemLife(f *fixture) {
	k := f.key("p", "item")
	f.wantNone(k)
	w := put(k, "one", engine.Absent())
	w.Item.Version, w.Item.Token = 99, "the engine sets these"
	tok := f.commit(w)
	f.want(engine.Item{Key: k, Version: 1, Token: tok, Body: []byte("one")})

	tok = f.commit(put(k, "two", engine.Version(1)))
	f.want(engine.Item{Key: k, Version: 2, Token: tok, Body: []byte("two")})

	tok = f.commit(put(k, "", engine.Any()))
	f.want(engine.Item{Key: k, Version: 3, Token: tok})

	f.commit(del(k, engine.Version(3)))
	f.wantNone(k)

	tok = f.commit(put(k, "again", engine.Any()))
	f.want(engine.Item{Key: k, Version: 1, Token: tok, Body: []byte("again")})

	f.commit(del(k, engine.Any()))
	f.commit(del(k, engine.Any())) // there is no item; Any also holds for a missing item
	f.wantNone(k)
}

func preconditions(f *fixture) {
	for _, stored := range []int64{0, 1, 2} {
		for _, cond := range []engine.Precondition{
			engine.Absent(), engine.Any(), engine.Version(1), engine.Version(2), engine.Version(3),
		} {
			for op, make := range map[string]func(engine.Key) engine.Write{
				"put":    func(k engine.Key) engine.Write { return put(k, "new", cond) },
				"delete": func(k engine.Key) engine.Write { return del(k, cond) },
				"check":  func(k engine.Key) engine.Write { return check(k, cond) },
			} {
				for _, others := range []int{0, 1} { // alone, and with another write
					name := fmt.Sprintf("%s if %s, stored %d, %d other writes", op, cond, stored, others)
					k := f.key("p", name)
					var before *engine.Item
					for v := range stored {
						f.commit(put(k, "old", engine.Version(v))) // Version(0) is Absent
						before = new(f.get(k))
					}
					writes := []engine.Write{make(k)}
					other := f.key("p", name+", other")
					for range others {
						writes = append(writes, put(other, "other", engine.Absent()))
					}
					tok := token()
					err := f.e.Commit(f.Context(), tok, writes...)

					if !writes[0].Holds(stored) {
						f.wantConflict(err, k, cond, before)
						if before != nil {
							f.want(*before)
						} else {
							f.wantNone(k)
						}
						f.wantNone(other)
						continue
					}
					if err != nil {
						f.Errorf("%s: %v", name, err)
						continue
					}
					switch {
					case op == "put":
						f.want(engine.Item{Key: k, Version: stored + 1, Token: tok, Body: []byte("new")})
					case op == "check" && before != nil:
						f.want(*before)
					default:
						f.wantNone(k)
					}
					if others > 0 {
						f.want(engine.Item{Key: other, Version: 1, Token: tok, Body: []byte("other")})
					}
				}
			}
		}
	}
}

func atomicity(f *fixture) {
	const n = 10
	key := func(i int) engine.Key { return f.key(fmt.Sprint("p", i%3), fmt.Sprint(i)) }
	for bad := range n {
		if bad > 0 {
			f.commit(put(key(bad), "before", engine.Any()))
		}
		var writes []engine.Write
		for i := range n {
			cond := engine.Absent()
			if i != bad && i > 0 && i <= bad {
				cond = engine.Any()
			}
			if i == bad {
				cond = engine.Version(77)
			}
			writes = append(writes, put(key(i), "refused", cond))
		}
		if _, ok := errors.AsType[*engine.ConflictError](f.e.Commit(f.Context(), token(), writes...)); !ok {
			f.Fatalf("the commit succeeded although write %d of %d does not hold", bad, n)
		}
		for i := range n {
			if it, err := f.e.Get(f.Context(), key(i)); err == nil && string(it.Body) == "refused" {
				f.Fatalf("write %d does not hold, but write %d was stored", bad, i)
			}
		}
	}
}

func firstConflict(f *fixture) {
	a, b, c := f.key("p", "a"), f.key("p", "b"), f.key("p", "c")
	f.commit(put(b, "b", engine.Absent()))
	stored := f.get(b)
	err := f.e.Commit(f.Context(), token(),
		put(c, "x", engine.Absent()), put(b, "x", engine.Version(5)), put(a, "x", engine.Version(1)))
	f.wantConflict(err, b, engine.Version(5), &stored)
	err = f.e.Commit(f.Context(), token(),
		put(c, "x", engine.Absent()), put(a, "x", engine.Version(1)), put(b, "x", engine.Version(5)))
	f.wantConflict(err, a, engine.Version(1), nil)
	if c, ok := errors.AsType[*engine.ConflictError](err); ok && c.Error() == "" {
		f.Error("the error of a conflict is empty")
	}
}

func checks(f *fixture) {
	k, absent := f.key("p", "k"), f.key("p", "absent")
	tok := f.commit(put(k, "body", engine.Absent()))
	f.commit(check(k, engine.Version(1)))
	f.commit(check(k, engine.Any()), check(absent, engine.Any()))
	f.commit(check(absent, engine.Absent()), check(k, engine.Version(1)))
	f.want(engine.Item{Key: k, Version: 1, Token: tok, Body: []byte("body")})
	f.wantNone(absent)
	f.wantConflict(f.e.Commit(f.Context(), token(), check(absent, engine.Version(1))), absent, engine.Version(1), nil)
}

func mixed(f *fixture) {
	a, b, c, d := f.key("p", "a"), f.key("p", "b"), f.key("q", "c"), f.key("q", "d")
	f.commit(put(a, "a", engine.Absent()), put(b, "b", engine.Absent()), put(c, "c", engine.Absent()))
	tok := f.commit(
		put(a, "a2", engine.Version(1)), del(b, engine.Version(1)),
		check(c, engine.Version(1)), put(d, "d", engine.Absent()), del(f.key("q", "none"), engine.Any()))
	f.want(engine.Item{Key: a, Version: 2, Token: tok, Body: []byte("a2")})
	f.wantNone(b)
	f.want(engine.Item{Key: d, Version: 1, Token: tok, Body: []byte("d")})
	if it := f.get(c); it.Version != 1 || it.Token == tok {
		f.Errorf("the check changed the item: %+v", it)
	}
}

func aliasing(f *fixture) {
	k := f.key("p", "k")
	body := []byte("mine")
	list := &engine.Key{Partition: f.part("l"), Sort: "1"}
	tok := f.commit(engine.Write{Item: engine.Item{Key: k, Body: body, List: list}})
	body[0], list.Sort = 'X', "X"
	want := engine.Item{
		Key: k, Version: 1, Token: tok, Body: []byte("mine"),
		List: &engine.Key{Partition: f.part("l"), Sort: "1"},
	}
	got := f.get(k)
	got.Body[0], got.List.Sort = 'Y', "Y"
	f.want(want)
	got = f.all(engine.Query{Partition: k.Partition}, 0)[0]
	got.Body[0] = 'Z'
	f.want(want)
	if c, ok := errors.AsType[*engine.ConflictError](f.e.Commit(f.Context(), token(), put(k, "", engine.Absent()))); ok {
		c.Current.Body[0] = 'Z'
	}
	f.want(want)
}

func expiry(f *fixture) {
	k := f.key("p", "k")
	// The time is far in the future, so that no engine drops the item during the test.
	at := time.Date(2200, 2, 3, 4, 5, 6, 1, time.FixedZone("east", 3600))
	f.commit(engine.Write{Item: engine.Item{Key: k, Expires: at}})
	if got, want := f.get(k).Expires, time.Date(2200, 2, 3, 3, 5, 7, 0, time.UTC); !got.Equal(want) {
		f.Errorf("stored %s, got back %s, want %s", at, got, want)
	}
	f.commit(put(k, "", engine.Version(1)))
	if got := f.get(k).Expires; !got.IsZero() {
		f.Errorf("an item without an expiry has the expiry %s", got)
	}
}

func ended(f *fixture) {
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	k := f.key("p", "k")
	if err := f.e.Commit(ctx, token(), put(k, "", engine.Absent())); !errors.Is(err, context.Canceled) {
		f.Errorf("commit: got %v, want the context's error", err)
	}
	if err := f.e.Commit(ctx, token(), put(k, "", engine.Absent()), check(f.key("p", "j"), engine.Absent())); !errors.Is(err, context.Canceled) {
		f.Errorf("commit of two: got %v, want the context's error", err)
	}
	if _, err := f.e.Get(ctx, k); !errors.Is(err, context.Canceled) {
		f.Errorf("get: got %v, want the context's error", err)
	}
	if _, err := f.e.Query(ctx, engine.Query{Partition: k.Partition}); !errors.Is(err, context.Canceled) {
		f.Errorf("query: got %v, want the context's error", err)
	}
	f.wantNone(k) // a call must write nothing if its context ended before
}

func tokenTests() []test {
	return []test{
		{"a repeated commit of one write is recognised", repeatOne},
		{"a repeated commit of several writes is recognised", repeatSeveral},
		{"a repeat after another commit is a conflict", repeatTooLate},
		{"a conflict is not mistaken for a repeat", notRepeated},
	}
}

func repeatOne(f *fixture) {
	k := f.key("p", "k")
	tok := token()
	for range 3 {
		if err := f.e.Commit(f.Context(), tok, put(k, "one", engine.Absent())); err != nil {
			f.Fatal(err)
		}
		f.want(engine.Item{Key: k, Version: 1, Token: tok, Body: []byte("one")})
	}
	tok = token()
	for range 3 {
		if err := f.e.Commit(f.Context(), tok, put(k, "two", engine.Version(1))); err != nil {
			f.Fatal(err)
		}
		f.want(engine.Item{Key: k, Version: 2, Token: tok, Body: []byte("two")})
	}
	tok = token()
	for range 3 { // Any may write again, but must not fail
		if err := f.e.Commit(f.Context(), tok, put(k, "three", engine.Any())); err != nil {
			f.Fatal(err)
		}
	}
	if it := f.get(k); string(it.Body) != "three" || it.Version < 3 {
		f.Errorf("got %+v", it)
	}
}

func repeatSeveral(f *fixture) {
	a, b, c, gone := f.key("p", "a"), f.key("p", "b"), f.key("q", "c"), f.key("q", "gone")
	f.commit(put(gone, "", engine.Absent()), put(b, "", engine.Absent()), put(c, "", engine.Absent()))
	tok := token()
	for range 3 {
		err := f.e.Commit(f.Context(), tok,
			put(a, "a", engine.Absent()), del(gone, engine.Version(1)),
			put(b, "b", engine.Version(1)), check(c, engine.Version(1)))
		if err != nil {
			f.Fatal(err)
		}
		f.want(engine.Item{Key: a, Version: 1, Token: tok, Body: []byte("a")})
		f.want(engine.Item{Key: b, Version: 2, Token: tok, Body: []byte("b")})
		f.wantNone(gone)
	}
}

func repeatTooLate(f *fixture) {
	a, b := f.key("p", "a"), f.key("p", "b")
	one := put(a, "a", engine.Absent())
	tok := f.commit(one)
	f.commit(put(a, "later", engine.Version(1)))
	later := f.get(a)
	f.wantConflict(f.e.Commit(f.Context(), tok, one), a, engine.Absent(), &later)
	f.want(later)

	f.commit(put(b, "b", engine.Absent()))
	mine := f.get(b)
	// Another commit wrote a, and the commit with this token wrote b. The engine recognises a
	// repeat only if all items of its puts have its token.
	err := f.e.Commit(f.Context(), mine.Token, put(b, "b", engine.Absent()), put(a, "a", engine.Version(1)))
	f.wantConflict(err, b, engine.Absent(), &mine)
	f.want(mine)
}

func notRepeated(f *fixture) {
	k, other := f.key("p", "k"), f.key("p", "other")
	tok := f.commit(put(k, "", engine.Absent()))
	stored := f.get(k)
	// The commit has no put. So no stored token shows whether the commit is a repeat.
	f.wantConflict(f.e.Commit(f.Context(), tok, del(k, engine.Version(9))), k, engine.Version(9), &stored)
	f.wantConflict(f.e.Commit(f.Context(), tok, check(k, engine.Absent())), k, engine.Absent(), &stored)
	// Only one of the two puts has the token.
	err := f.e.Commit(f.Context(), tok, put(other, "", engine.Absent()), put(k, "", engine.Absent()))
	f.wantConflict(err, k, engine.Absent(), &stored)
	f.wantNone(other)
	f.want(stored)
}
