// Package control holds the use cases, and is the only writer of state. Each
// use case reads, asks a pure package what follows, and commits all of it in
// one transaction whose preconditions are the versions it read; a conflict
// reads again. Wake-ups and notices go out after the commit, and may be lost:
// the sweep repairs that.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Deps is all that a Control stands on. Every field but AWS, OIDC, Access,
// Artifacts, Records, Random, Terms, Parallelism and Intervals is required.
type Deps struct {
	Store  *store.Store
	Queue  queue.Queue
	Log    joblog.Log
	Blobs  blob.Store
	Sealer seal.Sealer
	Signer *events.Signer
	Minter *identity.Minter
	AWS    *awsiam.Verifier // nil: agents cannot prove an AWS role
	OIDC   *oidc.Verifier   // nil: agents cannot prove who they are by OIDC tokens
	// Access is a way of runners' own to queues and logs; nil: they use the API.
	Access identity.Granter
	// Artifacts is where artifacts are; nil: in the control plane's own registry.
	Artifacts Artifacts
	// Direct says that agents beside this control plane serve direct runners.
	Direct bool
	// Records is where runners write logs beside the API; nil: nowhere.
	Records LogRecords
	IDs     fairlead.IDSource
	Now     func() time.Time
	Random  func() float64 // in [0, 1), varies pauses; nil: math/rand
	Logger  *slog.Logger
	Terms   job.Terms // of jobs; the zero value is the default
	// Parallelism is how many components of one deployment are at work at once; 0:
	// deployment.Parallelism, which is more than the simulator's apps have.
	Parallelism int
	Intervals   Intervals
}

// Control is the control plane. Safe for concurrent use; many may share one
// table.
type Control struct {
	Deps
	hub *hub
	// recheck is how long a waiter trusts that it would be told: a change that
	// another process made is seen after it at the latest.
	recheck time.Duration
	// holdUntil is until when no lease is taken for expired, in Unix nanoseconds.
	holdUntil atomic.Int64
	// watched is when the runners were looked at last, in Unix nanoseconds.
	watched  atomic.Int64
	versions *lru.Cache[fairlead.VersionID, Version] // that were read and verified
}

// New returns a Control on its parts.
func New(p Deps) *Control {
	if p.Random == nil {
		p.Random = rand.Float64
	}
	versions, err := lru.New[fairlead.VersionID, Version](keptVersions)
	if err != nil {
		panic(err) // of a size below 1
	}
	return &Control{Deps: p, hub: newHub(), recheck: 2 * time.Second, versions: versions}
}

// The bounds on repeating a commit. A conflict means that somebody else came
// first, so with n writers one of them gets through each round; 12 rounds
// outlast any number that one install or job has. An unclear outcome is asked
// again with the same token, which cannot do it twice.
const (
	maxConflicts = 12
	maxUnclear   = 4
)

// unit is one use case's commit in the making. Records that were put are read
// back through it, so that a use case sees its own changes.
type unit struct {
	store.Tx
	c          *Control
	ctx        context.Context
	now        time.Time
	again      bool // it has been tried before, and may have happened
	wakes      []store.Job
	endedLogs  []endedLog
	whole      *store.WholeLog    // what is said of the log that this commit's death leaves
	over       []store.Deployment // that this commit ends
	components map[string]store.Stored[store.Component]
	slots      map[fairlead.RunnerID]store.Stored[store.RunnerSlots]
	runner     *store.Stored[store.Runner]        // that the install of this commit has just been given
	outputs    map[string]map[string]store.Output // that were read from blobs, by key
	spent      []string                           // blobs that nothing names after this commit
}

// endedLog is a log whose attempt is over without a report of its step.
type endedLog struct {
	job fairlead.JobID
	store.OpenLog
}

// errTorn says that records which were read one after the other do not fit
// together, because somebody committed in between. A commit would have shown it;
// whoever comes to no commit because of it says so, and transact reads anew.
var errTorn = errors.New("what was read has changed meanwhile")

// transact runs fn and commits what it put, again and again until there is no
// conflict. fn must be able to run more than once: whatever names the thing it
// makes is chosen outside. What goes out after the commit is done here.
func (c *Control) transact(ctx context.Context, op string, fn func(*unit) error) error {
	for try := range maxConflicts {
		u := &unit{c: c, ctx: ctx, now: c.now(), again: try > 0, components: map[string]store.Stored[store.Component]{}, slots: map[fairlead.RunnerID]store.Stored[store.RunnerSlots]{}}
		err := fn(u)
		switch {
		case err == nil && u.Empty():
			return nil
		case err == nil:
			if err = c.commit(ctx, &u.Tx); err == nil {
				c.after(u)
				return nil
			}
			if _, ok := errors.AsType[*engine.ConflictError](err); !ok {
				return fmt.Errorf("%s: %w", op, err)
			}
		case !errors.Is(err, errTorn):
			return err
		}
		if try > 2 {
			pause(ctx, time.Duration((1+c.Random()*float64(int(4)<<min(try, 5)))*float64(time.Millisecond)))
		}
	}
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: "too-many-conflicts",
		Message: op + ": others kept changing the same records", Hint: "Repeat the request."}
}

// now is the time of what happens now, as it is stored: to the millisecond.
func (c *Control) now() time.Time { return c.Now().UTC().Truncate(time.Millisecond) }

// commit asks again, with the same token, for as long as the outcome is unclear.
func (c *Control) commit(ctx context.Context, tx *store.Tx) error {
	token := c.IDs(prefixCommit)
	var err error
	for try := range maxUnclear {
		err = c.Store.Commit(ctx, token, tx)
		if err == nil || ctx.Err() != nil || fairlead.KindOf(err) == fairlead.KindTooLarge {
			return err // the last is decided before an engine is asked
		}
		if _, ok := errors.AsType[*engine.ConflictError](err); ok {
			return err
		}
		pause(ctx, time.Duration(1<<(2*try))*time.Millisecond)
	}
	return err
}

// prefixCommit begins the tokens by which an engine knows a repeated commit.
const prefixCommit = "com"

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// after sends what a commit promised: wake-ups to runners, notices to waiters.
// Nothing here may fail the use case: it has happened. The context of the
// request does not matter any more either.
func (c *Control) after(u *unit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), 10*time.Second)
	defer cancel()
	for _, l := range u.endedLogs {
		if err := c.endGivenUp(ctx, l); err != nil {
			c.Logger.Warn("the log of a dead attempt stays open until the sweep ends it", "job", l.job, "epoch", l.Epoch, "error", err)
		}
	}
	for _, j := range u.wakes {
		c.wake(ctx, j)
	}
	for _, d := range u.over {
		c.dropPlans(ctx, d)
	}
	c.dropBlobs(ctx, u.spent)
	for _, s := range u.Subjects() {
		c.hub.publish(s)
	}
}

// endGivenUp ends the log of an attempt that was given up. It counts as whole
// only if what is stored is what its writer had noted at its end.
func (c *Control) endGivenUp(ctx context.Context, l endedLog) error {
	s := joblog.Stream{Job: string(l.job), Epoch: l.Epoch}
	truncated := true
	if l.Whole != nil {
		chunk, err := c.Log.Read(ctx, s, 0, 1) // only its Info is wanted
		if err != nil && !errors.Is(err, joblog.ErrNotFound) {
			return fmt.Errorf("end log %s: %w", s, err)
		}
		truncated = chunk.Info.Size != l.Whole.Size || chunk.Info.CRC32 != l.Whole.CRC32
	}
	if err := c.Log.End(ctx, s, truncated); err != nil && !errors.Is(err, joblog.ErrNotFound) {
		return fmt.Errorf("end log %s: %w", s, err)
	}
	return nil
}

// wake sends the wake-up of a queued job. A failure costs latency only: the
// sweep sends it again.
func (c *Control) wake(ctx context.Context, j store.Job) {
	if err := sendWake(ctx, c.Queue, c.Now(), j); err != nil {
		c.Logger.Warn("a wake-up was not sent; the sweep sends it again", "job", j.ID, "error", err)
	}
}

func queueName(id fairlead.RunnerID) string { return "runner-" + string(id) }

// applyJob writes a job after event moved it, with everything that follows: the
// wake-up, the end of its log, and the place of its deployment.
func (u *unit) applyJob(r store.Stored[store.Job], e job.Event) (store.Stored[store.Job], error) {
	e.At = u.now
	before := r.V.State
	next, err := job.Apply(r.V.Job, e)
	if err != nil {
		return r, jobError(err)
	}
	r.V.Job = next
	if before.Leased() && !next.State.Leased() && next.Lease.Epoch > 0 && e.Kind != job.Succeed && e.Kind != job.Fail && e.Kind != job.Stopped {
		open := store.OpenLog{Epoch: next.Lease.Epoch, Whole: u.whole}
		u.endedLogs = append(u.endedLogs, endedLog{r.V.ID, open})
		r.V.OpenLogs = append(slices.Clone(r.V.OpenLogs), open)
	}
	if r.V.Slot && !next.State.Leased() {
		r.V.Slot = false
		if err := u.freeSlot(r.V.Runner, r.V.ID); err != nil {
			return r, err
		}
	}
	u.PutJob(r)
	if next.State == job.Queued {
		u.wakes = append(u.wakes, r.V)
	}
	return r, nil
}

// jobError turns what package job refuses into errors with a kind.
func jobError(err error) error {
	if e, ok := errors.AsType[*job.StaleError](err); ok {
		return &fairlead.Error{Kind: fairlead.KindStale, Code: "stale-epoch", Message: e.Error(),
			Hint: "Somebody else has the job, or it is over. Stop working on it.", Err: err}
	}
	if e, ok := errors.AsType[*job.TransitionError](err); ok {
		return &fairlead.Error{Kind: fairlead.KindConflict, Code: "job-state", Message: e.Error(), Err: err}
	}
	return err
}
