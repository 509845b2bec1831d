package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// RunnerWatch is what the control plane has noticed of a runner without a
// request that says it. It exists from the runner's first session on.
type RunnerWatch struct {
	Org    fairlead.OrgID    `json:"org"` // empty of a shared runner
	Runner fairlead.RunnerID `json:"runner"`
	Name   string            `json:"name"`
	Online bool              `json:"online"` // one of its agents was, when it was looked at
	Since  time.Time         `json:"since"`  // when that changed last
	// Turned is the version of the watch by which that changed.
	Turned int64 `json:"turned"`
	// LookedForLetters is when its queue was last searched for dead letters.
	LookedForLetters time.Time `json:"looked_for_letters,omitzero"`
	// Letters are the dead letters that were found last; nil: none yet.
	Letters *DeadLetters `json:"letters,omitempty"`
}

// DeadLetters are messages of a runner's queue that were received too often, and
// were taken out of it together.
type DeadLetters struct {
	Count   int              `json:"count"`
	Jobs    []fairlead.JobID `json:"jobs,omitempty"` // whose wake-ups are among them
	At      time.Time        `json:"at"`
	Version int64            `json:"version"` // of the watch, by that commit
}

// Event returns what was noticed of the runner when the given version of its
// watch was committed; false if that was nothing that others are told.
func (w RunnerWatch) Event(version int64) (events.Domain, bool) {
	e := events.Domain{V: 1, Org: string(w.Org), Subject: string(w.Runner), Version: version, Data: map[string]string{"runner": w.Name}}
	switch {
	case w.Turned == version && w.Online:
		e.Type, e.Time = eventPrefix+"runner.online", w.Since
	case w.Turned == version:
		e.Type, e.Time = eventPrefix+"runner.lost", w.Since
	case w.Letters != nil && w.Letters.Version == version:
		e.Type, e.Time = eventPrefix+"runner.dead-letter", w.Letters.At
		e.Data["letters"] = strconv.Itoa(w.Letters.Count)
		var jobs []string
		for _, j := range w.Letters.Jobs {
			jobs = append(jobs, string(j))
		}
		e.Data["jobs"] = strings.Join(jobs, " ")
	default:
		return e, false
	}
	return e, true
}

// Watch returns a runner's watch; of one that never had a session, version 0.
func (s *Store) Watch(ctx context.Context, id fairlead.RunnerID) (Stored[RunnerWatch], error) {
	return getOr(ctx, s, watchKey(id), RunnerWatch{Runner: id})
}

// Watches lists the watches of all runners of all orgs. It may miss the newest
// for a moment.
func (s *Store) Watches(ctx context.Context, q fairlead.PageQuery) (Page[RunnerWatch], error) {
	return query[RunnerWatch](ctx, s, engine.Query{Index: engine.List, Partition: watchesList, After: q.After, Limit: q.Limit})
}

// PutWatch writes a runner's watch.
func (t *Tx) PutWatch(r Stored[RunnerWatch]) {
	id := r.V.Runner
	t.put(watchKey(id), r.Version, r.V, list(watchesList, string(id)))
}
