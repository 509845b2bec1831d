package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Fault is one way in which a database fails. The contract of package engine allows every
// fault, so a caller that follows the contract works correctly despite them.
type Fault int

// The faults.
const (
	// NoFault: the call succeeds.
	NoFault Fault = iota
	// NotStored: the call returns an error and changes nothing. Applies to any call.
	NotStored
	// Stored: the commit happens, but the caller gets an error. Applies to commits.
	Stored
	// Conflict: nothing happens, and the caller gets a conflict at its first write although
	// the precondition holds. The conflict shows the stored item. It stands for a conflict
	// with another writer that undid its change afterwards. A repeat of a successful commit
	// gets no such conflict, because an engine recognises the repeat. Applies to commits.
	Conflict
	// Stale: the query reads an index that misses the last commits, at most 8. Newer entries
	// are missing, and removed or moved entries are still at their old place. The items
	// themselves are current. Applies to the first page of a query of an index.
	Stale
)

func (f Fault) String() string {
	return [...]string{"no fault", "failed and not stored", "failed and stored", "conflict once", "stale index"}[f]
}

// staleBy is the number of commits by which a stale index lags.
const staleBy = 8

// ErrInjected is in the chain of every error that FaultyEngine injects, except conflicts.
// The rest of the error is as an engine returns it: a *fairlead.Error of KindUnavailable.
var ErrInjected = errors.New("injected fault")

// CallKind is the method of a call.
type CallKind string

// The kinds of calls.
const (
	CallGet    CallKind = "get"
	CallQuery  CallKind = "query"
	CallCommit CallKind = "commit"
)

// Call describes a call to a Plan.
type Call struct {
	Kind   CallKind
	N      int            // this is the N-th call of its kind, from 1
	Key    engine.Key     // of a get
	Query  engine.Query   // of a query
	Token  string         // of a commit
	Writes []engine.Write // of a commit
}

// can reports whether the fault applies to the call.
func (f Fault) can(c Call) bool {
	switch f {
	case NotStored:
		return true
	case Stored, Conflict:
		return c.Kind == CallCommit
	case Stale:
		// A later page continues from the first page: from the stale index if the first
		// page had the fault, otherwise from the current index.
		return c.Kind == CallQuery && c.Query.Index != engine.Table && c.Query.After == ""
	default:
		return false
	}
}

// Plan chooses the fault of each call. The engine calls the plan once for each call, in the
// order of the calls, never concurrently. A fault that does not apply to the call counts as
// NoFault.
type Plan func(Call) Fault

// Nth returns a plan that counts from 1 the calls to which the fault applies, and gives the
// fault only to call n.
func Nth(fault Fault, n int) Plan {
	i := 0
	return func(c Call) Fault {
		if fault.can(c) {
			if i++; i == n {
				return fault
			}
		}
		return NoFault
	}
}

// Alternate returns a plan that gives the fault to the first, third, fifth commit and so
// on. So a caller that repeats a commit succeeds. For Stale, the plan counts the first
// pages of queries of an index instead of commits.
func Alternate(fault Fault) Plan {
	i := 0
	return func(c Call) Fault {
		if !fault.can(c) || (fault == NotStored && c.Kind != CallCommit) {
			return NoFault
		}
		if i++; i%2 == 1 {
			return fault
		}
		return NoFault
	}
}

// Seeded returns a plan that gives faults at random. For each call the plan draws one of the
// faults, and gives it with the probability rate (0 to 1) if it applies to the call. The
// same seed and the same calls get the same faults. If the parameter faults is empty, the
// plan draws from all faults.
func Seeded(seed uint64, rate float64, faults ...Fault) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	if len(faults) == 0 {
		faults = []Fault{NotStored, Stored, Conflict, Stale}
	}
	return func(c Call) Fault {
		fault := faults[r.IntN(len(faults))]
		if hit := r.Float64() < rate; hit && fault.can(c) {
			return fault
		}
		return NoFault
	}
}

// FaultyEngine is an engine that fails according to a plan. It runs its commits and queries
// of an index one at a time, so that its results depend only on the order of the calls.
// Safe for concurrent use.
type FaultyEngine struct {
	inner engine.Engine

	mu     sync.Mutex
	plan   Plan
	calls  map[CallKind]int
	fired  map[Fault]int
	orders map[place][]entry // the entries of List and Due after the last commit
	undo   []undo            // the index changes of the last staleBy commits, oldest first
}

// undo is one commit's change of the indexes.
type undo struct{ added, removed []member }

type member struct {
	place place
	entry entry
}

var _ engine.Engine = (*FaultyEngine)(nil)

// Faulty wraps an engine. Wrap an empty engine: a stale index can only miss items that were
// written through the wrapper. A nil plan has no faults.
func Faulty(inner engine.Engine, plan Plan) *FaultyEngine {
	f := &FaultyEngine{
		inner: inner, calls: make(map[CallKind]int),
		fired: make(map[Fault]int), orders: make(map[place][]entry),
	}
	f.SetPlan(plan)
	return f
}

// SetPlan replaces the plan, for example after a test has written its first items.
func (f *FaultyEngine) SetPlan(plan Plan) {
	if plan == nil {
		plan = func(Call) Fault { return NoFault }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Fired returns for each fault the number of calls that had the fault. The number of NoFault
// is the number of calls without a fault.
func (f *FaultyEngine) Fired() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.fired)
}

// decide returns the plan's fault for the call. The caller of decide must hold the lock, and
// must count the fault in fired.
func (f *FaultyEngine) decide(c Call) Fault {
	f.calls[c.Kind]++
	c.N = f.calls[c.Kind]
	if fault := f.plan(c); fault.can(c) {
		return fault
	}
	return NoFault
}

func injected(fault Fault, what string) error {
	return &fairlead.Error{
		Kind: fairlead.KindUnavailable, Code: fairlead.CodeStoreUnavailable,
		Message: fmt.Sprintf("%s: %s", what, fault), Err: ErrInjected,
	}
}

// Get implements engine.Engine.
func (f *FaultyEngine) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	f.mu.Lock()
	fault := f.decide(Call{Kind: CallGet, Key: k})
	f.fired[fault]++
	f.mu.Unlock()
	if fault == NotStored {
		return engine.Item{}, injected(fault, "get "+k.String())
	}
	return f.inner.Get(ctx, k)
}

// Commit implements engine.Engine.
func (f *FaultyEngine) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.decide(Call{Kind: CallCommit, Token: token, Writes: writes})
	what := fmt.Sprintf("commit %s of %d", token, len(writes))
	if fault == NotStored {
		f.fired[fault]++
		return injected(fault, what)
	}
	before, err := f.read(ctx, writes)
	if err != nil {
		return err
	}
	if fault == Conflict && f.recognised(token, writes, before) {
		fault = NoFault
	}
	if fault == Conflict && engine.CheckCommit(token, writes) == nil {
		f.fired[fault]++
		w := writes[0]
		return &engine.ConflictError{Key: w.Item.Key, If: w.If, Current: before[w.Item.Key]}
	}
	if err := f.inner.Commit(ctx, token, writes...); err != nil {
		return err // nothing was stored, so the fault Stored does not apply
	}
	// Read the items again: the writes do not show the result, because a repeat changes
	// nothing.
	after, err := f.read(ctx, writes)
	if err != nil {
		return err
	}
	f.record(before, after)
	f.fired[fault]++
	if fault == Stored {
		return injected(fault, what)
	}
	return nil
}

// read returns the stored items at the keys of the writes. The map does not contain keys
// without an item.
func (f *FaultyEngine) read(ctx context.Context, writes []engine.Write) (map[engine.Key]*engine.Item, error) {
	items := make(map[engine.Key]*engine.Item, len(writes))
	for _, w := range writes {
		it, err := f.inner.Get(ctx, w.Item.Key)
		switch {
		case err == nil:
			items[w.Item.Key] = &it
		case !errors.Is(err, engine.ErrNotFound):
			return nil, err
		}
	}
	return items, nil
}

func (f *FaultyEngine) recognised(token string, writes []engine.Write, stored map[engine.Key]*engine.Item) bool {
	again, _ := engine.Repeated(token, writes, func(k engine.Key) (string, error) {
		if it := stored[k]; it != nil {
			return it.Token, nil
		}
		return "", nil
	})
	return again
}

// record applies the commit's change of the indexes to orders, and appends it to undo.
func (f *FaultyEngine) record(before, after map[engine.Key]*engine.Item) {
	u := undo{added: members(after), removed: members(before)}
	u.apply(f.orders)
	if f.undo = append(f.undo, u); len(f.undo) > staleBy {
		f.undo = slices.Delete(f.undo, 0, 1)
	}
}

// members returns the index entries of the items.
func members(items map[engine.Key]*engine.Item) []member {
	var all []member
	for _, it := range items {
		for _, index := range []engine.Index{engine.List, engine.Due} {
			if k := it.Place(index); k != nil {
				all = append(all, member{place{index, k.Partition}, entry{k.Sort, it.Key}})
			}
		}
	}
	return all
}

func (u undo) apply(orders map[place][]entry) {
	for _, m := range u.removed {
		orders[m.place] = remove(orders[m.place], m.entry)
	}
	for _, m := range u.added {
		orders[m.place] = insert(orders[m.place], m.entry)
	}
}

func (u undo) reverse() undo { return undo{added: u.removed, removed: u.added} }

// The first letter of a cursor shows which engine continues the query: the FaultyEngine
// itself after a page of a stale index, otherwise the inner engine.
const (
	ownCursor   = "w"
	innerCursor = "e"
)

// Query implements engine.Engine.
func (f *FaultyEngine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := q.After; w != "" && (len(w) == 1 || (w[:1] != ownCursor && w[:1] != innerCursor)) {
		return engine.Page{}, fairlead.Invalid(fairlead.CodeBadCursor, "the cursor %q is not from this engine", w)
	}
	fault := f.decide(Call{Kind: CallQuery, Query: q})
	if fault == NotStored {
		f.fired[fault]++
		return engine.Page{}, injected(fault, "query "+q.Partition)
	}
	var side string
	if q.After != "" {
		side, q.After = q.After[:1], q.After[1:]
	}
	var page engine.Page
	var err error
	if fault == Stale || side == ownCursor {
		side = ownCursor
		page, err = f.stale(ctx, q)
	} else {
		side = innerCursor
		page, err = f.inner.Query(ctx, q)
	}
	if err != nil {
		return engine.Page{}, err
	}
	f.fired[fault]++
	if page.Next != "" {
		page.Next = side + page.Next
	}
	return page, nil
}

// stale returns a page of the index as it was before the last staleBy commits. The items are
// the current items of the table.
func (f *FaultyEngine) stale(ctx context.Context, q engine.Query) (engine.Page, error) {
	limit, err := engine.CheckQuery(q)
	if err != nil {
		return engine.Page{}, err
	}
	p := place{q.Index, q.Partition}
	old := map[place][]entry{p: slices.Clone(f.orders[p])}
	for _, u := range slices.Backward(f.undo) {
		u.reverse().apply(old)
	}
	keys, next, err := pageOf(old[p], q, limit)
	if err != nil {
		return engine.Page{}, err
	}
	page := engine.Page{Next: next}
	seen := make(map[engine.Key]bool)
	for _, k := range keys {
		if seen[k] {
			continue
		}
		seen[k] = true
		it, err := f.inner.Get(ctx, k)
		if errors.Is(err, engine.ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return engine.Page{}, err
		}
		page.Items = append(page.Items, it)
	}
	return page, nil
}
