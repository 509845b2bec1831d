package control

import (
	"context"
	"errors"
)

// Sweep repairs what was lost: wake-ups of queued jobs, and leases whose
// holder is gone. It looks at what is due and at nothing else, so an idle
// control plane costs one query; now and then it looks at the runners as well.
// Many may run at once.
func (c *Control) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	jobs := c.SweepJobs(ctx, &s)
	var watch error
	s.Turned, s.Letters, watch = c.WatchRunners(ctx)
	return s, errors.Join(jobs, watch)
}
