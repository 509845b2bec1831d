package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// What the keys of blobs begin with.
const (
	plansPrefix  = "plan/"  // plan/<plan job>/<digest>
	statesPrefix = "state/" // state/<install>/<component>/<number>-<name>
)

// CollectBlobs removes blobs that no record names: a blob is put before the
// commit that names it, and removed after the commit that forgets it, and
// whoever does so may die in between. before is what the call before this one
// returned; only what nothing named then, and nothing names now, is removed.
// Keep at least as much time between two calls as a request may take: a blob
// that was just put is not named yet.
//
// It lists all blobs and reads one record for each plan and for each component
// with a state.
func (c *Control) CollectBlobs(ctx context.Context, before []string) (unnamed []string, err error) {
	keys, err := c.Blobs.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("collect blobs: %w", err)
	}
	heads := map[string]store.StateHead{} // by install and component
	var remove []string
	for _, k := range keys {
		named, err := c.blobNamed(ctx, k, heads)
		if err != nil {
			return nil, fmt.Errorf("collect blobs: %w", err)
		}
		_, old := slices.BinarySearch(before, k)
		switch {
		case named:
		case old:
			remove = append(remove, k)
		default:
			unnamed = append(unnamed, k) // in order, as the keys are
		}
	}
	c.dropBlobs(ctx, remove)
	return unnamed, nil
}

func (c *Control) blobNamed(ctx context.Context, key string, heads map[string]store.StateHead) (bool, error) {
	switch {
	case strings.HasPrefix(key, plansPrefix):
		id, digest, _ := strings.Cut(strings.TrimPrefix(key, plansPrefix), "/")
		return c.planNamed(ctx, fairlead.JobID(id), digest)
	case strings.HasPrefix(key, statesPrefix):
		parts := strings.Split(strings.TrimPrefix(key, statesPrefix), "/")
		if len(parts) != 3 {
			return true, nil // not ours to judge
		}
		of := parts[0] + "/" + parts[1]
		head, ok := heads[of]
		if !ok {
			r, err := c.Store.State(ctx, fairlead.InstallID(parts[0]), parts[1])
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
func (c *Control) planNamed(ctx context.Context, id fairlead.JobID, digest string) (bool, error) {
	r, err := c.Store.Job(ctx, id)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return false, nil
	}
	if err != nil || !r.V.State.Final() {
		return true, err
	}
	if r.V.Plan == nil || strings.TrimPrefix(r.V.Plan.Digest, "sha256:") != digest || r.V.Deployment == "" {
		return false, nil // an attempt's that came to nothing
	}
	d, err := c.Store.Deployment(ctx, r.V.Deployment)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return false, nil
	}
	return !d.V.State.Final(), err
}
