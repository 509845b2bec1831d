package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// AuditKept is how long entries and checkpoints of the audit are kept.
const AuditKept = 400 * 24 * time.Hour

// Auditor chains the entries of the audit: it reads the changes of the table that have a note, and appends an entry for each to
// its chain. After a batch it signs a checkpoint of the chains that moved. Several auditors can work on one table: a chain has
// one entry of each number, so a second writer reads the head again. Safe for concurrent use.
type Auditor struct {
	k        *kernel.Kernel
	keep     time.Duration
	together int
	tails    *auditTails
}

// NewAuditor returns an auditor that keeps entries and checkpoints for a time (0: AuditKept), and writes up to so many entries
// together: from 1 to engine.MaxCommit. In SQLite a commit costs more than its entries. In DynamoDB an entry that is written alone costs
// one write unit, and in a transaction two.
func (c *Control) NewAuditor(keep time.Duration, together int) *Auditor {
	return &Auditor{c.Kernel, cmp.Or(keep, AuditKept), together, newAuditTails()}
}

// Moved are chains whose heads no checkpoint has yet, by org and by name. It is not safe for concurrent use.
type Moved map[fairlead.OrgID]map[string]audit.Head

// clockSlack is by how much the clock of an auditor can be behind that of the process that made a commit.
const clockSlack = time.Minute

// maxAppends is how often an auditor tries to append an entry while other auditors append to the same chain.
const maxAppends = 20

// Append appends the entries of records, which are in the order of the stream, and adds the chains to moved. It returns the number of
// records that are done: after a failure, the stream must deliver the others again. A record that was appended before
// is not appended again, but its chain counts as moved. So after the death of an auditor the repeated records lead to the
// same chains, and to a checkpoint of them.
func (a *Auditor) Append(ctx context.Context, records []Record, moved Moved) (done int, err error) {
	var entries []audit.Entry
	var at []int // of records
	for i, r := range records {
		d, ok, err := store.AuditDraft{}, false, r.Err
		if err == nil {
			d, ok, err = store.Audit(r.Change)
		}
		if err != nil {
			// Repeating the record would block all later ones.
			a.k.Logger.Error("a record of the table's stream cannot be decoded: the audit has no entry of it", "record", r.ID, "key", r.Change.Key.String(), "error", err)
			continue
		}
		if ok {
			entries, at = append(entries, d.Entry), append(at, i)
		}
	}
	for i := 0; i < len(entries); i += a.together {
		part := entries[i:min(i+a.together, len(entries))]
		heads, err := a.append(ctx, part)
		if err != nil {
			return at[i], fmt.Errorf("append %d entries to the audit, the first one %s by %s: %w", len(part), part[0].Action, part[0].Actor.Name, err)
		}
		for chain, head := range heads {
			org := fairlead.OrgID(chain.org)
			if moved[org] == nil {
				moved[org] = map[string]audit.Head{}
			}
			if head.N > moved[org][chain.chain].N {
				moved[org][chain.chain] = head
			}
		}
	}
	return len(records), nil
}

// append appends entries to their chains in one commit, and returns the heads of these chains.
func (a *Auditor) append(ctx context.Context, entries []audit.Entry) (heads map[chainOf]audit.Head, err error) {
	for range maxAppends {
		heads = map[chainOf]audit.Head{}
		var tx store.Tx
		var added []linked
		for _, e := range entries {
			chain := chainOf{e.Org, e.Chain}
			head, appended, err := a.find(ctx, e)
			if err != nil {
				return nil, err
			}
			if last, ok := heads[chain]; ok { // with what this commit has before
				head = &last
			}
			if appended || slices.ContainsFunc(added, func(l linked) bool { return l.entry.ID == e.ID && l.entry.Chain == e.Chain && l.entry.Org == e.Org }) {
				heads[chain] = *head
				continue
			}
			e.N, e.Recorded = 1, a.k.Now().UTC().Truncate(time.Millisecond)
			if head == nil {
				if e.N, err = a.begin(ctx, e); err != nil {
					return nil, err
				}
			}
			next, now, err := e.After(head)
			if err != nil {
				return nil, err
			}
			tx.PutAuditEntry(next, next.Recorded.Add(a.keep))
			heads[chain], added = now, append(added, linked{next, now})
		}
		if len(added) == 0 {
			return heads, nil
		}
		err = a.k.Store.Commit(ctx, a.k.IDs(kernel.PrefixCommit), &tx)
		if err == nil {
			for _, l := range added {
				a.tails.grow(l.entry, l.head)
			}
			return heads, nil
		}
		for _, l := range added {
			a.tails.forget(l.entry) // another auditor may have appended to the chain
		}
		if _, conflict := errors.AsType[*engine.ConflictError](err); !conflict {
			return nil, err
		}
	}
	return nil, fmt.Errorf("other auditors kept appending to the same chains, such as %s of org %s", entries[0].Chain, entries[0].Org)
}

// linked is an entry with the head that it makes.
type linked struct {
	entry audit.Entry
	head  audit.Head
}

// find returns the head of the chain, or nil, and whether the chain has the entry e already. An entry that was recorded before
// e was committed ends the search.
func (a *Auditor) find(ctx context.Context, e audit.Entry) (head *audit.Head, appended bool, err error) {
	since := e.At.Add(-clockSlack)
	if head, appended, ok := a.tails.find(e, since); ok {
		return &head, appended, nil
	}
	var read []audit.Entry // the newest first
	const few = 4
	q := fairlead.PageQuery{Limit: few}
	for done := false; !done; {
		page, err := a.k.Store.AuditEntries(ctx, fairlead.OrgID(e.Org), e.Chain, q)
		if err != nil {
			return nil, false, err
		}
		for _, it := range page.Items {
			if done = len(read) > 0 && it.V.Recorded.Before(since); done {
				break
			}
			read = append(read, it.V)
			appended = appended || it.V.ID == e.ID
		}
		q = fairlead.PageQuery{After: page.Next}
		done = done || page.Next == ""
	}
	if len(read) == 0 {
		return nil, false, nil
	}
	newest, err := read[0].Head()
	if err != nil {
		return nil, false, err
	}
	slices.Reverse(read)
	a.tails.keep(read, newest, since)
	return &newest, appended, nil
}

// begin writes the chain's record if the chain is new, and returns the number of its next entry. A chain of which all entries
// expired continues with a number that no earlier entry had, because the customer may have kept their hashes.
func (a *Auditor) begin(ctx context.Context, e audit.Entry) (n int64, err error) {
	org := fairlead.OrgID(e.Org)
	r, err := a.k.Store.AuditChain(ctx, org, e.Chain)
	switch {
	case err != nil:
		return 0, err
	case r.Version > 0 && e.Recorded.Sub(r.V.Created) >= a.keep:
		return e.Recorded.Unix(), nil
	case r.Version > 0:
		return 1, nil
	}
	r.V.Created = e.Recorded
	if e.Chain != audit.OrgChain {
		r.V.Name = e.Object.Name
	}
	var tx store.Tx
	tx.PutAuditChain(org, r)
	err = a.k.Store.Commit(ctx, a.k.IDs(kernel.PrefixCommit), &tx)
	if _, conflict := errors.AsType[*engine.ConflictError](err); conflict {
		return 1, nil // another auditor began it
	}
	return 1, err
}

// Checkpoint signs and writes checkpoints of the chains that moved, and removes them from moved.
func (a *Auditor) Checkpoint(ctx context.Context, moved Moved) error {
	for _, org := range slices.Sorted(maps.Keys(moved)) {
		heads := slices.SortedFunc(maps.Values(moved[org]), func(x, y audit.Head) int { return cmp.Compare(x.Chain, y.Chain) })
		for part := range slices.Chunk(heads, audit.MaxHeads) {
			if err := a.checkpoint(ctx, org, part); err != nil {
				return fmt.Errorf("write a checkpoint of the audit of org %s: %w", org, err)
			}
			for _, h := range part {
				delete(moved[org], h.Chain)
			}
		}
		delete(moved, org)
	}
	return nil
}

// signer returns the key that signs checkpoints. On AWS it is that of the function, whose role may read nothing but the audit.
func (a *Auditor) signer(ctx context.Context) (*events.Signer, error) {
	if a.k.SigningKeys == nil {
		return a.k.Signer, nil
	}
	signing, err := a.k.Signing(ctx)
	return signing.Signer, err
}

func (a *Auditor) checkpoint(ctx context.Context, org fairlead.OrgID, heads []audit.Head) error {
	for range maxAppends {
		c := audit.Checkpoint{V: 1, Org: string(org), N: 1, At: a.k.Now().UTC().Truncate(time.Millisecond), Heads: heads}
		last, err := a.k.Store.Checkpoints(ctx, org, fairlead.PageQuery{Limit: 1})
		if err != nil {
			return err
		}
		if len(last.Items) > 0 {
			before := last.Items[0].V.Checkpoint
			c.N = before.N + 1
			if c.Prev, err = audit.Hash(before); err != nil {
				return err
			}
		}
		message, err := c.Message()
		if err != nil {
			return err
		}
		s := audit.Signed{Checkpoint: c}
		signer, err := a.signer(ctx)
		if err != nil {
			return err
		}
		if s.Key, s.Signature, err = signer.SignMessage(ctx, message); err != nil {
			return err
		}
		var tx store.Tx
		tx.PutCheckpoint(s, c.At.Add(a.keep))
		err = a.k.Store.Commit(ctx, a.k.IDs(kernel.PrefixCommit), &tx)
		if _, conflict := errors.AsType[*engine.ConflictError](err); !conflict {
			return err
		}
	}
	return errors.New("other auditors kept writing checkpoints")
}

// AuditChain is a chain of an org's audit.
type AuditChain struct {
	Chain   string
	Install string // name of the install when the chain began; "": of none
	Created time.Time
}

// AuditChains lists the chains of an org, by name.
func (c *Control) AuditChains(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]AuditChain, string, error) {
	p, err := c.Store.AuditChains(ctx, org, q)
	return kernel.List(p, err, func(r store.AuditChain) AuditChain { return AuditChain{r.Chain, r.Name, r.Created} })
}

// AuditEntries lists the entries of a chain, newest first. A chain without entries is empty.
func (c *Control) AuditEntries(ctx context.Context, org fairlead.OrgID, chain string, q fairlead.PageQuery) ([]audit.Entry, string, error) {
	p, err := c.Store.AuditEntries(ctx, org, chain, q)
	return kernel.List(p, err, func(e audit.Entry) audit.Entry { return e })
}

// AuditCheckpoints lists the checkpoints of an org, newest first.
func (c *Control) AuditCheckpoints(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]audit.Signed, string, error) {
	p, err := c.Store.Checkpoints(ctx, org, q)
	return kernel.List(p, err, func(s audit.Signed) audit.Signed { return s })
}
