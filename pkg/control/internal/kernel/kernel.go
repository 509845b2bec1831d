// Package kernel holds what all use cases share: a commit with its retries, the
// notifications after a commit, leases, idempotent requests, and requests that wait. It
// does not depend on any use case.
package kernel

import (
	"context"
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/cancelmark"
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

// Deps holds the dependencies of a Control. These fields are optional: AWS, OIDC,
// Access, Artifacts, ImageBuilds, Direct, Images, Records, CancelMarks, Random, Pick, Terms, Parallelism,
// Intervals and LogBudget.
type Deps struct {
	Store  *store.Store
	Queue  queue.Queue
	Log    joblog.Log
	Blobs  blob.Store
	Sealer seal.Sealer
	// Signer signs until the first key set, and afterwards if SigningKeys is nil.
	Signer *events.Signer
	// Spare is the other key that runners pin before the first key set; nil: they pin that of Signer alone.
	Spare ed25519.PublicKey
	// SigningKeys holds the private keys of later key sets; nil: they are elsewhere.
	SigningKeys SigningKeys
	Minter      *identity.Minter
	AWS         *awsiam.Verifier // nil: agents cannot prove an AWS role
	OIDC        *oidc.Verifier   // nil: agents cannot authenticate with OIDC tokens
	// Access grants runners direct access to queues and logs; nil: they use the API.
	Access identity.Granter
	// Artifacts is an external artifact registry; nil: the control plane's own
	// registry.
	Artifacts Artifacts
	// ImageBuilds lets builds use a service that builds images; nil: their runners build
	// images.
	ImageBuilds ImageBuilds
	// Direct reports that agents beside this control plane serve direct runners.
	Direct bool
	// Images reports that this control plane serves a registry for the images of installs.
	Images bool
	// Partition is the AWS partition of this control plane, such as "aws"; "": it is not
	// on AWS. A customer's stack in another partition cannot read its image and template.
	Partition string
	// AgentURL is the URL at which agents reach this control plane, for agents that an app deploys. Only the processes that serve
	// the APIs set it, before they serve.
	AgentURL string
	// Records is where runners write logs without using the API; nil: nowhere.
	Records LogRecords
	// CancelMarks makes steps renew their leases at once when their jobs are canceled; nil:
	// a cancelation reaches a step by the answer to its renewal alone.
	CancelMarks cancelmark.Marks
	IDs         fairlead.IDSource
	Now         func() time.Time
	Random      func() float64  // in [0, 1), randomizes pauses; nil: math/rand
	Pick        func(n int) int // a number in [0, n) that cannot be guessed, for generated secrets; nil: crypto/rand
	Logger      *slog.Logger
	Terms       job.Terms // of jobs; the zero value is the default
	// Parallelism is how many components of one deployment have running jobs at once.
	// 0: deployment.Parallelism, which is more than the simulator's apps have
	// components.
	Parallelism int
	Intervals   Intervals
	// LogBudget limits the log bytes of each runner; the zero value: no limit.
	LogBudget joblog.Budget
	Quotas    fairlead.Quotas // of each org
}

// AgentFacts is what an agent must know of its control plane before its first request.
type AgentFacts struct {
	URL         string   // at which agents reach the control plane
	TrustedKeys []string // public keys, in base64, that verify job specs
}

// Artifacts is an artifact registry other than the control plane's own. It issues
// logins. Safe for concurrent use.
type Artifacts interface {
	// Host returns the registry's host, with the port unless it is 443.
	Host() string
	// Repository returns the name of the repository of an app's component.
	Repository(app fairlead.AppID, component string) string
	// OpenForPush creates the missing repositories of the components, and returns a
	// login that can push to this app's repositories only. Calling it again is safe.
	OpenForPush(ctx context.Context, app fairlead.AppID, components []string) (identity.Login, error)
	// Make creates the missing repositories of the names below an app. Calling it again is
	// safe.
	Make(ctx context.Context, app fairlead.AppID, names []string) error
	// OpenForBuild returns a login that can push only to the repository "COMPONENT/built"
	// of the app, which must exist.
	OpenForBuild(ctx context.Context, app fairlead.AppID, component string) (identity.Login, error)
	// Login returns a login with the permissions of a in the registry.
	Login(ctx context.Context, a identity.Access) (identity.Login, error)
}

// ImageBuilds grants access to a service that builds images from Dockerfiles. Safe for
// concurrent use.
type ImageBuilds interface {
	// BuildImage returns access for one attempt of a build job of the app. It permits no
	// push.
	BuildImage(ctx context.Context, app fairlead.AppID, job fairlead.JobID, epoch int64) (identity.Access, error)
}

// LogRecords keeps one place for each install, where its runner writes logs that reach
// the control plane without its API. Safe for concurrent use.
type LogRecords interface {
	// Make creates the place. It succeeds if the place exists.
	Make(ctx context.Context, install fairlead.InstallID) error
	// Remove deletes the place with its content. It succeeds if the place does not
	// exist.
	Remove(ctx context.Context, install fairlead.InstallID) error
}

// Kernel is the base of every use case: it holds the dependencies, commits and
// notifies, and lets requests wait. Safe for concurrent use.
type Kernel struct {
	Deps
	hub *hub
	// Recheck is how often a waiter reads the table without a hint. A change that
	// another process committed is seen after this time at the latest.
	Recheck time.Duration
	// Memo caches what packages have read and verified, under keys of their own types.
	// It holds at most 64 entries, each of at most 64 KiB before parsing.
	Memo *lru.Cache[any, any]
	// holdUntil is the time before which no lease counts as expired, in Unix
	// nanoseconds.
	holdUntil atomic.Int64
	signing   atomic.Pointer[readSigning]
	resent    resent
}

// New returns a Kernel with these dependencies.
func New(p Deps) *Kernel {
	if p.Random == nil {
		p.Random = rand.Float64
	}
	if p.Pick == nil {
		p.Pick = pick
	}
	memo, err := lru.New[any, any](64)
	if err != nil {
		panic(err) // only a size below 1 fails
	}
	return &Kernel{Deps: p, hub: newHub(), Recheck: 2 * time.Second, Memo: memo}
}

// pick returns a number in [0, n) that cannot be guessed.
func pick(n int) int {
	i, err := cryptorand.Int(cryptorand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic(err) // the system's source of randomness never fails
	}
	return int(i.Int64())
}

// Limits of commit retries. A conflict means that another commit came first, so in each
// round one of n writers succeeds. 12 rounds are enough for the number of writers that
// one install or job has. A commit with an unclear outcome is sent again with the same
// token, so it is applied once.
const (
	maxConflicts = 12
	maxUnclear   = 4
)

// Tx collects the writes of one use case's commit. Components and slots that were put
// are read back from it, so a use case sees its own changes.
type Tx struct {
	store.Tx
	*Kernel
	Ctx        context.Context
	Now        time.Time
	Again      bool                               // an earlier try of this commit failed, and may still have been applied
	ByRunner   string                             // operation of the runner API that ends a job, for the audit; "": the control plane acts by itself
	Given      *store.Stored[store.Runner]        // the runner that this commit binds the install to
	Outputs    map[string]map[string]store.Output // read from blobs, by blob key
	components map[string]store.Stored[store.Component]
	slots      map[fairlead.RunnerID]store.Stored[store.RunnerSlots]
	cached     map[string]any          // see Cached
	hooks      []func(context.Context) // run first after the commit
	wakes      []store.Job             // jobs whose runners are woken after the commit
	spent      []string                // keys of blobs that no row refers to after the commit
}

// Reading returns a Tx that is never committed. Functions that read take a Tx, inside
// and outside of commits.
func (k *Kernel) Reading(ctx context.Context) *Tx {
	now := k.Instant()
	return &Tx{Tx: store.Tx{By: Actor(ctx), At: now, Request: asked(ctx)}, Kernel: k, Ctx: ctx, Now: now, components: map[string]store.Stored[store.Component]{}, slots: map[fairlead.RunnerID]store.Stored[store.RunnerSlots]{}}
}

// Deleted filters the error of reading a row that the use case is about to delete. On a
// retry it turns "not found" into nil, because an earlier try of the commit may have
// deleted the row.
func (tx *Tx) Deleted(err error) error {
	if tx.Again && fairlead.KindOf(err) == fairlead.KindNotFound {
		return nil
	}
	return err
}

// OnCommit registers fn to run after the commit, before waiters are woken. fn gets a
// context that the end of the request does not cancel.
func (tx *Tx) OnCommit(fn func(context.Context)) { tx.hooks = append(tx.hooks, fn) }

// WakeForKeys registers a wake-up that asks the runner's agents for the keys of installs, sent after the commit. A failure only
// costs latency: each heartbeat asks again.
func (tx *Tx) WakeForKeys(id fairlead.RunnerID) {
	tx.hooks = append(tx.hooks, func(ctx context.Context) {
		if err := tx.Queue.Send(ctx, QueueName(id), events.Wake{Job: events.WakeForKeys}.Encode(), 0); err != nil {
			tx.Logger.Warn("cannot send a wake-up for keys of installs; the next heartbeat asks for them", "runner", id, "error", err)
		}
	})
}

// Wake registers the wake-up of a queued job's runner, sent after the commit.
func (tx *Tx) Wake(j store.Job) { tx.wakes = append(tx.wakes, j) }

// Drop registers blobs that are deleted after the commit, because no row refers to them
// then. Empty keys are ignored.
func (tx *Tx) Drop(keys ...string) { tx.spent = append(tx.spent, keys...) }

// Component reads a component. If this commit writes the component, it returns the value
// that the commit writes.
func (tx *Tx) Component(id fairlead.InstallID, name string) (store.Stored[store.Component], error) {
	if k, ok := tx.components[name]; ok {
		return k, nil
	}
	return tx.Store.Component(tx.Ctx, id, name)
}

// Components lists an install's components, with the values that this commit writes.
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

// PutComponent writes a component, and sets its time of change.
func (tx *Tx) PutComponent(k store.Stored[store.Component]) {
	k.V.Updated = tx.Now
	tx.components[k.V.Name] = k
	tx.Tx.PutComponent(k)
}

// SlotsOf reads a runner's slots. If this commit writes the slots, it returns the value
// that the commit writes.
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

// ErrTorn reports that the records which a use case read do not match, because another
// commit came between the reads. A commit detects this by its conditions. A use
// case that fails before its commit because of such records returns ErrTorn, and
// Transact runs it again.
var ErrTorn = errors.New("the records changed while they were read")

// Transact runs fn and commits what fn put. After a conflict it runs fn again, up to
// maxConflicts times, so fn must be repeatable: identifiers of new records are chosen
// outside of fn. Transact sends the notifications after the commit.
func (k *Kernel) Transact(ctx context.Context, op string, fn func(*Tx) error) error {
	for try := range maxConflicts {
		tx := k.Reading(ctx)
		tx.Again, tx.Op = try > 0, op
		err := fn(tx)
		switch {
		case err == nil && tx.Empty():
			return nil
		case err == nil:
			if err = tx.count(); err != nil {
				return err
			}
			if err = k.Commit(ctx, &tx.Tx); err == nil {
				k.after(tx)
				if by := tx.By; by != (fairlead.Actor{}) && tx.Deletes() {
					k.Logger.Info("a caller deleted records", "operation", op, "token", by.Token, "by", by.Name) // no record is left that names it
				}
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
		Message: op + ": other requests kept changing the same records", Hint: "Repeat the request."}
}

// Instant returns the current time as the table stores it: in UTC, to the millisecond.
func (k *Kernel) Instant() time.Time { return k.Now().UTC().Truncate(time.Millisecond) }

// Commit commits once. It repeats the commit with the same token while the outcome is
// unclear.
func (k *Kernel) Commit(ctx context.Context, tx *store.Tx) error {
	token := k.IDs(PrefixCommit)
	var err error
	for try := range maxUnclear {
		err = k.Store.Commit(ctx, token, tx)
		if err == nil || ctx.Err() != nil || fairlead.KindOf(err) == fairlead.KindTooLarge {
			return err // the store decides that a commit is too large before it calls the engine
		}
		if _, ok := errors.AsType[*engine.ConflictError](err); ok {
			return err
		}
		Pause(ctx, time.Duration(1<<(2*try))*time.Millisecond)
	}
	return err
}

// PrefixCommit begins the tokens by which an engine recognizes a repeated commit.
const PrefixCommit = "com"

func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// after runs the hooks of a commit, sends wake-ups to runners and notifies waiters. No
// failure here may fail the use case, because the commit has happened. For the same
// reason it ignores that the request's context was canceled.
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

// wake sends the wake-up of a queued job. A failure only costs latency: the sweep sends
// the wake-up again.
func (k *Kernel) wake(ctx context.Context, j store.Job) {
	if err := SendWake(ctx, k.Queue, k.Now(), j); err != nil {
		k.Logger.Warn("cannot send a wake-up; the sweep sends it again", "job", j.ID, "error", err)
	}
}

func QueueName(id fairlead.RunnerID) string { return "runner-" + string(id) }

// SendWake sends the wake-up of a queued job to its runner.
func SendWake(ctx context.Context, q queue.Queue, now time.Time, j store.Job) error {
	delay := min(max(0, j.NotBefore.Sub(now)), queue.MaxDelay)
	if err := queue.SendRanked(ctx, q, QueueName(j.Runner), events.Wake{Job: j.ID}.Encode(), delay, j.QueueRank()); err != nil {
		return fmt.Errorf("wake runner %s for job %s: %w", j.Runner, j.ID, err)
	}
	return nil
}

// HoldLeases makes the sweep treat no lease as expired until one lease TTL from now. A
// control plane that runs as one process calls it at start: no step could renew its
// lease while the process was down, and running steps renew theirs first.
func (k *Kernel) HoldLeases() {
	k.holdUntil.Store(k.Now().Add(k.Terms.OrDefault().LeaseTTL).UnixNano())
}

// HeldUntil returns the time before which no lease counts as expired.
func (k *Kernel) HeldUntil() time.Time { return time.Unix(0, k.holdUntil.Load()) }
