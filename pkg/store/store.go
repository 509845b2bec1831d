// Package store reads and writes typed records in the table. Each kind of record has a
// key, and methods that read and write it. Every write has a precondition. An engine
// (package engine) drives the database. The packages without input or output have the
// rules of what may be written, and package control applies these rules.
//
// docs/contributing/table-items.md lists every access pattern. There is no scan.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Store reads and writes typed records. Safe for concurrent use.
type Store struct{ engine engine.Engine }

// New returns a Store on the engine.
func New(e engine.Engine) *Store { return &Store{engine: e} }

// Stored is a record that was read, or a record to create. Version is the precondition of
// the next write: 0 means that the record must not exist yet.
type Stored[T any] struct {
	V       T
	Version int64
	newer   []byte // the item's body, if it can have fields that T does not have
}

// get reads the record at k. If there is none, it returns the error of the parameter
// missing, which is a *fairlead.Error.
func get[T any](ctx context.Context, s *Store, k engine.Key, missing func() error) (Stored[T], error) {
	it, err := s.engine.Get(ctx, k)
	if errors.Is(err, engine.ErrNotFound) {
		return Stored[T]{}, missing()
	}
	if err != nil {
		return Stored[T]{}, fmt.Errorf("read %s: %w", k, err)
	}
	return decode[T](it)
}

func decode[T any](it engine.Item) (r Stored[T], err error) {
	err = decodeInto(&r, &it)
	return r, err
}

// decodeInto decodes the item it into r, which must be zero.
func decodeInto[T any](r *Stored[T], it *engine.Item) error {
	var err error
	if r.newer, err = readSchema(it); err != nil {
		return err
	}
	r.Version = it.Version
	if err := json.Unmarshal(it.Body, &r.V); err != nil {
		return fmt.Errorf("decode %s: %w", it.Key, err)
	}
	return nil
}

// Optional takes the results of a read and removes the not-found error: a missing
// record is the zero record with version 0.
func Optional[T any](r Stored[T], err error) (Stored[T], error) {
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return Stored[T]{}, nil
	}
	return r, err
}

// Pages reads a list page by page, from its start. It stops after the first error.
func Pages[T any](read func(fairlead.PageQuery) (Page[T], error)) iter.Seq2[Stored[T], error] {
	return func(yield func(Stored[T], error) bool) {
		for q := (fairlead.PageQuery{}); ; {
			p, err := read(q)
			if err != nil {
				yield(Stored[T]{}, err)
				return
			}
			for _, r := range p.Items {
				if !yield(r, nil) {
					return
				}
			}
			if q.After = p.Next; p.Next == "" {
				return
			}
		}
	}
}

// Page is a page of records. Next is "" at the end.
type Page[T any] struct {
	Items []Stored[T]
	Next  string
}

func query[T any](ctx context.Context, s *Store, q engine.Query) (Page[T], error) {
	p, err := s.engine.Query(ctx, q)
	if err != nil {
		return Page[T]{}, fmt.Errorf("query %s %s: %w", q.Index, q.Partition, err)
	}
	out := Page[T]{Next: p.Next, Items: make([]Stored[T], len(p.Items))}
	// Decoding takes most of the time of a long page.
	var g errgroup.Group
	for from := 0; from < len(p.Items); from += decodedTogether {
		some := func() (err error) {
			for i := from; i < min(from+decodedTogether, len(p.Items)) && err == nil; i++ {
				err = decodeInto(&out.Items[i], &p.Items[i]) // no copy: records are large
			}
			return err
		}
		if len(p.Items) <= decodedTogether {
			err = some()
			break
		}
		g.Go(some)
	}
	if err := cmp.Or(err, g.Wait()); err != nil {
		return Page[T]{}, err
	}
	return out, nil
}

// decodedTogether is how many items of a page one goroutine decodes.
const decodedTogether = 250

// all reads every page of a query. Use it only for short lists, for example the
// components of one install.
func all[T any](ctx context.Context, s *Store, q engine.Query) ([]Stored[T], error) {
	var out []Stored[T]
	for {
		p, err := query[T](ctx, s, q)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if p.Next == "" {
			return out, nil
		}
		q.After = p.Next
	}
}

// Tx collects the writes of one commit. It is not safe for concurrent use.
type Tx struct {
	By       fairlead.Actor // who asked for the commit; zero: no person and no program of the vendor
	Cause    fairlead.Actor // for the audit, if By is zero: a runner or the control plane. No record gets it
	At       time.Time      // when the commit is made
	Op       string         // what the use case does, as text
	Request  Request        // of By; zero: the use case was not called by the API
	writes   []engine.Write
	touched  []touched
	subjects []string
	err      error
}

// Made returns the actors of a record that the commit creates. The commit writes them anyway; a use case needs Made only to show
// the record before the commit.
func (t *Tx) Made() fairlead.Actors { return fairlead.Actors{CreatedBy: t.By, ChangedBy: t.By} }

// Deletes reports whether the commit removes a record.
func (t *Tx) Deletes() bool {
	return slices.ContainsFunc(t.writes, func(w engine.Write) bool { return w.Op == engine.Delete })
}

// Empty reports whether there is nothing to commit.
func (t *Tx) Empty() bool { return len(t.writes) == 0 }

// Subjects returns the identifiers of the jobs, deployments and runners that the commit
// changes. A caller that waits for a change of one of these records must read the record
// again.
func (t *Tx) Subjects() []string { return t.subjects }

// anyVersion is the version of a write without a precondition: the last writer wins.
const anyVersion = -1

// at returns the write at the key, or nil if there is none.
func (t *Tx) at(k engine.Key) *engine.Write {
	i := slices.IndexFunc(t.writes, func(w engine.Write) bool { return w.Item.Key == k })
	if i < 0 {
		return nil
	}
	return &t.writes[i]
}

// put adds a record; r.Version is its precondition. An item that a commit puts twice keeps
// the first precondition and the last content.
func put[T any](t *Tx, k engine.Key, r Stored[T], opts ...func(*engine.Item)) {
	// Here, because a use case could forget it.
	if v, ok := any(&r.V).(interface{ Stamp(fairlead.Actor, bool) }); ok && t.By != (fairlead.Actor{}) {
		v.Stamp(t.By, r.Version == 0)
		if _, ok := any(r.V).(audited); !ok {
			t.err = fmt.Errorf("put %s: %w", k, errNoObject)
			return
		}
	}
	t.touch(k, r.V, false)
	b, err := encode(r)
	if err != nil {
		t.err = fmt.Errorf("encode %s: %w", k, err)
		return
	}
	it := engine.Item{Key: k, Body: b}
	for _, o := range opts {
		o(&it)
	}
	if w := t.at(k); w != nil {
		w.Op, w.Item = engine.Put, it
		return
	}
	cond := engine.Absent()
	switch {
	case r.Version == anyVersion:
		cond = engine.Any()
	case r.Version > 0:
		cond = engine.Version(r.Version)
	}
	t.writes = append(t.writes, engine.Write{Op: engine.Put, Item: it, If: cond})
}

// remove removes the record r.
func remove[T any](t *Tx, k engine.Key, r Stored[T]) {
	t.touch(k, r.V, true)
	t.writes = append(t.writes, engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Version(r.Version)})
}

// drop removes a record of any version. The record may be missing.
func (t *Tx) drop(k engine.Key) {
	if w := t.at(k); w != nil {
		w.Op, w.Item = engine.Delete, engine.Item{Key: k}
		return
	}
	t.writes = append(t.writes, engine.Write{Op: engine.Delete, Item: engine.Item{Key: k}, If: engine.Any()})
}

func (t *Tx) check(k engine.Key, version int64) {
	if t.at(k) != nil {
		return // the write has the same precondition
	}
	t.writes = append(t.writes, engine.Write{Op: engine.Check, Item: engine.Item{Key: k}, If: engine.Version(version)})
}

func expires(at time.Time) func(*engine.Item) {
	return func(it *engine.Item) { it.Expires = at }
}

func due(k *engine.Key) func(*engine.Item) { return func(it *engine.Item) { it.Due = k } }

func list(partition, sort string) func(*engine.Item) {
	return func(it *engine.Item) { it.List = &engine.Key{Partition: partition, Sort: sort} }
}

// Commit applies all writes of t or none. A *engine.ConflictError means that a
// record changed after it was read: read again. After any other error it is
// unknown whether the commit happened. It is safe to repeat the commit with the
// same token.
func (s *Store) Commit(ctx context.Context, token string, t *Tx) error {
	if t.err == nil {
		t.err = t.annotate(token)
	}
	if t.err != nil {
		return t.err
	}
	if len(t.writes) > engine.MaxCommit {
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeCommitTooLarge,
			Message: fmt.Sprintf("the change needs %d writes; one commit can have %d", len(t.writes), engine.MaxCommit)}
	}
	sum := 0
	for _, w := range t.writes {
		if len(w.Item.Body) > engine.MaxBody {
			return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeRecordTooLarge,
				Message: fmt.Sprintf("the change stores a record of %d bytes; a record can have %d", len(w.Item.Body), engine.MaxBody),
				Hint:    "Keep large values in a file or a bucket, and pass the path or URL."}
		}
		sum += len(w.Item.Body)
	}
	if sum > engine.MaxCommitSum {
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeCommitTooLarge,
			Message: fmt.Sprintf("the change has %d bytes; one commit can have %d", sum, engine.MaxCommitSum)}
	}
	return s.engine.Commit(ctx, token, t.writes...)
}
