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

// Fault is one way in which databases fail. Each is allowed by the contract of
// package engine, so a caller that keeps to the contract survives all of them.
type Fault int

// The faults.
const (
	// NoFault: the call goes through.
	NoFault Fault = iota
	// NotStored: the call fails and nothing has happened. Of any call.
	NotStored
	// Stored: the commit happens, and the caller hears an error. Of commits.
	Stored
	// Conflict: nothing has happened, and the caller hears a conflict at its
	// first write that shows the item which is truly stored, though the
	// precondition holds. It stands for a writer that came between and was
	// undone, or an item that changed back. A commit that has happened before
	// is spared, as an engine recognises it. Of commits.
	Conflict
	// Stale: the index answers as it stood up to 8 commits ago: newer members
	// are missing, and members that left or moved are still where they were.
	// The items themselves are current. Of queries of an index, first pages.
	Stale
)

func (f Fault) String() string {
	return [...]string{"no fault", "failed and not stored", "failed and stored", "conflict once", "stale index"}[f]
}

// staleBy is how many commits a stale index is behind.
const staleBy = 8

// ErrInjected is in the chain of every error that FaultyEngine made up. The
// error is otherwise like an engine's own: a *fairlead.Error of
// KindUnavailable.
var ErrInjected = errors.New("injected fault")

// CallKind is the method of a call.
type CallKind string

// The calls.
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

// can reports whether the fault can befall the call.
func (f Fault) can(c Call) bool {
	switch f {
	case NotStored:
		return true
	case Stored, Conflict:
		return c.Kind == CallCommit
	case Stale:
		// Later pages go on from where the first one stood.
		return c.Kind == CallQuery && c.Query.Index != engine.Table && c.Query.After == ""
	default:
		return false
	}
}

// Plan decides the fate of each call. It is called in the order of the calls,
// never by two at a time. A fault that cannot befall the call is no fault.
type Plan func(Call) Fault

// Nth returns a plan in which the fault befalls the n-th, and only the n-th,
// of the calls that it can befall, counted from 1.
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

// Alternate returns a plan in which the fault befalls every other commit (or,
// if Stale, every other first page of an index), beginning with the first: whoever
// repeats a commit gets through.
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

// Seeded returns a plan that gives about rate (0 to 1) of the calls one of the
// faults that can befall them. The same seed and the same calls have the same
// faults. Without faults it chooses among all.
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

// FaultyEngine is an engine that fails by a plan. Its commits and queries of
// an index run one at a time, so that what it does depends on the order of the
// calls alone. Safe for concurrent use.
type FaultyEngine struct {
	inner engine.Engine

	mu     sync.Mutex
	plan   Plan
	calls  map[CallKind]int
	fired  map[Fault]int
	orders map[place][]entry // both indexes as of the last commit
	undo   []undo            // what the last commits changed, oldest first
}

// undo is how one commit changed the indexes.
type undo struct{ added, removed []member }

type member struct {
	place place
	entry entry
}

var _ engine.Engine = (*FaultyEngine)(nil)

// Faulty wraps an engine. For stale indexes it must have seen the items
// written, so wrap an empty engine; what it has not seen it cannot miss. A nil
// plan has no faults.
func Faulty(inner engine.Engine, plan Plan) *FaultyEngine {
	f := &FaultyEngine{
		inner: inner, calls: make(map[CallKind]int),
		fired: make(map[Fault]int), orders: make(map[place][]entry),
	}
	f.SetPlan(plan)
	return f
}

// SetPlan replaces the plan, for instance once a test has laid its ground.
func (f *FaultyEngine) SetPlan(plan Plan) {
	if plan == nil {
		plan = func(Call) Fault { return NoFault }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Fired returns how often each fault befell a call; under NoFault stand the
// calls that went through.
func (f *FaultyEngine) Fired() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.fired)
}

// decide asks the plan; the caller holds the lock. The fault counts as fired
// only when the caller says so.
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
		return err // nothing was stored, so nothing can be "failed and stored"
	}
	// Not what was to be written: a repeat changes nothing.
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

// read returns the items that the writes are about; nil: there is none.
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

// record keeps what a commit did to the indexes.
func (f *FaultyEngine) record(before, after map[engine.Key]*engine.Item) {
	u := undo{added: members(after), removed: members(before)}
	u.apply(f.orders)
	if f.undo = append(f.undo, u); len(f.undo) > staleBy {
		f.undo = slices.Delete(f.undo, 0, 1)
	}
}

// members returns where the items stand in the indexes.
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

// Pages that a stale index gave are continued by the wrapper, and all others
// by the engine: the first letter of a cursor tells which.
const (
	ownCursor   = "w"
	innerCursor = "e"
)

// Query implements engine.Engine.
func (f *FaultyEngine) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := q.After; w != "" && (len(w) == 1 || (w[:1] != ownCursor && w[:1] != innerCursor)) {
		return engine.Page{}, fairlead.Invalid(fairlead.CodeBadCursor, "the cursor %q is not one of ours", w)
	}
	fault := f.decide(Call{Kind: CallQuery, Query: q})
	if fault == NotStored {
		f.fired[fault]++
		return engine.Page{}, injected(fault, "query "+q.Partition)
	}
	var whose string
	if q.After != "" {
		whose, q.After = q.After[:1], q.After[1:]
	}
	var page engine.Page
	var err error
	if fault == Stale || whose == ownCursor {
		whose = ownCursor
		page, err = f.stale(ctx, q)
	} else {
		whose = innerCursor
		page, err = f.inner.Query(ctx, q)
	}
	if err != nil {
		return engine.Page{}, err
	}
	f.fired[fault]++
	if page.Next != "" {
		page.Next = whose + page.Next
	}
	return page, nil
}

// stale answers from the index as it stood some commits ago, and from the
// table as it stands.
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
			continue // gone since
		}
		if err != nil {
			return engine.Page{}, err
		}
		page.Items = append(page.Items, it)
	}
	return page, nil
}
