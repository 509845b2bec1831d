package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// WarmStep is a step that an agent started before its job was known. It waits for one job.
type WarmStep struct {
	ID         fairlead.WarmStepID   `json:"id"`
	Runner     fairlead.RunnerID     `json:"runner"`
	Instance   string                `json:"instance"`             // the agent that started it, by the name of its sessions
	Role       component.Role        `json:"role"`                 // of the operations that it can run
	Size       job.Size              `json:"size,omitzero"`        // that its jobs ask for; zero: the size that the runner is configured for
	Install    fairlead.InstallID    `json:"install,omitempty"`    // whose jobs it can run; "": of every install of the runner
	Deployment fairlead.DeploymentID `json:"deployment,omitempty"` // whose jobs it can run; "": of every deployment
	Step       string                `json:"step,omitempty"`       // the process that waits, by the id that it chose; "": its first request has not arrived
	Job        fairlead.JobID        `json:"job,omitempty"`        // the assigned job; "": none
	Epoch      int64                 `json:"epoch,omitempty"`      // the assigned epoch of the job
	Ended      bool                  `json:"ended,omitempty"`      // it gets no job any more
	Created    time.Time             `json:"created"`
	Expires    time.Time             `json:"expires"` // it gets no job after this time
}

// Waits reports whether the warm step can still get a job.
func (w WarmStep) Waits(now time.Time) bool { return !w.Ended && w.Job == "" && now.Before(w.Expires) }

// Fits reports whether the warm step can run the job. The size of a step is fixed when it starts, so it must be exactly
// the size that the job asks for: a smaller step could run out of memory, and a larger one costs more. A warm step runs in
// the runner's image, so a job with an image of its own has none.
func (w WarmStep) Fits(j Job) bool {
	t, _ := component.Of(j.Plugin)
	role, ok := t.RoleOf(j.Operation, j.Role)
	return ok && j.Image == "" && j.Size == w.Size && role == w.Role && w.Runner == j.Runner && (w.Install == "" || w.Install == j.Install) && (w.Deployment == "" || w.Deployment == j.Deployment)
}

// WarmStep returns a warm step of a runner.
func (s *Store) WarmStep(ctx context.Context, runner fairlead.RunnerID, id fairlead.WarmStepID) (Stored[WarmStep], error) {
	return get[WarmStep](ctx, s, warmStepKey(runner, id), missing(fairlead.CodeWarmStepNotFound, string(id)))
}

// WarmSteps returns the newest warm steps of a runner, at most limit. Older ones have expired: an engine drops a record
// some time after it has expired.
func (s *Store) WarmSteps(ctx context.Context, runner fairlead.RunnerID, limit int) ([]Stored[WarmStep], error) {
	p, err := query[WarmStep](ctx, s, engine.Query{Partition: runnerPartition(runner), Prefix: warmStepPrefix, Limit: limit, Backward: true})
	return p.Items, err
}

// PutWarmStep writes a warm step. Its record expires an hour after the warm step. The warm step is one of the
// commit's Subjects.
func (t *Tx) PutWarmStep(r Stored[WarmStep]) {
	t.subjects = append(t.subjects, string(r.V.ID))
	put(t, warmStepKey(r.V.Runner, r.V.ID), r, expires(r.V.Expires.Add(time.Hour)))
}
