package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
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

// NoteRequests notes how many requests of the org this process has taken in a span of time, and returns how many all processes have
// noted. The record expires some time after until, the end of the span.
func (c *Control) NoteRequests(ctx context.Context, org fairlead.OrgID, span int64, process string, number int, until time.Time) (sum int, err error) {
	err = c.Transact(ctx, "note the requests of org "+string(org), func(tx *kernel.Tx) error {
		tx.PutRequests(org, span, process, number, until.Add(time.Minute))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return c.Store.Requests(ctx, org, span)
}
