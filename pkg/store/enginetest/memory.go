package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

// MemoryEngine stores its items in memory, for unit tests and simulations. It passes the
// conformance suite, but does not keep its items after the process ends. It never drops an
// expired item. Safe for concurrent use.
type MemoryEngine struct {
	mu     sync.RWMutex
	items  map[engine.Key]engine.Item
	orders map[place][]entry
}

// place identifies one partition of one index.
type place struct {
	index     engine.Index
	partition string
}

// entry is an item's place in the order of a partition. In an index, several items can have
// the same sort key. So entries are ordered by the sort key, then by the item's own key.
type entry struct {
	sort string
	key  engine.Key
}

func compareEntries(a, b entry) int {
	return cmp.Or(
		strings.Compare(a.sort, b.sort),
		strings.Compare(a.key.Partition, b.key.Partition),
		strings.Compare(a.key.Sort, b.key.Sort),
	)
}

// Memory returns an empty engine.
func Memory() *MemoryEngine {
	return &MemoryEngine{items: make(map[engine.Key]engine.Item), orders: make(map[place][]entry)}
}

// Items returns all items, in no order, for tests that search everything that is stored.
func (m *MemoryEngine) Items() (all []engine.Item) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, it := range m.items {
		all = append(all, clone(it))
	}
	return all
}

// Get implements engine.Engine.
func (m *MemoryEngine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	if err := ctx.Err(); err != nil {
		return engine.Item{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	it, ok := m.items[k]
	if !ok {
		return engine.Item{}, engine.ErrNotFound
	}
	return clone(it), nil
}

// Query implements engine.Engine.
func (m *MemoryEngine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	limit, err := engine.CheckQuery(q)
	if err != nil {
		return engine.Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return engine.Page{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	keys, next, err := pageOf(m.orders[place{q.Index, q.Partition}], q, limit)
	if err != nil {
		return engine.Page{}, err
	}
	page := engine.Page{Next: next}
	for _, k := range keys {
		page.Items = append(page.Items, clone(m.items[k]))
	}
	return page, nil
}

// Commit implements engine.Engine.
func (m *MemoryEngine) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	if err := engine.CheckCommit(token, writes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range writes {
		if w.Holds(m.items[w.Item.Key].Version) {
			continue
		}
		again, err := engine.Repeated(token, writes, func(k engine.Key) (string, error) {
			return m.items[k].Token, nil
		})
		if again || err != nil {
			return err
		}
		conflict := &engine.ConflictError{Key: w.Item.Key, If: w.If}
		if it, ok := m.items[w.Item.Key]; ok {
			it = clone(it)
			conflict.Current = &it
		}
		return conflict
	}
	for _, w := range writes {
		old, had := m.items[w.Item.Key]
		if w.Op == engine.Check {
			continue
		}
		if had {
			m.unlink(&old)
			delete(m.items, w.Item.Key)
		}
		if w.Op == engine.Put {
			it := clone(w.Item)
			it.Version = old.Version + 1
			it.Token = token
			it.Note = nil
			it.Expires = engine.ExpiryTime(engine.ExpirySeconds(it.Expires))
			m.items[it.Key] = it
			m.link(&it)
		}
	}
	return nil
}

func (m *MemoryEngine) link(it *engine.Item) {
	for _, index := range []engine.Index{engine.Table, engine.List, engine.Due} {
		if k := it.Place(index); k != nil {
			p := place{index, k.Partition}
			m.orders[p] = insert(m.orders[p], entry{k.Sort, it.Key})
		}
	}
}

func (m *MemoryEngine) unlink(it *engine.Item) {
	for _, index := range []engine.Index{engine.Table, engine.List, engine.Due} {
		if k := it.Place(index); k != nil {
			p := place{index, k.Partition}
			if m.orders[p] = remove(m.orders[p], entry{k.Sort, it.Key}); len(m.orders[p]) == 0 {
				delete(m.orders, p)
			}
		}
	}
}

func insert(order []entry, e entry) []entry {
	if i, found := slices.BinarySearchFunc(order, e, compareEntries); !found {
		return slices.Insert(order, i, e)
	}
	return order
}

func remove(order []entry, e entry) []entry {
	if i, found := slices.BinarySearchFunc(order, e, compareEntries); found {
		return slices.Delete(order, i, i+1)
	}
	return order
}

// pageOf returns the keys of one page of an ordered partition, and the cursor of the next
// page.
func pageOf(order []entry, q engine.Query, limit int) (keys []engine.Key, next string, err error) {
	// Keep only the entries that have the prefix and are after the cursor.
	start, _ := slices.BinarySearchFunc(order, entry{sort: q.Prefix}, compareEntries)
	order = order[start:]
	order = order[:sort.Search(len(order), func(i int) bool { return !strings.HasPrefix(order[i].sort, q.Prefix) })]
	if q.After != "" {
		after, err := readCursor(q.After)
		if err != nil {
			return nil, "", err
		}
		i, found := slices.BinarySearchFunc(order, after, compareEntries)
		switch {
		case q.Backward:
			order = order[:i]
		case found:
			order = order[i+1:]
		default:
			order = order[i:]
		}
	}
	for n := range min(limit, len(order)) {
		e := order[n]
		if q.Backward {
			e = order[len(order)-1-n]
		}
		keys = append(keys, e.key)
		next = writeCursor(e)
	}
	if len(keys) == len(order) {
		next = ""
	}
	return keys, next, nil
}

// writeCursor returns the cursor that continues after the entry, the last of a page.
func writeCursor(e entry) string {
	return engine.WriteCursor(e.sort, e.key.Partition, e.key.Sort)
}

func readCursor(s string) (entry, error) {
	p, err := engine.ReadCursor(s, 3)
	if err != nil {
		return entry{}, err
	}
	return entry{p[0], engine.Key{Partition: p[1], Sort: p[2]}}, nil
}

// clone copies all memory of the item, so that the caller and the engine share none.
func clone(it engine.Item) engine.Item {
	it.Body = bytes.Clone(it.Body)
	if it.List != nil {
		it.List = new(*it.List)
	}
	if it.Due != nil {
		it.Due = new(*it.Due)
	}
	return it
}
