package runners

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Limits of concurrent checks of runners and of concurrent searches of queues.
const (
	maxWatches  = 16
	maxSearches = 32
)

// newestSessions is how many sessions of a runner are read first. Usually one of these
// sessions is online, and the older sessions need not be read.
const newestSessions = 3

// Watched counts the results of WatchRunners.
type Watched struct {
	Turned  int // runners that turned lost, or online again
	Lost    int // runners that turned lost
	Letters int // dead letters
}

// watches is what a process knows of the runners that ever had a session, so that it reads a runner
// again only when it can be lost. Safe for concurrent use. An agent that ends its session does not
// make its runner lost at once: when an agent is replaced, the next one starts within this time.
type watches struct {
	mu     sync.Mutex
	listed time.Time // when all of them were read
	all    map[fairlead.RunnerID]known
}

// known is a runner's watch, and the time before which its agents cannot be lost by silence. If its
// agents are suspected, the one who notes that also records whether the runner is lost.
type known struct {
	watch store.RunnerWatch
	until time.Time // zero: not known
}

// WatchRunners finds runners whose agents died and so report nothing. It lists all runners once in
// WatchEvery, and looks at a runner when the last heartbeat that this process knows of is too old. It
// only reads, unless a runner's state changed. If several processes find the same change, one of
// them commits it.
func (f *Fleet) WatchRunners(ctx context.Context) (out Watched, err error) {
	now := f.Instant()
	if now.Before(f.HeldUntil()) {
		return out, nil // agents could not report while the control plane was down
	}
	search, err := f.list(ctx, now)
	if err != nil {
		return out, err
	}
	due := f.due(now)
	changed := kernel.Concurrently(maxWatches, due, func(w store.RunnerWatch) bool {
		changed, err := f.watchRunner(ctx, w)
		if err != nil {
			f.Logger.Warn("cannot check whether a runner is online; the next check tries again", "runner", w.Name, "error", err)
		}
		return changed
	})
	for i, w := range due {
		if changed[i] {
			out.Turned++
			if w.Online {
				out.Lost++
			}
		}
	}
	found := kernel.Concurrently(maxSearches, search, func(w store.RunnerWatch) int {
		n, err := f.takeLetters(ctx, w)
		if err != nil {
			f.Logger.Warn("cannot search a queue for dead letters; a later check tries again", "runner", w.Name, "error", err)
		}
		return n
	})
	for _, n := range found {
		out.Letters += n
	}
	return out, ctx.Err()
}

// list reads the watches of all runners if this process has not done so for WatchEvery. It returns
// those whose queues must be searched for dead letters.
func (f *Fleet) list(ctx context.Context, now time.Time) (search []store.RunnerWatch, err error) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	if now.Sub(f.known.listed) < f.WatchEvery() {
		return nil, nil
	}
	all := map[fairlead.RunnerID]known{}
	for q := (fairlead.PageQuery{Limit: engine.MaxPage}); ; {
		p, err := f.Store.Watches(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, w := range p.Items {
			k := known{watch: w.V}
			if old := f.known.all[w.V.Runner]; w.V.Online && old.watch.Online {
				k.until = old.until
			}
			all[w.V.Runner] = k
			if now.Sub(w.V.LookedForLetters) >= f.LettersEvery(w.V.Runner, w.V.LookedForLetters) {
				search = append(search, w.V)
			}
		}
		if q.After = p.Next; p.Next == "" {
			break
		}
	}
	f.known.listed, f.known.all = now, all
	return search, nil
}

// due returns the runners that may be lost: those that were listed just now and whose last heartbeat
// is not known, and those whose last heartbeat is too old.
func (f *Fleet) due(now time.Time) (due []store.RunnerWatch) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	for _, k := range f.known.all {
		if k.until.IsZero() && f.known.listed.Equal(now) || !k.until.IsZero() && now.After(k.until) {
			due = append(due, k.watch)
		}
	}
	return due
}

// note keeps when the runner can be lost; the zero time: it is not online.
func (f *Fleet) note(w store.RunnerWatch, until time.Time) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	if k, ok := f.known.all[w.Runner]; ok {
		k.watch.Online, k.until = !until.IsZero(), until
		f.known.all[w.Runner] = k
	}
}

// watchRunner records whether an agent of the runner is online, and reports whether
// that changed.
func (f *Fleet) watchRunner(ctx context.Context, found store.RunnerWatch) (turned bool, err error) {
	until, err := f.onlineUntil(ctx, found.Runner)
	if err != nil {
		return false, err
	}
	f.note(found, until)
	if !until.IsZero() == found.Online {
		return false, nil
	}
	err = f.Transact(ctx, "watch runner "+found.Name, func(tx *kernel.Tx) error {
		turned = false
		online, err := f.Online(ctx, found.Runner)
		if err != nil {
			return err
		}
		w, err := f.Store.Watch(ctx, found.Runner)
		if err != nil || w.Version == 0 || w.V.Online == online {
			return err // the runner was deleted, or another process recorded the change
		}
		turnWatch(tx, w, online)
		turned = true
		return nil
	})
	if turned && err == nil && found.Online {
		f.Logger.Warn("a runner is lost: none of its agents sends heartbeats", "runner", found.Name)
	}
	return turned, err
}

// Online reports whether an agent of the runner is online.
func (f *Fleet) Online(ctx context.Context, id fairlead.RunnerID) (bool, error) {
	until, err := f.onlineUntil(ctx, id)
	return !until.IsZero(), err
}

// onlineUntil returns the time until which the runner's agents count as online if they send no more
// heartbeats, or the zero time if none is online.
func (f *Fleet) onlineUntil(ctx context.Context, id fairlead.RunnerID) (until time.Time, err error) {
	for _, limit := range []int{newestSessions, MaxAgents} {
		sessions, err := f.Store.Sessions(ctx, id, limit)
		if err != nil {
			return time.Time{}, err
		}
		for i, after := range silences(f.Kernel, sessions) {
			s := sessions[i].V
			if at := s.LastSeen.Add(after); stateAfter(f.Kernel, s, after) == "online" && at.After(until) {
				until = at
			}
		}
		if !until.IsZero() {
			return until, nil
		}
	}
	return time.Time{}, nil
}

// Suspect marks the online sessions of the runner as lost for which is returns true, until
// the next heartbeat of their agents. Then it records whether the runner is online. It
// reports whether the runner turned lost.
func Suspect(ctx context.Context, k *kernel.Kernel, id fairlead.RunnerID, is func(store.Session) bool) (lost bool, err error) {
	f := New(k)
	found := false
	err = k.Transact(ctx, "suspect agents of runner "+string(id), func(tx *kernel.Tx) error {
		found = false
		sessions, err := k.Store.Sessions(ctx, id, MaxAgents)
		if err != nil {
			return err
		}
		for i, state := range sessionStates(k, sessions) {
			s := sessions[i]
			if state != "online" || !is(s.V) {
				continue
			}
			s.V.Suspect = tx.Now
			tx.PutSession(s)
			found = true
			k.Logger.Warn("an agent is lost: it did not do what a live agent does", "runner", id, "agent", s.V.Instance, "last_seen", s.V.LastSeen)
		}
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	w, err := k.Store.Watch(ctx, id)
	if err != nil || w.Version == 0 {
		return false, err
	}
	turned, err := f.watchRunner(ctx, w.V)
	return turned && w.V.Online, err
}

// turnWatch records that the runner is now online or lost.
func turnWatch(tx *kernel.Tx, w store.Stored[store.RunnerWatch], online bool) {
	w.V.Online, w.V.Since, w.V.Turned = online, tx.Now, w.Version+1
	tx.PutWatch(w)
}

// recordOnline records that the runner is online, in the commit that stores the agent's
// session or heartbeat.
func recordOnline(tx *kernel.Tx, id fairlead.RunnerID) error {
	w, err := tx.Store.Watch(tx.Ctx, id)
	if err != nil || w.Version > 0 && w.V.Online {
		return err
	}
	if w.Version == 0 {
		n, err := tx.Store.RunnerName(tx.Ctx, id)
		if err != nil {
			return err
		}
		w.V.Org, w.V.Name, w.V.LookedForLetters = n.V.Org, n.V.Name, tx.Now
	}
	turnWatch(tx, w, true)
	return nil
}

// takeLetters removes the dead letters from the runner's queue and returns their
// number. If this process dies before its commit, only the log contains the letters.
func (f *Fleet) takeLetters(ctx context.Context, found store.RunnerWatch) (int, error) {
	// Record the search first, so that only one of several concurrent processes searches.
	mine := false
	err := f.Transact(ctx, "look for dead letters of runner "+found.Name, func(tx *kernel.Tx) error {
		mine = false
		w, err := f.Store.Watch(ctx, found.Runner)
		if err != nil || w.Version == 0 || !w.V.LookedForLetters.Equal(found.LookedForLetters) {
			return err
		}
		w.V.LookedForLetters = tx.Now
		tx.PutWatch(w)
		mine = true
		return nil
	})
	if err != nil || !mine {
		return 0, err
	}
	letters := store.DeadLetters{}
	for letters.Count < maxLetters {
		list, err := f.Queue.DeadLetters(ctx, kernel.QueueName(found.Runner), maxLetters-letters.Count)
		if err != nil && letters.Count == 0 {
			return 0, fmt.Errorf("take dead letters of runner %s: %w", found.Name, err)
		}
		if err != nil || len(list) == 0 {
			break
		}
		for _, m := range list {
			w, err := events.DecodeWake(m.Body)
			f.Logger.Warn("a message of a runner's queue was received too often and was removed", "runner", found.Name, "message", m.ID,
				"bytes", len(m.Body), "job", w.Job, "error", err)
			if letters.Count++; err == nil && w.Job != events.WakeForKeys && len(letters.Jobs) < maxLetterJobs && len(w.Job) <= maxJobID {
				letters.Jobs = append(letters.Jobs, w.Job)
			}
		}
	}
	if letters.Count == 0 {
		return 0, nil
	}
	return letters.Count, f.Transact(context.WithoutCancel(ctx), "note dead letters of runner "+found.Name, func(tx *kernel.Tx) error {
		w, err := f.Store.Watch(ctx, found.Runner)
		if err != nil || w.Version == 0 {
			return err
		}
		letters.At, letters.Version = tx.Now, w.Version+1
		w.V.Letters = &letters
		tx.PutWatch(w)
		return nil
	})
}

// Limits of the dead letters that one search takes, and of the job ids that it stores.
const (
	maxLetters    = 100
	maxLetterJobs = 10
)

// MaxAgents is how many of a runner's newest sessions are searched, for example for the
// agent that has a job. It is the largest page of a query, and more than the number of a
// runner's agents.
const MaxAgents = engine.MaxPage
