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

// RunnerWatch is what the control plane has observed of a runner: whether the runner is
// online, and its dead letters. The record exists since the runner's first session.
type RunnerWatch struct {
	Org    fairlead.OrgID    `json:"org"` // empty: a shared runner
	Runner fairlead.RunnerID `json:"runner"`
	Name   string            `json:"name"`
	Online bool              `json:"online"` // an agent was online at the last check
	Since  time.Time         `json:"since"`  // time of the last change of Online
	// Turned is the version of the watch in which Online changed last.
	Turned int64 `json:"turned"`
	// LookedForLetters is the time of the last search for dead letters in its queue.
	LookedForLetters time.Time `json:"looked_for_letters,omitzero"`
	// Letters are the dead letters of the last search that found some; nil: no search has
	// found any.
	Letters *DeadLetters `json:"letters,omitempty"`
}

// DeadLetters are messages that were received too often, and that were removed from
// a runner's queue together.
type DeadLetters struct {
	Count   int              `json:"count"`
	Jobs    []fairlead.JobID `json:"jobs,omitempty"` // jobs with a wake-up among the messages
	At      time.Time        `json:"at"`
	Version int64            `json:"version"` // version of the watch that recorded them
}

// Event returns the event of the given version of the watch, or false if that version has
// no event.
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

// Watch returns a runner's watch, with version 0 if the runner never had a session.
func (s *Store) Watch(ctx context.Context, id fairlead.RunnerID) (Stored[RunnerWatch], error) {
	return getOr(ctx, s, watchKey(id), RunnerWatch{Runner: id})
}

// Watches lists the watches of all runners of all orgs. The newest may be missing
// for a moment.
func (s *Store) Watches(ctx context.Context, q fairlead.PageQuery) (Page[RunnerWatch], error) {
	return query[RunnerWatch](ctx, s, engine.Query{Index: engine.List, Partition: watchesList, After: q.After, Limit: q.Limit})
}

// PutWatch writes a runner's watch.
func (t *Tx) PutWatch(r Stored[RunnerWatch]) {
	id := r.V.Runner
	put(t, watchKey(id), r, list(watchesList, string(id)))
}
