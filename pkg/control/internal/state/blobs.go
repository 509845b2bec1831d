package state

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// What the keys of blobs begin with.
const (
	plansPrefix  = "plan/"  // plan/<plan job>/<digest>
	statesPrefix = "state/" // state/<install>/<component>/<number>-<name>
)

// unnamedFor is how long a blob that nothing names is kept for the commit that may
// be about to name it: far longer than any request.
const unnamedFor = time.Hour

// CollectBlobs removes blobs that no record names: a blob is put before the
// commit that names it, and removed after the commit that forgets it, and
// whoever does so may die in between. before is what the call before this one
// returned; only what nothing named then, and nothing names now, is removed.
// Keep at least as much time between two calls as a request may take, by a clock
// that stands still while the machine sleeps: a blob that was just put is not
// named yet.
//
// It lists all blobs and reads one record for each plan and for each component
// with a state, beginning anywhere. When ctx ends what was found until then is
// removed, and the error is that of ctx: calls that are cut short come round to
// all of them.
func (st *States) CollectBlobs(ctx context.Context, before []string) (unnamed []string, err error) {
	return st.collectBlobs(ctx, func(key string) bool {
		_, seen := slices.BinarySearch(before, key)
		return seen
	})
}

// CollectOldBlobs is CollectBlobs for who keeps nothing between two calls: what
// was put more than an hour ago, as its key says, and is not named is removed.
// It is for where no request can take that long, whatever sleeps.
func (st *States) CollectOldBlobs(ctx context.Context) error {
	_, err := st.collectBlobs(ctx, func(key string) bool {
		made, known := blobMade(key)
		return known && st.Now().Sub(made) > unnamedFor
	})
	return err
}

// collectBlobs removes blobs that no record names, if none is about to. It
// returns the others, sorted.
func (st *States) collectBlobs(ctx context.Context, past func(key string) bool) (unnamed []string, err error) {
	keys, err := st.Blobs.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("collect blobs: %w", err)
	}
	heads := map[string]store.StateHead{} // by install and component
	first := int(st.Random() * float64(len(keys)))
	for _, k := range slices.Concat(keys[first:], keys[:first]) {
		named, err := st.blobNamed(ctx, k, heads)
		if err != nil {
			return nil, fmt.Errorf("collect blobs: %w", err)
		}
		switch {
		case named:
		case past(k):
			st.DropBlobs(ctx, []string{k})
		default:
			unnamed = append(unnamed, k)
		}
	}
	slices.Sort(unnamed)
	return unnamed, nil
}

// blobMade returns when a blob was made, as its key says, or earlier: of a plan
// it is when its job was. That does no harm, as a plan is named for as long as
// its job may end with it.
func blobMade(key string) (time.Time, bool) {
	if of, ok := strings.CutPrefix(key, plansPrefix); ok {
		id, _, _ := strings.Cut(of, "/")
		return fairlead.TimeOf(id)
	}
	if strings.HasPrefix(key, catalog.ValuesPrefix) {
		return fairlead.TimeOf(path.Base(key))
	}
	if !strings.HasPrefix(key, statesPrefix) {
		return time.Time{}, false
	}
	_, id, _ := strings.Cut(path.Base(key), "-")
	return fairlead.TimeOf(id)
}

func (st *States) blobNamed(ctx context.Context, key string, heads map[string]store.StateHead) (bool, error) {
	switch {
	case strings.HasPrefix(key, plansPrefix):
		id, digest, _ := strings.Cut(strings.TrimPrefix(key, plansPrefix), "/")
		return st.planNamed(ctx, fairlead.JobID(id), digest)
	case strings.HasPrefix(key, catalog.ValuesPrefix):
		parts := strings.Split(strings.TrimPrefix(key, catalog.ValuesPrefix), "/")
		if len(parts) != 3 {
			return true, nil // not ours to judge
		}
		r, err := st.Store.Component(ctx, fairlead.InstallID(parts[0]), parts[1])
		return r.V.VarsBlob == key || r.V.OutputsBlob == key, err
	case strings.HasPrefix(key, statesPrefix):
		parts := strings.Split(strings.TrimPrefix(key, statesPrefix), "/")
		if len(parts) != 3 {
			return true, nil // not ours to judge
		}
		of := parts[0] + "/" + parts[1]
		head, ok := heads[of]
		if !ok {
			r, err := st.Store.State(ctx, fairlead.InstallID(parts[0]), parts[1])
			if err != nil {
				return false, err
			}
			head, heads[of] = r.V, r.V
		}
		return head.Blob == key || slices.Contains(head.History, key), nil
	}
	return true, nil
}

// planNamed reports whether somebody may still carry the plan out.
func (st *States) planNamed(ctx context.Context, id fairlead.JobID, digest string) (bool, error) {
	r, err := store.Optional(st.Store.Job(ctx, id))
	if err != nil || r.Version > 0 && !r.V.State.Final() {
		return true, err
	}
	if r.V.Plan == nil || strings.TrimPrefix(r.V.Plan.Digest, "sha256:") != digest || r.V.Deployment == "" {
		return false, nil // an attempt's that came to nothing
	}
	d, err := st.Store.Deployment(ctx, r.V.Deployment)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return false, nil
	}
	return !d.V.State.Final(), err
}
