package kernel

import (
	"strconv"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// count adds the new counts of orgs' items to the commit, and refuses the commit if an org
// would have too many. Its writes are conditional on the counts that were read, so concurrent
// commits cannot exceed a quota together.
func (tx *Tx) count() error {
	for _, c := range tx.Changes() {
		n, err := tx.Store.Count(tx.Ctx, c.Counted)
		if err != nil {
			return err
		}
		if limit := tx.Quotas.Limit(c.Quota); c.By > 0 && n.V.Number+c.By > limit {
			e := fairlead.Conflict(fairlead.CodeQuotaReached, "the org has %d %s, and its quota is %d", n.V.Number, c.Quota, limit)
			e.Details = map[string]string{"quota": string(c.Quota), "limit": strconv.Itoa(limit), "used": strconv.Itoa(n.V.Number)}
			e.Hint = "{limits.show} shows what the org uses. The operator of the control plane sets the quotas."
			return e
		}
		n.V.Number = max(0, n.V.Number+c.By)
		tx.PutCount(c.Counted, n)
	}
	return nil
}
