package fairlead

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Quota names what an org may have only a limited number of.
type Quota string

// The quotas of an org. API tokens and webhooks have fixed limits.
const (
	QuotaApps     Quota = "apps"
	QuotaInstalls Quota = "installs"
	QuotaRunners  Quota = "runners" // an install has a runner of its own at most
	QuotaGroups   Quota = "groups"
	QuotaRules    Quota = "rules" // each placement reads all rules of its org
	// QuotaServiceAccounts is about as large as that of runners: a customer can have an account of its own.
	QuotaServiceAccounts Quota = "service-accounts"
)

// Quotas holds the limits that an operator sets. A quota without a limit has its default.
type Quotas map[Quota]int

func defaultQuotas() Quotas {
	return Quotas{QuotaApps: 1_000, QuotaInstalls: 20_000, QuotaRunners: 20_000, QuotaGroups: 5_000, QuotaRules: 1_000, QuotaServiceAccounts: 20_000}
}

// QuotaNames lists the quotas by name.
func QuotaNames() []Quota { return slices.Sorted(maps.Keys(defaultQuotas())) }

// Limit returns how many items an org may have.
func (q Quotas) Limit(of Quota) int { return cmp.Or(q[of], defaultQuotas()[of]) }

// ParseQuotas reads limits such as "installs=100,runners=50"; "": no limit is set. Its errors
// name the unknown quota or the limit that is not a whole number of at least 1.
func ParseQuotas(text string) (Quotas, error) {
	q := Quotas{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, limit, _ := strings.Cut(part, "=")
		if !slices.Contains(QuotaNames(), Quota(name)) {
			var names []string
			for _, known := range QuotaNames() {
				names = append(names, string(known))
			}
			return nil, fmt.Errorf("there is no quota %q; the quotas are %s", name, strings.Join(names, ", "))
		}
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("the quota %s is %q; use a whole number of at least 1", name, limit)
		}
		q[Quota(name)] = n
	}
	return q, nil
}
