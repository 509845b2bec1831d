package enginetest

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Units is the amount that DynamoDB bills for a set of calls, in request units (on demand).
// Provisioned capacity units are counted in the same way.
type Units struct {
	Calls      int
	Read       float64
	TableWrite float64
	IndexWrite float64
}

// Write returns the write units of the table and of its indexes.
func (u Units) Write() float64 { return u.TableWrite + u.IndexWrite }

// Plus returns the sum.
func (u Units) Plus(v Units) Units {
	return Units{u.Calls + v.Calls, u.Read + v.Read, u.TableWrite + v.TableWrite, u.IndexWrite + v.IndexWrite}
}

// The operations that MeterEngine counts separately.
const (
	OpGet        = "get"
	OpQueryTable = "query of the table"
	OpQueryList  = "query of the list index"
	OpQueryDue   = "query of the due index"
	OpCommitOne  = "commit of one write"
	OpCommitMany = "commit of several writes"
	OpConflict   = "commit that met a conflict"
)

// MeterEngine counts the cost of its calls, as if the engine of package dynamo served them.
// It runs one commit at a time, because the price of a write depends on the item that the
// write replaces. Safe for concurrent use.
//
// The code cites the rules of AWS's documentation where it applies them:
//
//	[size]  amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
//	[units] amazondynamodb/latest/developerguide/read-write-operations.html
//	[gsi]   amazondynamodb/latest/developerguide/GSI.html#GSI.ThroughputConsiderations
//	[tx]    amazondynamodb/latest/developerguide/transaction-apis.html
//
// The documentation does not specify some details of transactions. For these details, the
// meter uses measurements that other projects made on the service:
// github.com/paritysuite/dynamodb-conformance pull requests 67 and 74 [m1], and
// github.com/nubo-db/dynoxide pull request 188 [m2].
//
// Not counted: retries after a throttle or a lost response, the second request of a query
// whose response exceeds 1 MB, and an empty last page.
type MeterEngine struct {
	inner engine.Engine

	commits sync.Mutex // locked during a commit and during the reads that determine its price

	mu    sync.Mutex
	usage map[string]Units
}

var _ engine.Engine = (*MeterEngine)(nil)

// Meter wraps an engine.
func Meter(inner engine.Engine) *MeterEngine {
	return &MeterEngine{inner: inner, usage: make(map[string]Units)}
}

// Usage returns the units since the last Reset, by operation.
func (m *MeterEngine) Usage() map[string]Units {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.usage)
}

// Total returns the sum of Usage.
func (m *MeterEngine) Total() Units {
	var sum Units
	for _, u := range m.Usage() {
		sum = sum.Plus(u)
	}
	return sum
}

// Reset sets all counts to zero.
func (m *MeterEngine) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.usage)
}

func (m *MeterEngine) count(op string, u Units) {
	u.Calls = 1
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage[op] = m.usage[op].Plus(u)
}

// Get implements engine.Engine.
func (m *MeterEngine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	it, err := m.inner.Get(ctx, k)
	switch {
	case err == nil:
		m.count(OpGet, Units{Read: readUnits(itemSize(&it))})
	case errors.Is(err, engine.ErrNotFound):
		m.count(OpGet, Units{Read: readUnits(0)})
	}
	return it, err
}

// Query implements engine.Engine.
func (m *MeterEngine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	page, err := m.inner.Query(ctx, q)
	if err != nil {
		return page, err
	}
	op := OpQueryTable
	switch q.Index {
	case engine.List:
		op = OpQueryList
	case engine.Due:
		op = OpQueryDue
	}
	if q.Index == engine.Table {
		// [units] DynamoDB adds up the sizes of a query's items and rounds the sum.
		sum := 0
		for i := range page.Items {
			sum += itemSize(&page.Items[i])
		}
		m.count(op, Units{Read: readUnits(sum)})
		return page, nil
	}
	// [gsi] A query of an index reads only the index. The read is eventually consistent and
	// costs half as much. [units] After the query, package dynamo reads the items in
	// batches. In a batch DynamoDB rounds the size of each item separately.
	sum, items := 0, 0.0
	for i := range page.Items {
		it := &page.Items[i]
		if k := it.Place(q.Index); k != nil {
			sum += entrySize(it.Key, *k)
		}
		items += readUnits(itemSize(it))
	}
	m.count(op, Units{Read: readUnits(sum)/2 + items})
	return page, nil
}

// Commit implements engine.Engine. It does not count a commit that fails for a reason other
// than a conflict, because the outcome is unknown.
func (m *MeterEngine) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	m.commits.Lock()
	defer m.commits.Unlock()
	before := make(map[engine.Key]*engine.Item, len(writes))
	after := make(map[engine.Key]*engine.Item, len(writes))
	if err := m.read(ctx, writes, before); err != nil {
		return err
	}
	err := m.inner.Commit(ctx, token, writes...)
	_, conflict := errors.AsType[*engine.ConflictError](err)
	if err != nil && !conflict {
		return err
	}
	if err := m.read(ctx, writes, after); err != nil {
		return err
	}
	again, _ := engine.Repeated(token, writes, func(k engine.Key) (string, error) {
		if it := before[k]; it != nil {
			return it.Token, nil
		}
		return "", nil
	})
	op, units := price(writes, before, after, again && err == nil)
	if conflict {
		op = OpConflict
	}
	m.count(op, units)
	return err
}

func (m *MeterEngine) read(ctx context.Context, writes []engine.Write, into map[engine.Key]*engine.Item) error {
	for _, w := range writes {
		it, err := m.inner.Get(ctx, w.Item.Key)
		switch {
		case err == nil:
			into[w.Item.Key] = &it
		case !errors.Is(err, engine.ErrNotFound) && engine.CheckKey(w.Item.Key) == nil:
			return err
		}
	}
	return nil
}

// price returns the operation and the cost of a commit. The parameters before and after are
// the items before and after the commit. After a conflict or a repeat, before and after are
// equal. A cancelled transaction reports no units; price counts it as if it had succeeded.
func price(writes []engine.Write, before, after map[engine.Key]*engine.Item, repeat bool) (string, Units) {
	var needed []engine.Write
	for _, w := range writes {
		if w.Op != engine.Check || !w.If.IsAny() { // package dynamo does not send a check with Any
			needed = append(needed, w)
		}
	}
	if len(needed) == 0 {
		return OpCommitOne, Units{}
	}
	if len(needed) == 1 && needed[0].Op == engine.Check {
		return OpCommitOne, Units{Read: readUnits(itemSize(before[needed[0].Item.Key]))}
	}
	op, factor := OpCommitOne, 1.0
	if len(needed) > 1 {
		op = OpCommitMany
	}
	if len(needed) > 1 || (needed[0].Op == engine.Delete && !needed[0].If.IsAny()) { // package dynamo sends this as a transaction
		// [tx] A transaction writes each item twice, once to prepare and once to commit.
		// [m1] A condition check costs as much as a write.
		factor = 2
	}
	var u Units
	for _, w := range needed {
		old, stored := before[w.Item.Key], after[w.Item.Key]
		if repeat && factor == 2 {
			// [m1] DynamoDB still recognises the token, so it only reads the items.
			u.Read += 2 * readUnits(itemSize(old))
			continue
		}
		// [units] The price of a write depends on the sizes of the item before and after
		// the write: the larger size counts. After a delete or a failed condition, this is
		// the size of the stored item.
		size := itemSize(stored)
		if len(w.Item.Note) > 0 {
			size += nameNote + len(w.Item.Note) // the stored item that was read back does not show it
		}
		u.TableWrite += factor * writeUnits(max(itemSize(old), size))
		for _, index := range []engine.Index{engine.List, engine.Due} {
			u.IndexWrite += indexUnits(old, stored, index)
		}
	}
	return op, u
}

// indexUnits returns the write units of an index that projects KEYS_ONLY. [gsi] A new or
// removed entry costs one write. A changed index key costs two writes: one to remove the old
// entry and one to add the new entry. If no projected attribute changes, the index costs
// nothing. [m2] A transaction does not double the cost of an index.
func indexUnits(before, after *engine.Item, index engine.Index) float64 {
	entry := func(it *engine.Item) *engine.Key {
		if it == nil {
			return nil
		}
		return it.Place(index)
	}
	old, stored := entry(before), entry(after)
	if old != nil && stored != nil && *old == *stored {
		return 0
	}
	var units float64
	if old != nil {
		units += writeUnits(entrySize(before.Key, *old))
	}
	if stored != nil {
		units += writeUnits(entrySize(after.Key, *stored))
	}
	return units
}

// readUnits returns the units of a strongly consistent read: one for each 4 KB of size,
// rounded up, at least 1. [units]
func readUnits(size int) float64 { return float64(max(1, (size+4095)/4096)) }

// writeUnits returns the units of a write outside a transaction: one for each KB of size,
// rounded up, at least 1. [units]
func writeUnits(size int) float64 { return float64(max(1, (size+1023)/1024)) }

// The sizes of the attribute names in the schema of package dynamo.
const (
	nameKeys    = len("pk") + len("sk")
	namePlace   = len("lpk") + len("lsk") // the names dpk and dsk have the same length
	nameVersion = len("v")
	nameToken   = len("t")
	nameBody    = len("b")
	nameExpires = len("x")
	nameNote    = len("n")
)

// itemSize returns the size of a stored item: the bytes of all attribute names and values.
// [size] The size of a missing item is 0.
func itemSize(it *engine.Item) int {
	if it == nil {
		return 0
	}
	size := nameKeys + len(it.Key.Partition) + len(it.Key.Sort) +
		nameVersion + numberSize(it.Version) +
		nameToken + len(it.Token) +
		nameBody + len(it.Body)
	for _, k := range []*engine.Key{it.List, it.Due} {
		if k != nil {
			size += namePlace + len(k.Partition) + len(k.Sort)
		}
	}
	if s := engine.ExpirySeconds(it.Expires); s != 0 {
		size += nameExpires + numberSize(s)
	}
	return size
}

// entrySize returns the size of an index entry in bytes. An entry has the keys of the index
// and of the table.
func entrySize(key, place engine.Key) int {
	return nameKeys + len(key.Partition) + len(key.Sort) + namePlace + len(place.Partition) + len(place.Sort)
}

// numberSize returns the size of a positive number in bytes: one byte, plus one byte for
// each two significant digits. [size]
func numberSize(n int64) int {
	for n != 0 && n%10 == 0 {
		n /= 10
	}
	digits := 1
	for ; n >= 10; n /= 10 {
		digits++
	}
	return 1 + (digits+1)/2
}
