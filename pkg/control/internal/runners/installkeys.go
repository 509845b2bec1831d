package runners

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// maxKeysWanted limits the installs whose keys a runner is asked for at once. Others are asked for when a person needs their keys,
// or report them with their first job.
const maxKeysWanted = 20

// undecidedFor is how long a new agent has to report whether it has a seed. An agent needs two heartbeats, one after the other.
const undecidedFor = 2 * time.Minute

// KeyExpected reports whether a runner with a seed serves the install, or would serve it, so that its key is or will be known.
func KeyExpected(tx *kernel.Tx, in store.Install) (bool, error) {
	if in.Key != nil {
		return true, nil
	}
	r, ok, err := WouldServe(tx, in)
	return ok && r.Seeded, err
}

// MustEncrypt reports whether the control plane refuses the install's secrets in the clear: its runner has a seed, or is the runner of
// a stack that has not reported yet whether it has one. The customer makes the seed with the stack, so a secret that comes earlier would
// be one that the control plane can read.
func MustEncrypt(tx *kernel.Tx, in store.Install) (bool, error) {
	if in.Key != nil {
		return true, nil
	}
	r, ok, err := WouldServe(tx, in)
	if err != nil || !ok || r.Seeded {
		return ok && r.Seeded, err
	}
	stack, err := store.Optional(tx.Store.Stack(tx.Ctx, r.ID))
	if err != nil || stack.V.Runner == "" {
		return false, err
	}
	if stack.V.Report == nil {
		return true, nil
	}
	return undecided(tx, r.ID)
}

// KeyUndecided reports whether a new agent of the install's runner has not reported yet whether it has a seed. A person waits with
// secrets until then: in the clear they would come too early.
func KeyUndecided(tx *kernel.Tx, in store.Install) (bool, error) {
	r, ok, err := WouldServe(tx, in)
	if err != nil || !ok {
		return false, err
	}
	return undecided(tx, r.ID)
}

func undecided(tx *kernel.Tx, runner fairlead.RunnerID) (bool, error) {
	sessions, err := tx.Store.Sessions(tx.Ctx, runner, undecidedSessions)
	return slices.ContainsFunc(sessions, func(s store.Stored[store.Session]) bool {
		return !s.V.Seedless && !s.V.Ended && tx.Now.Sub(s.V.Opened) < undecidedFor
	}), err
}

// undecidedSessions is how many of the newest sessions of a runner are asked.
const undecidedSessions = 10

// WantKey asks the agents of the install's runner for its key, if they have a seed and have not reported the key.
func WantKey(tx *kernel.Tx, in store.Install) error {
	if in.Key != nil {
		return nil
	}
	would, ok, err := WouldServe(tx, in)
	if err != nil || !ok || !would.Seeded {
		return err
	}
	r, err := tx.Store.Runner(tx.Ctx, would.Org, would.Name)
	if err != nil {
		return err
	}
	tx.WakeForKeys(r.V.ID) // also if the key is wanted already: the earlier wake-up may be lost
	if want(&r.V, in) {
		tx.PutRunner(r)
	}
	return nil
}

// want adds the install to those whose keys are wanted. It returns false if it is there already, or the list is full.
func want(r *store.Runner, in store.Install) bool {
	if len(r.KeysWanted) >= maxKeysWanted || slices.ContainsFunc(r.KeysWanted, func(w store.WantedKey) bool { return w.Install == in.ID }) {
		return false
	}
	r.KeysWanted = append(r.KeysWanted, store.WantedKey{Install: in.ID, Org: in.Org, Name: in.Name})
	return true
}

// NoteSeed records that an agent of the runner has a seed, and the identifiers of its seeds if it reports them. It returns the installs whose keys are wanted: at most the first ones of
// those that use the runner. The others report their keys with their next jobs.
func (f *Fleet) NoteSeed(ctx context.Context, id fairlead.RunnerID, seeds []string) (wanted []fairlead.InstallID, err error) {
	err = f.Transact(ctx, "note the seed of runner "+string(id), func(tx *kernel.Tx) error {
		n, err := tx.Store.RunnerName(ctx, id)
		if err != nil {
			return err
		}
		r, err := tx.Store.Runner(ctx, n.V.Org, n.V.Name)
		if err != nil {
			return err
		}
		changed := false
		if !r.V.Seeded {
			r.V.Seeded = true
			if err := EachUse(tx, id, func(_ store.RunnerUse, in store.Install) bool {
				if in.Key == nil {
					want(&r.V, in)
				}
				return len(r.V.KeysWanted) < maxKeysWanted
			}); err != nil {
				return err
			}
			changed = true
		}
		if len(seeds) > 0 && !slices.Equal(r.V.Seeds, seeds) {
			r.V.Seeds, changed = seeds, true
		}
		if changed {
			tx.PutRunner(r)
		}
		wanted = wantedIDs(r.V.KeysWanted)
		return nil
	})
	return wanted, err
}

func wantedIDs(all []store.WantedKey) (ids []fairlead.InstallID) {
	for _, w := range all {
		ids = append(ids, w.Install)
	}
	return ids
}

// KeepKey records a reported key of the install. A key that differs from the recorded one does not replace it, because it may come
// from another agent, or from a person who wants to read what others encrypt: a person compares and accepts it. KeepKey returns false
// if the record stays as it is.
func KeepKey(in *store.Install, k store.InstallKey) bool {
	switch {
	case in.Key == nil:
		in.Key = &k
	case in.Key.Public == k.Public, in.Key.Changed != nil && in.Key.Changed.Public == k.Public:
		return false
	default:
		now := *in.Key
		now.Changed = &k
		in.Key = &now
	}
	return true
}

// NeedSeeds refuses a runner that cannot decrypt what the install's present runner has encrypted: the first job would fail on it. The
// check relies on what agents report, so it only saves time; a step refuses a value that it cannot decrypt. Agents of earlier releases
// do not report their seeds: then NeedSeeds returns nil.
func NeedSeeds(tx *kernel.Tx, in store.Install, to store.Runner) error {
	if in.Key == nil || in.Bound == nil || in.Bound.Runner == to.ID {
		return nil
	}
	old, err := store.Optional(tx.Store.Runner(tx.Ctx, in.Bound.Org, in.Bound.Name))
	if err != nil || old.V.ID != in.Bound.Runner || to.Seeded && len(to.Seeds) == 0 {
		return err
	}
	if !slices.ContainsFunc(old.V.Seeds, func(id string) bool { return !slices.Contains(to.Seeds, id) }) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeSeedMissing,
		Message: fmt.Sprintf("runner %s cannot decrypt the values of install %s: it lacks a seed of runner %s", to.Name, in.Name, old.V.Name),
		Hint: fmt.Sprintf("Ask the customer to add each line of the seed file of runner %s below the seed of runner %s, and try again. "+
			"If the seed is lost: {install.lose-key}, then set each secret again.", old.V.Name, to.Name),
		Args: fairlead.Args{Install: in.Name}}
}
