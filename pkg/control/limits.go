package control

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Limit is how many items of a kind an org has, and how many it can have.
type Limit struct {
	Name        fairlead.Quota
	Used, Limit int
}

// Limits returns the quotas of an org and its fixed limits, by name, with what the org uses.
func (c *Control) Limits(ctx context.Context, org fairlead.OrgID) ([]Limit, error) {
	var out []Limit
	for _, q := range fairlead.QuotaNames() {
		n, err := c.Store.Count(ctx, store.Counted{Org: org, Quota: q})
		if err != nil {
			return nil, err
		}
		out = append(out, Limit{Name: q, Used: n.V.Number, Limit: c.Quotas.Limit(q)})
	}
	tokens, err := c.Store.AllTokenRefs(ctx, org)
	if err != nil {
		return nil, err
	}
	users, err := c.Store.AllUsers(ctx, org)
	if err != nil {
		return nil, err
	}
	hooks, err := c.Store.AllWebhooks(ctx, org)
	out = append(out, Limit{"tokens", len(tokens), MaxTokens}, Limit{"users", len(users), MaxUsers}, Limit{"webhooks", len(hooks), MaxWebhooks})
	slices.SortFunc(out, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}
