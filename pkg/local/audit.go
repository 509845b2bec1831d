package local

import (
	"cmp"
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/store/engine"
	storesqlite "github.com/fairlead/fairlead/pkg/store/sqlite"
)

// checkpointEvery is the default of Options.CheckpointEvery.
const checkpointEvery = time.Minute

// auditAgain is the pause after a failure.
const auditAgain = time.Second

// auditPause is the time between two passes. On a busy server, the entries of several changes then share a commit, and so a sync of the
// disk.
const auditPause = 100 * time.Millisecond

// auditBatch is the number of changes that are read together, and whose entries are written together.
const auditBatch = engine.MaxCommit

// audit appends an entry to the audit for each change with a note, and signs checkpoints, until ctx ends. On AWS, the table's stream
// and a function do this.
//
// The engine keeps a change until a checkpoint has its entry. So after a crash, audit reads the changes of up to a minute
// again, finds their entries, and signs the checkpoint.
func (s *Server) audit(ctx context.Context, table *storesqlite.Engine) {
	c := s.control
	a := &auditing{table: table, moved: control.Moved{}, every: cmp.Or(s.opts.CheckpointEvery, checkpointEvery),
		Auditor: c.NewAuditor(0, auditBatch), now: c.Now}
	s.done.Go(func() {
		for ctx.Err() == nil {
			wait, err := a.next(ctx)
			if err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot write the audit; trying again", "error", err)
				wait = auditAgain
			}
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-time.After(auditPause):
			case <-ctx.Done():
			}
			select {
			case <-table.NotedChange():
			case <-timer:
			case <-ctx.Done():
			}
		}
	})
}

type auditing struct {
	*control.Auditor
	now   func() time.Time
	table *storesqlite.Engine
	every time.Duration
	moved control.Moved
	read  int64     // the last change that was appended
	since time.Time // of the first entry that no checkpoint has
}

// next appends the entries of all changes, and signs a checkpoint if one is due. It returns the time until the next
// checkpoint is due; 0: there is nothing to sign.
func (a *auditing) next(ctx context.Context) (time.Duration, error) {
	for {
		changes, err := a.table.Noted(ctx, a.read, auditBatch)
		if err != nil {
			return 0, err
		}
		if len(changes) == 0 {
			break
		}
		records := make([]control.Record, len(changes))
		for i, c := range changes {
			records[i] = control.Record{At: a.now(), Change: c.Change}
		}
		done, err := a.Append(ctx, records, a.moved)
		if done > 0 {
			a.read = changes[done-1].Sequence
			if a.since.IsZero() {
				a.since = a.now()
			}
		}
		if err != nil {
			return 0, err
		}
	}
	if a.since.IsZero() {
		return 0, nil
	}
	if wait := a.every - a.now().Sub(a.since); wait > 0 {
		return wait, nil
	}
	if err := a.Checkpoint(ctx, a.moved); err != nil {
		return 0, err
	}
	if err := a.table.ForgetNoted(ctx, a.read); err != nil {
		return 0, err
	}
	a.since = time.Time{}
	return 0, nil
}
