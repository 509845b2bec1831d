// Package kernel is what every use case stands on: one commit with its repetition,
// what goes out after it, leases, requests that are repeated, and how a request
// waits. It knows no use case.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// Artifacts is a registry of artifacts beside the control plane's own, with
// logins that it gives out. Safe for concurrent use.
type Artifacts interface {
	// Host is the registry's, with its port if it is not that of HTTPS.
	Host() string
	// Repository names the repository of an app's component.
	Repository(app fairlead.AppID, component string) string
	// OpenForPush makes the repositories of the components, unless they are
	// there, and returns a login that pushes to the app's and to no other. It
	// may be repeated.
	OpenForPush(ctx context.Context, app fairlead.AppID, components []string) (identity.Login, error)
	// Login returns a login that may do in the registry what a may.
	Login(ctx context.Context, a identity.Access) (identity.Login, error)
}

// LogRecords keeps a place for each install where its runner writes logs that
// reach the control plane by another way than its API. Safe for concurrent use.
type LogRecords interface {
	// Make makes the place; one that is there is no error.
	Make(ctx context.Context, install fairlead.InstallID) error
	// Remove removes it with all that was written; one that is gone is no error.
	Remove(ctx context.Context, install fairlead.InstallID) error
}

// Kernel is what every use case stands on: the parts, the commit with what goes
// out after it, and how a request waits. Safe for concurrent use.
type Kernel struct {
	Deps
	hub *hub
	// Recheck is how long a waiter trusts that it would be told: a change that
	// another process made is seen after it at the latest.
	Recheck time.Duration
	// Memo keeps what rooms have read and verified, by keys of types of their own: at
	// most 64 of them, each of at most 64 KiB before it was parsed.
	Memo *lru.Cache[any, any]
	// holdUntil is until when no lease is taken for expired, in Unix nanoseconds.
	holdUntil atomic.Int64
}

// New returns a Kernel on its parts.
func New(p Deps) *Kernel {
	if p.Random == nil {
		p.Random = rand.Float64
	}
	memo, err := lru.New[any, any](64)
	if err != nil {
		panic(err) // of a size below 1
	}
	return &Kernel{Deps: p, hub: newHub(), Recheck: 2 * time.Second, Memo: memo}
}

// The bounds on repeating a commit. A conflict means that somebody else came
// first, so with n writers one of them gets through each round; 12 rounds
// outlast any number that one install or job has. An unclear outcome is asked
// again with the same token, which cannot do it twice.
const (
	maxConflicts = 12
	maxUnclear   = 4
)

// Tx is one use case's commit in the making. Components and slots that were put are
// read back through it, so that a use case sees its own changes.
type Tx struct {
	store.Tx
	*Kernel
	Ctx        context.Context
	Now        time.Time
	Again      bool                               // it has been tried before, and may have happened
	Given      *store.Stored[store.Runner]        // that the install of this commit has just been given
	Outputs    map[string]map[string]store.Output // that were read from blobs, by key
	components map[string]store.Stored[store.Component]
	slots      map[fairlead.RunnerID]store.Stored[store.RunnerSlots]
	hooks      []func(context.Context) // that run first after the commit
	wakes      []store.Job             // whose runners are woken after it
	spent      []string                // blobs that nothing names after it
}

// Reading returns a Tx that is never committed, for what reads in and out of
// commits.
func (k *Kernel) Reading(ctx context.Context) *Tx {
	return &Tx{Kernel: k, Ctx: ctx, Now: k.Instant(), components: map[string]store.Stored[store.Component]{}, slots: map[fairlead.RunnerID]store.Stored[store.RunnerSlots]{}}
}

// Deleted returns the error of reading what is to be deleted; nil if the commit has
// been tried before, and may have deleted it.
func (tx *Tx) Deleted(err error) error {
	if tx.Again && fairlead.KindOf(err) == fairlead.KindNotFound {
		return nil
	}
	return err
}

// OnCommit has fn run once the commit has happened, before anybody is woken for it.
// The context is not that of the request, which does not matter any more.
func (tx *Tx) OnCommit(fn func(context.Context)) { tx.hooks = append(tx.hooks, fn) }

// Wake has the runner of a queued job woken after the commit.
func (tx *Tx) Wake(j store.Job) { tx.wakes = append(tx.wakes, j) }

// Drop has blobs removed that nothing names after the commit. Empty keys are none.
func (tx *Tx) Drop(keys ...string) { tx.spent = append(tx.spent, keys...) }

// Component reads a component, as this commit leaves it.
func (tx *Tx) Component(id fairlead.InstallID, name string) (store.Stored[store.Component], error) {
	if k, ok := tx.components[name]; ok {
		return k, nil
	}
	return tx.Store.Component(tx.Ctx, id, name)
}

// Components lists an install's components, as this commit leaves them.
func (tx *Tx) Components(id fairlead.InstallID) ([]store.Stored[store.Component], error) {
	all, err := tx.Store.Components(tx.Ctx, id)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, k := range all {
		seen[k.V.Name] = true
		if mine, ok := tx.components[k.V.Name]; ok && mine.V.Install == id {
			all[i] = mine
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tx.components)) {
		if k := tx.components[name]; !seen[name] && k.V.Install == id {
			all = append(all, k)
		}
	}
	return all, nil
}

// PutComponent writes a component, which changes now.
func (tx *Tx) PutComponent(k store.Stored[store.Component]) {
	k.V.Updated = tx.Now
	tx.components[k.V.Name] = k
	tx.Tx.PutComponent(k)
}

// SlotsOf reads the slots of a runner, as this commit leaves them.
func (tx *Tx) SlotsOf(runner fairlead.RunnerID) (store.Stored[store.RunnerSlots], error) {
	if slots, ok := tx.slots[runner]; ok {
		return slots, nil
	}
	return tx.Store.RunnerSlots(tx.Ctx, runner)
}

// PutSlots writes the slots of a runner.
func (tx *Tx) PutSlots(slots store.Stored[store.RunnerSlots]) {
	tx.slots[slots.V.Runner] = slots
	tx.Tx.PutRunnerSlots(slots)
}

// ErrTorn says that records which were read one after the other do not fit
// together, because somebody committed in between. A commit would have shown it;
// whoever comes to no commit because of it says so, and transact reads anew.
var ErrTorn = errors.New("what was read has changed meanwhile")

// Transact runs fn and commits what it put, again and again until there is no
// conflict. fn must be able to run more than once: whatever names the thing it
// makes is chosen outside. What goes out after the commit is done here.
func (k *Kernel) Transact(ctx context.Context, op string, fn func(*Tx) error) error {
	for try := range maxConflicts {
		tx := k.Reading(ctx)
		tx.Again = try > 0
		err := fn(tx)
		switch {
		case err == nil && tx.Empty():
			return nil
		case err == nil:
			if err = k.Commit(ctx, &tx.Tx); err == nil {
				k.after(tx)
				return nil
			}
			if _, ok := errors.AsType[*engine.ConflictError](err); !ok {
				return fmt.Errorf("%s: %w", op, err)
			}
		case !errors.Is(err, ErrTorn):
			return err
		}
		if try > 2 {
			Pause(ctx, time.Duration((1+k.Random()*float64(int(4)<<min(try, 5)))*float64(time.Millisecond)))
		}
	}
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeTooManyConflicts,
		Message: op + ": others kept changing the same records", Hint: "Repeat the request."}
}

// Instant is the time of what happens now, as it is stored: to the millisecond.
func (k *Kernel) Instant() time.Time { return k.Now().UTC().Truncate(time.Millisecond) }

// Commit asks again, with the same token, for as long as the outcome is unclear.
func (k *Kernel) Commit(ctx context.Context, tx *store.Tx) error {
	token := k.IDs(PrefixCommit)
	var err error
	for try := range maxUnclear {
		err = k.Store.Commit(ctx, token, tx)
		if err == nil || ctx.Err() != nil || fairlead.KindOf(err) == fairlead.KindTooLarge {
			return err // the last is decided before an engine is asked
		}
		if _, ok := errors.AsType[*engine.ConflictError](err); ok {
			return err
		}
		Pause(ctx, time.Duration(1<<(2*try))*time.Millisecond)
	}
	return err
}

// PrefixCommit begins the tokens by which an engine knows a repeated commit.
const PrefixCommit = "com"

func Pause(ctx context.Context, d time.Duration) {
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
func (k *Kernel) after(tx *Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.Ctx), 10*time.Second)
	defer cancel()
	for _, hook := range tx.hooks {
		hook(ctx)
	}
	for _, j := range tx.wakes {
		k.wake(ctx, j)
	}
	k.DropBlobs(ctx, tx.spent)
	for _, s := range tx.Subjects() {
		k.hub.publish(s)
	}
}

// wake sends the wake-up of a queued job. A failure costs latency only: the
// sweep sends it again.
func (k *Kernel) wake(ctx context.Context, j store.Job) {
	if err := SendWake(ctx, k.Queue, k.Now(), j); err != nil {
		k.Logger.Warn("a wake-up was not sent; the sweep sends it again", "job", j.ID, "error", err)
	}
}

func QueueName(id fairlead.RunnerID) string { return "runner-" + string(id) }

// SendWake sends the wake-up of a queued job to its runner.
func SendWake(ctx context.Context, q queue.Queue, now time.Time, j store.Job) error {
	delay := min(max(0, j.NotBefore.Sub(now)), queue.MaxDelay)
	if err := q.Send(ctx, QueueName(j.Runner), events.Wake{Job: j.ID}.Encode(), delay); err != nil {
		return fmt.Errorf("wake runner %s for job %s: %w", j.Runner, j.ID, err)
	}
	return nil
}

// HoldLeases keeps the sweep from taking a lease for expired until it had time
// to be renewed from now on. A control plane that is one process calls it when
// it starts: nobody could renew while it was down, and steps that are alive
// do so first thing.
func (k *Kernel) HoldLeases() {
	k.holdUntil.Store(k.Now().Add(k.Terms.OrDefault().LeaseTTL).UnixNano())
}

// HeldUntil is until when no lease is taken for expired.
func (k *Kernel) HeldUntil() time.Time { return time.Unix(0, k.holdUntil.Load()) }
