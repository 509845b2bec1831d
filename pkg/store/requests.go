package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Requests is how many requests of an org one process of the control plane has taken in a span of time.
type Requests struct {
	Number int `json:"number"`
}

// Requests returns how many requests of the org all processes have noted for a span of time.
func (s *Store) Requests(ctx context.Context, org fairlead.OrgID, span int64) (sum int, err error) {
	list, err := all[Requests](ctx, s, engine.Query{Partition: requestsPartition(org, span)})
	for _, r := range list {
		sum += r.V.Number
	}
	return sum, err
}

// PutRequests notes the number of a process. Each process writes only its own item, so no two writes meet.
func (t *Tx) PutRequests(org fairlead.OrgID, span int64, process string, number int, until time.Time) {
	put(t, requestsKey(org, span, process), Stored[Requests]{V: Requests{Number: number}, Version: anyVersion}, expires(until))
}
