package enginetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

func modelTests() []test {
	return []test{{"random calls give the same results as a map", againstModel}}
}

// model is the simplest implementation of the contract: a map whose keys are sorted for each
// query.
type model map[engine.Key]engine.Item

func (m model) commit(token string, writes []engine.Write) error {
	for _, w := range writes {
		if it, ok := m[w.Item.Key]; !w.Holds(it.Version) {
			c := &engine.ConflictError{Key: w.Item.Key, If: w.If}
			if ok {
				c.Current = &it
			}
			return c
		}
	}
	for _, w := range writes {
		switch w.Op {
		case engine.Put:
			it := w.Item
			it.Version, it.Token = m[it.Key].Version+1, token
			m[it.Key] = it
		case engine.Delete:
			delete(m, w.Item.Key)
		case engine.Check:
		}
	}
	return nil
}

func (m model) query(q engine.Query) []engine.Item {
	var items []engine.Item
	for _, it := range m {
		if p := it.Place(q.Index); p != nil && p.Partition == q.Partition && strings.HasPrefix(p.Sort, q.Prefix) {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b engine.Item) int {
		c := strings.Compare(a.Place(q.Index).Sort, b.Place(q.Index).Sort)
		if q.Backward {
			c = -c
		}
		return c
	})
	return items
}

func againstModel(f *fixture) {
	rapid.Check(f.T, func(t *rapid.T) {
		base := rand.Text() // each run has its own partitions
		m := model{}
		partitions := rapid.SampledFrom([]string{base + "/a", base + "/a\x01", base + "/b"})
		sorts := rapid.SampledFrom([]string{"1", "10", "2", "\x01", "\uffff", "𝄞", last, last + last, "é"})
		key := rapid.Custom(func(t *rapid.T) engine.Key {
			return engine.Key{Partition: partitions.Draw(t, "partition"), Sort: sorts.Draw(t, "sort")}
		})
		body := rapid.SliceOfN(rapid.Byte(), 0, 8)
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				keys := rapid.SliceOfNDistinct(key, 1, 4, func(k engine.Key) engine.Key { return k }).Draw(t, "keys")
				var writes []engine.Write
				for _, k := range keys {
					v := m[k].Version
					w := engine.Write{
						Op: rapid.SampledFrom([]engine.Op{engine.Put, engine.Put, engine.Delete, engine.Check}).Draw(t, "op"),
						// Most of the drawn conditions hold. Otherwise most commits would write
						// nothing.
						If: rapid.SampledFrom([]engine.Precondition{
							engine.Version(v), engine.Version(v), engine.Version(v), engine.Any(), engine.Absent(), engine.Version(v + 1),
						}).Draw(t, "if"),
						Item: engine.Item{Key: k},
					}
					if w.Op == engine.Put {
						w.Item.Body = body.Draw(t, "body")
						w.Item.List = drawPlace(t, key, k)
						w.Item.Due = drawPlace(t, key, k)
					}
					writes = append(writes, w)
				}
				tok := token()
				want := m.commit(tok, writes)
				got := f.e.Commit(f.Context(), tok, writes...)
				if d := differentOutcome(want, got); d != "" {
					t.Fatalf("commit %+v: %s", writes, d)
				}
				if rapid.Bool().Draw(t, "repeat") && want == nil && onlyVersionedPuts(writes) {
					if err := f.e.Commit(f.Context(), tok, writes...); err != nil {
						t.Fatalf("repeat of %+v: %v", writes, err)
					}
				}
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				want, ok := m[k]
				got, err := f.e.Get(f.Context(), k)
				switch {
				case !ok && !errors.Is(err, engine.ErrNotFound):
					t.Fatalf("get %q: got %v, want ErrNotFound", k, err)
				case ok && err != nil:
					t.Fatalf("get %q: %v", k, err)
				case ok:
					if d := differ(want, got); d != "" {
						t.Fatalf("get %q: %s", k, d)
					}
				}
			},
			"query": func(t *rapid.T) {
				q := engine.Query{
					Index:     rapid.SampledFrom([]engine.Index{engine.Table, engine.Table, engine.List, engine.Due}).Draw(t, "index"),
					Partition: partitions.Draw(t, "partition"),
					Prefix:    rapid.SampledFrom([]string{"", "1", last, "\x01", "é", "no"}).Draw(t, "prefix"),
					Backward:  rapid.Bool().Draw(t, "backward"),
				}
				limit := rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "limit")
				want := m.query(q)
				ask := func() error {
					got, err := all(f.Context(), f.e, q, limit)
					if err != nil {
						return err
					}
					return sameItems(q, want, got)
				}
				if q.Index == engine.Table {
					if err := ask(); err != nil {
						t.Fatal(err)
					}
				} else if err := poll(f.Context(), f.settle, ask); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// drawPlace draws an index key, or nil. The sort key includes the item's own key. So index
// keys are unique, and the test knows their order.
func drawPlace(t *rapid.T, key *rapid.Generator[engine.Key], own engine.Key) *engine.Key {
	if rapid.IntRange(0, 2).Draw(t, "out") == 0 {
		return nil
	}
	k := key.Draw(t, "place")
	k.Sort += "\x01" + own.Partition + "\x01" + own.Sort
	return &k
}

func onlyVersionedPuts(writes []engine.Write) bool {
	puts := 0
	for _, w := range writes {
		if w.Op == engine.Put {
			if w.If.IsAny() {
				return false
			}
			puts++
		}
	}
	return puts > 0
}

func differentOutcome(want, got error) string {
	w, _ := errors.AsType[*engine.ConflictError](want)
	g, conflict := errors.AsType[*engine.ConflictError](got)
	switch {
	case want == nil && got == nil:
		return ""
	case want == nil || !conflict:
		return fmt.Sprintf("got %v, want %v", got, want)
	case w.Key != g.Key || w.If != g.If || (w.Current == nil) != (g.Current == nil):
		return fmt.Sprintf("got %v, want %v", g, w)
	case w.Current != nil:
		return differ(*w.Current, *g.Current)
	}
	return ""
}

func sameItems(q engine.Query, want, got []engine.Item) error {
	if len(want) != len(got) {
		return fmt.Errorf("%+v: got %d items %q, want %d %q", q, len(got), sorts(got), len(want), sorts(want))
	}
	for i := range want {
		if d := differ(want[i], got[i]); d != "" {
			return fmt.Errorf("%+v: item %d: %s", q, i, d)
		}
	}
	return nil
}
