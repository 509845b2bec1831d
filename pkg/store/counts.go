package store

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// countedPartitions maps the end of a partition's key to the quota that limits its items.
func countedPartitions() map[string]fairlead.Quota {
	return map[string]fairlead.Quota{"APP": fairlead.QuotaApps, "INSTALL": fairlead.QuotaInstalls, "RUNNER": fairlead.QuotaRunners, "GROUP": fairlead.QuotaGroups, "RULE": fairlead.QuotaRules, "SERVICEACCOUNT": fairlead.QuotaServiceAccounts}
}

// Count is how many items of one quota an org has.
type Count struct {
	Number int `json:"number"`
}

// Counted names a count.
type Counted struct {
	Org   fairlead.OrgID
	Quota fairlead.Quota
}

// Count returns how many items of a quota an org has. An org that is older than its count
// has none: the items are counted then, which reads them all.
func (s *Store) Count(ctx context.Context, c Counted) (Stored[Count], error) {
	r, err := Optional(get[Count](ctx, s, countKey(c), missing(fairlead.CodeRecordNotFound, string(c.Quota))))
	if err != nil || r.Version > 0 {
		return r, err
	}
	for end, quota := range countedPartitions() {
		if quota != c.Quota {
			continue
		}
		for _, err := range Pages(func(q fairlead.PageQuery) (Page[struct{}], error) {
			return query[struct{}](ctx, s, engine.Query{Partition: ofOrg(c.Org, end), After: q.After})
		}) {
			if err != nil {
				return r, err
			}
			r.V.Number++
		}
	}
	return r, nil
}

// PutCount writes how many items of a quota an org has.
func (t *Tx) PutCount(c Counted, r Stored[Count]) { put(t, countKey(c), r) }

// Change is by how much a commit changes a count.
type Change struct {
	Counted
	By int
}

// Changes returns by how much t changes the counts of orgs, in the order of its writes. The
// items that the operator shares with all orgs are not counted.
func (t *Tx) Changes() []Change {
	var changes []Change
	for _, w := range t.writes {
		by := 0
		switch {
		case w.Op == engine.Put && w.If.IsAbsent():
			by = 1
		case w.Op == engine.Delete && !w.If.IsAny():
			by = -1
		}
		of, ok := counted(w.Item.Key)
		if !ok || by == 0 {
			continue
		}
		i := slices.IndexFunc(changes, func(c Change) bool { return c.Counted == of })
		if i < 0 {
			i, changes = len(changes), append(changes, Change{Counted: of})
		}
		changes[i].By += by
	}
	return slices.DeleteFunc(changes, func(c Change) bool { return c.By == 0 })
}

// counted returns the count that includes the item at the key.
func counted(k engine.Key) (Counted, bool) {
	parts := strings.Split(k.Partition, "#")
	if len(parts) != 3 || parts[0] != "ORG" {
		return Counted{}, false
	}
	quota, ok := countedPartitions()[parts[2]]
	return Counted{Org: fairlead.OrgID(parts[1]), Quota: quota}, ok
}
