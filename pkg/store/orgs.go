package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Org is a tenant that an operator has made. The org of the first start has no record. The record of a deleted org stays, so that
// no later org has its name: a request that arrived before the deletion could have left an object under it.
type Org struct {
	fairlead.Actors
	Name    fairlead.OrgID `json:"name"`
	Created time.Time      `json:"created"`
	Deleted time.Time      `json:"deleted,omitzero"` // zero: not deleted
}

// Org returns an org by name.
func (s *Store) Org(ctx context.Context, name fairlead.OrgID) (Stored[Org], error) {
	return get[Org](ctx, s, orgKey(name), missing(fairlead.CodeOrgNotFound, string(name)))
}

// Orgs lists orgs by name, with those that were deleted, and without that of the first start.
func (s *Store) Orgs(ctx context.Context, q fairlead.PageQuery) (Page[Org], error) {
	return query[Org](ctx, s, engine.Query{Partition: orgsPartition(), After: q.After, Limit: q.Limit})
}

// OrgNames returns the names of all orgs that are not deleted: that of the first start, and those that operators have made.
func (s *Store) OrgNames(ctx context.Context) ([]fairlead.OrgID, error) {
	out := []fairlead.OrgID{fairlead.DefaultOrg}
	made, err := all[Org](ctx, s, engine.Query{Partition: orgsPartition()})
	for _, o := range made {
		if o.V.Deleted.IsZero() {
			out = append(out, o.V.Name)
		}
	}
	return out, err
}

// PutOrg writes an org.
func (t *Tx) PutOrg(r Stored[Org]) { put(t, orgKey(r.V.Name), r) }
