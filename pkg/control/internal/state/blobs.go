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

// Prefixes of blob keys.
const (
	plansPrefix  = "plan/"  // plan/<plan job>/<digest>
	statesPrefix = "state/" // state/<install>/<component>/<number>-<name>
)

// unnamedFor is how long a blob is kept that no record refers to. A request that still
// runs may be about to commit the reference. unnamedFor is far longer than any request.
const unnamedFor = time.Hour

// CollectBlobs deletes blobs that no record refers to. Such blobs exist because a process
// writes a blob before the commit that refers to the blob, and deletes the blob after the
// commit that drops the reference. The process may die in between.
//
// The parameter before is the result of the previous call. CollectBlobs deletes only blobs
// that were unreferenced at the previous call and are unreferenced now. The time between
// two calls must be longer than the longest request, because the blob of a running
// request may not be referenced yet. Measure this time by a clock that stops while the
// machine sleeps.
//
// CollectBlobs lists all blobs, and reads one record for each plan and for each component
// with a state. It starts at a random blob and deletes each blob when it finds it. If ctx
// ends, it returns the error of ctx. So repeated short calls reach all blobs.
func (st *States) CollectBlobs(ctx context.Context, before []string) (unnamed []string, err error) {
	return st.collectBlobs(ctx, func(key string) bool {
		_, seen := slices.BinarySearch(before, key)
		return seen
	})
}

// CollectOldBlobs is CollectBlobs for callers that keep no state between calls. It
// deletes unreferenced blobs whose key is older than an hour. Use it only where no
// request can take an hour, even if the machine sleeps.
func (st *States) CollectOldBlobs(ctx context.Context) error {
	_, err := st.collectBlobs(ctx, func(key string) bool {
		made, known := blobMade(key)
		return known && st.Now().Sub(made) > unnamedFor
	})
	return err
}

// collectBlobs deletes the unreferenced blobs for which the function past returns true.
// It returns the keys of the other unreferenced blobs, sorted.
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

// blobMade returns the creation time of a blob from its key, or false if the key contains
// no time. For a plan it returns the creation time of the plan's job, which is earlier.
// This is safe, because a plan is referenced at least until its job has ended.
func blobMade(key string) (time.Time, bool) {
	if of, ok := strings.CutPrefix(key, plansPrefix); ok {
		id, _, _ := strings.Cut(of, "/")
		return fairlead.TimeOf(id)
	}
	if strings.HasPrefix(key, catalog.ValuesPrefix) {
		return fairlead.TimeOf(path.Base(key))
	}
	if of, ok := strings.CutPrefix(key, stagedPrefix); ok {
		id, _, _ := strings.Cut(of, "/") // earlier than the part, which is named while its attempt can commit it
		return fairlead.TimeOf(id)
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
	case strings.HasPrefix(key, stagedPrefix):
		return st.partNamed(ctx, key)
	case strings.HasPrefix(key, catalog.ValuesPrefix):
		parts := strings.Split(strings.TrimPrefix(key, catalog.ValuesPrefix), "/")
		if len(parts) != 3 {
			return true, nil // unknown kind of blob: keep it
		}
		r, err := st.Store.Component(ctx, fairlead.InstallID(parts[0]), parts[1])
		return r.V.VarsBlob == key || r.V.OutputsBlob == key, err
	case strings.HasPrefix(key, statesPrefix):
		parts := strings.Split(strings.TrimPrefix(key, statesPrefix), "/")
		if len(parts) != 3 {
			return true, nil // unknown kind of blob: keep it
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

// planNamed reports whether a job may still execute the plan.
func (st *States) planNamed(ctx context.Context, id fairlead.JobID, digest string) (bool, error) {
	r, err := store.Optional(st.Store.Job(ctx, id))
	if err != nil || r.Version > 0 && !r.V.State.Final() {
		return true, err
	}
	if r.V.Plan == nil || strings.TrimPrefix(r.V.Plan.Digest, "sha256:") != digest || r.V.Deployment == "" {
		return false, nil // the plan is from an attempt that did not succeed
	}
	d, err := st.Store.Deployment(ctx, r.V.Deployment)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return false, nil
	}
	return !d.V.State.Final(), err
}
