package control

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fairlead/fairlead/pkg/audit"
)

const (
	// maxTails is the number of chains whose ends an auditor remembers.
	maxTails = 1000
	// tailFor is for how long it remembers an entry. An append looks for entries of the last clockSlack.
	tailFor = 2 * clockSlack
	// maxTail is the largest number of entries of a chain that it remembers: 10 MiB.
	maxTail = 100_000
)

// auditTails are the ends of the chains that an auditor has read or appended to. An append reads none of the entries that it knows
// already: a busy chain has thousands of the last minute. What another auditor appends meanwhile shows in the conflict of the commit.
// Safe for concurrent use.
type auditTails struct {
	mu    sync.Mutex
	known *simplelru.LRU[chainOf, *auditTail]
}

type chainOf struct{ org, chain string }

// auditTail is the end of a chain.
type auditTail struct {
	head  audit.Head
	since time.Time       // ids has each entry that was recorded since then
	ids   map[string]bool // of the entries
	order []recordedID    // of ids
}

type recordedID struct {
	id string
	at time.Time
}

func newAuditTails() *auditTails {
	known, err := simplelru.NewLRU[chainOf, *auditTail](maxTails, nil)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &auditTails{known: known}
}

// find returns the head of the chain of e, and whether the chain has e. ok is false if the tail does not have all entries that
// were recorded since a time.
func (t *auditTails) find(e audit.Entry, since time.Time) (head audit.Head, appended, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail, ok := t.known.Get(chainOf{e.Org, e.Chain})
	if !ok || since.Before(tail.since) {
		return audit.Head{}, false, false
	}
	return tail.head, tail.ids[e.ID], true
}

// keep remembers the head of a chain, and its last entries, the oldest first: all that were recorded since a time.
func (t *auditTails) keep(entries []audit.Entry, head audit.Head, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := &auditTail{head: head, since: since, ids: map[string]bool{}}
	for _, e := range entries {
		tail.add(e)
	}
	t.known.Add(chainOf{entries[0].Org, entries[0].Chain}, tail)
}

// grow remembers an entry that was appended to its chain, and the head that it made.
func (t *auditTails) grow(e audit.Entry, head audit.Head) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail, ok := t.known.Get(chainOf{e.Org, e.Chain})
	switch {
	case ok && tail.head.N+1 == e.N:
		tail.head = head
		tail.add(e)
	case ok: // it is of before another append
		t.known.Remove(chainOf{e.Org, e.Chain})
	}
}

// forget makes the next append to the chain of e read its end.
func (t *auditTails) forget(e audit.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.Remove(chainOf{e.Org, e.Chain})
}

func (t *auditTail) add(e audit.Entry) {
	t.ids[e.ID] = true
	t.order = append(t.order, recordedID{e.ID, e.Recorded})
	for oldest := t.order[0]; len(t.order) > maxTail || e.Recorded.Sub(oldest.at) > tailFor; oldest = t.order[0] {
		delete(t.ids, oldest.id)
		if at := oldest.at.Add(time.Millisecond); at.After(t.since) { // the next one may be of the same instant
			t.since = at
		}
		t.order = t.order[1:]
	}
}
