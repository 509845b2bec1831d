package sqlite

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

const (
	// maxCached is the number of items in the cache. With maxCachedBody it limits the cache to 32 MiB; most items have less than 1 KiB.
	maxCached = 4096
	// maxCachedBody is the largest body of an item in the cache, in bytes.
	maxCachedBody = 8 << 10
)

// cache has the newest versions of the items that were read or written last, so that a read of one of them needs no statement. It knows
// each change, because no other process may write the file (see sqlitedb), and this one writes one transaction after the other.
//
// A transaction takes its items out of the cache before it begins (take), and puts them back when it is durable (settle). Meanwhile,
// and for a reader that began to read before that (began), add refuses these items: the reader may have read the version before.
//
// Safe for concurrent use.
type cache struct {
	seed maphash.Seed

	mu      sync.Mutex
	items   *simplelru.LRU[engine.Key, engine.Item]
	writing map[engine.Key]bool // the items of the transaction that runs
	settled uint64              // number of transactions that have ended
	// written is the number of the last transaction that wrote an item with this hash of its key. Two keys with one hash only make add
	// refuse more than it must.
	written [1024]uint64
}

func newCache() *cache {
	items, err := simplelru.NewLRU[engine.Key, engine.Item](maxCached, nil)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &cache{seed: maphash.MakeSeed(), items: items}
}

// clone returns a copy of an item that shares no memory with it: callers may change what they have read or written.
func clone(it engine.Item) engine.Item {
	it.Body = slices.Clone(it.Body)
	for _, p := range []**engine.Key{&it.List, &it.Due} {
		if *p != nil {
			k := **p
			*p = &k
		}
	}
	return it
}

func (c *cache) slot(k engine.Key) *uint64 {
	return &c.written[maphash.Comparable(c.seed, k)%uint64(len(c.written))]
}

// get returns the item at k, or the moment at which the caller begins to read it from the file.
func (c *cache) get(k engine.Key) (it engine.Item, found bool, began uint64) {
	c.mu.Lock()
	it, found = c.items.Get(k)
	began = c.settled
	c.mu.Unlock()
	return clone(it), found, began
}

// add puts an item into the cache that was read from the file, unless the item may have changed since the read began.
func (c *cache) add(it engine.Item, began uint64) {
	if len(it.Body) > maxCachedBody {
		return
	}
	it = clone(it)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.writing[it.Key] && *c.slot(it.Key) <= began {
		c.items.Add(it.Key, it)
	}
}

// take removes the items of a transaction from the cache before it begins, and returns those that were there.
func (c *cache) take(batch []*request) map[engine.Key]engine.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = map[engine.Key]bool{}
	known := map[engine.Key]engine.Item{}
	for _, r := range batch {
		for _, w := range r.writes {
			k := w.Item.Key
			c.writing[k] = true
			if it, ok := c.items.Peek(k); ok {
				known[k] = it
				c.items.Remove(k)
			}
		}
	}
	return known
}

// settle ends a transaction. now has its items as they are after it; none if it is not certain that it is durable.
func (c *cache) settle(now map[engine.Key]engine.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled++
	for k := range c.writing {
		*c.slot(k) = c.settled
	}
	c.writing = nil
	for k, it := range now {
		if len(it.Body) <= maxCachedBody {
			c.items.Add(k, it)
		}
	}
}

// clear empties the cache, after items were removed without take.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled++
	for i := range c.written {
		c.written[i] = c.settled
	}
	c.items.Purge()
}
