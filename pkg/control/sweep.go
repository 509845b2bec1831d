package control

import (
	"context"
	"errors"
)

// Sweep repairs what was lost: it sends wake-ups of queued jobs again, and ends jobs
// whose lease expired. It also starts the runs of actions whose time has come, and ends
// plans that expired. It reads only due jobs, schedules and deployments, so it costs an idle control plane three
// queries. From time to time it also checks the runners. Several sweeps may run
// concurrently.
func (c *Control) Sweep(ctx context.Context) (Swept, error) {
	var s Swept
	jobs := c.SweepJobs(ctx, &s)
	schedules := c.SweepSchedules(ctx, &s)
	plans := c.SweepPlans(ctx, &s)
	w, watch := c.WatchRunners(ctx)
	s.Turned, s.Lost, s.Letters = s.Turned+w.Turned, s.Lost+w.Lost, w.Letters
	return s, errors.Join(jobs, schedules, plans, watch)
}
