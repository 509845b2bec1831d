package execution

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/store"
)

// Job is a job with its runner and its results.
type Job struct {
	job.Job
	InstallName string
	RunnerName  string
	RunnerOrg   fairlead.OrgID // "": a shared runner
	PlanJob     fairlead.JobID // the job whose plan an apply or destroy executes
	Plan        *Plan          // the result of a plan job
	Build       *JobBuild      // of a build
}

// Plan is what a plan job reports.
type Plan struct {
	Digest  string
	NoOp    bool
	Changes deployment.Changes
	// NeedsSignature is the rule of the customer's policy that asks for a signed approval; "": none.
	NeedsSignature string
	Artifact       string // sha256:… of the source; "": an earlier runner made the plan
}

// JobOf renders a job.
func JobOf(j store.Job) Job {
	return Job{Job: j.Job, InstallName: j.InstallName, RunnerName: j.RunnerName, RunnerOrg: j.RunnerOrg(), PlanJob: j.PlanJob, Plan: (*Plan)(j.Plan), Build: jobBuild(j.Build)}
}

// Job returns a job.
func (ex *Execution) Job(ctx context.Context, org fairlead.OrgID, id fairlead.JobID) (Job, error) {
	r, err := orgsJob(ex.Reading(ctx), org, id)
	return JobOf(r.V), err
}

// orgsJob returns a job of the org. A job of another org is not found.
func orgsJob(tx *kernel.Tx, org fairlead.OrgID, id fairlead.JobID) (store.Stored[store.Job], error) {
	r, err := tx.Store.Job(tx.Ctx, id)
	if err == nil && r.V.Org != org {
		return store.Stored[store.Job]{}, fairlead.NotFound(fairlead.CodeJobNotFound, string(id))
	}
	return r, err
}

// Jobs lists jobs, newest first.
func (ex *Execution) Jobs(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Job, string, error) {
	p, err := ex.Store.Jobs(ctx, org, q)
	return kernel.List(p, err, JobOf)
}

// DeploymentJobs lists the jobs of a deployment, by component and then by time.
func (ex *Execution) DeploymentJobs(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) ([]Job, error) {
	d, err := ex.Deployment(ctx, org, id)
	if err != nil {
		return nil, err
	}
	var out []Job
	for _, n := range d.Nodes {
		ids := append(slices.Clone(n.Past), n.PlanJob, n.ApplyJob)
		slices.Sort(ids) // identifiers sort by time
		for _, id := range ids {
			if id == "" {
				continue
			}
			r, err := ex.Store.Job(ctx, id)
			if err != nil {
				return nil, err
			}
			out = append(out, JobOf(r.V))
		}
	}
	return out, nil
}

// CancelJob cancels a job. The job's deployment then skips the rest of the component.
func (ex *Execution) CancelJob(ctx context.Context, org fairlead.OrgID, id fairlead.JobID) (Job, error) {
	var out Job
	err := ex.Transact(ctx, "cancel job "+string(id), func(tx *kernel.Tx) error {
		r, err := orgsJob(tx, org, id)
		if err != nil {
			return err
		}
		if out = JobOf(r.V); r.V.State == job.Canceling || r.V.State == job.Canceled {
			return nil // it is canceled already
		}
		if r, err = applyJob(tx, r, job.Event{Kind: job.Cancel, By: kernel.Actor(ctx)}); err != nil {
			return err
		}
		out = JobOf(r.V)
		return advanceDeployment(tx, r.V)
	})
	return out, err
}

// ChangeSet returns the change set of a job's plan as JSON, or nil.
func (ex *Execution) ChangeSet(ctx context.Context, j Job) ([]byte, error) {
	if j.Plan == nil {
		return nil, nil
	}
	r, err := store.Optional(ex.Store.ChangeSet(ctx, j.ID, j.Lease.Epoch)) // not found: the runner sent none
	return r.V.JSON, err
}

// JobLogs describes the logs of a job's attempts. A control plane that was recovered in another Region has only archived ones.
func (ex *Execution) JobLogs(ctx context.Context, j Job) ([]joblog.Info, error) {
	streams, err := ex.Log.Streams(ctx, string(j.ID))
	if err != nil || len(streams) > 0 || !j.State.Final() || j.Lease.Epoch == 0 { // epoch 0: the job has had no attempt
		return streams, err
	}
	if archive, ok := ex.Log.(joblog.Finder); ok {
		return archive.Find(ctx, string(j.ID))
	}
	return nil, nil
}

// LogChunk is a part of a job's log.
type LogChunk struct {
	Epoch     int64
	Offset    int64
	Data      []byte
	Next      int64
	Truncated bool
	Cut       bool // the log accepts no more bytes, because its runner has used up its budget; the job may go on
	Done      bool // the job has ended, and no more bytes follow
}

// ReadLog returns the bytes of a job's log from a cursor on: an epoch (0: the first one
// that exists) and an offset in this attempt's log. At the end of an attempt's log it
// continues with the next attempt. If there are no bytes, it waits for the duration wait
// at most.
func (ex *Execution) ReadLog(ctx context.Context, org fairlead.OrgID, id fairlead.JobID, epoch, offset int64, wait time.Duration) (LogChunk, error) {
	if offset < 0 || epoch < 0 {
		return LogChunk{}, fairlead.Invalid(fairlead.CodeInvalidCursor, "the cursor of a log must not be negative")
	}
	deadline := ex.Now().Add(wait)
	out := LogChunk{Epoch: epoch, Offset: offset, Next: offset}
	for {
		// Read the job before its streams: if the job has ended now, the streams read
		// next are complete.
		j, err := ex.Job(ctx, org, id)
		if err != nil {
			return out, err
		}
		streams, err := ex.JobLogs(ctx, j)
		if err != nil {
			return out, logError(id, err)
		}
		cur, next := attempt(streams, out.Epoch)
		if cur == nil {
			if j.State.Final() {
				out.Done = true
				return out, nil
			}
			if more, err := ex.waitJob(ctx, j, deadline); err != nil || !more {
				return out, err
			}
			continue
		}
		out.Epoch = cur.Stream.Epoch
		over := j.State.Final() || cur.Ended || next != nil
		chunk, err := ex.readOrFollow(ctx, cur.Stream, out.Offset, over, deadline)
		if err != nil {
			return out, logError(id, err)
		}
		out.Data, out.Next, out.Truncated, out.Cut = chunk.Data, chunk.Next, chunk.Info.Truncated, chunk.Info.Cut
		if len(out.Data) > 0 {
			return out, nil
		}
		switch {
		case next != nil:
			out.Epoch, out.Offset, out.Next = next.Stream.Epoch, 0, 0
		case j.State.Final():
			out.Done = true
			return out, nil
		default:
			if chunk.Ended { // between two attempts
				if more, err := ex.waitJob(ctx, j, deadline); err != nil || !more {
					return out, err
				}
			} else if !ex.Now().Before(deadline) {
				return out, nil
			}
		}
	}
}

// readOrFollow reads at once from a stream of a job that has ended, and waits for more
// bytes of a running job.
func (ex *Execution) readOrFollow(ctx context.Context, s joblog.Stream, offset int64, over bool, deadline time.Time) (joblog.Chunk, error) {
	left := deadline.Sub(ex.Now())
	if over || left <= 0 {
		return ex.Log.Read(ctx, s, offset, joblog.MaxRead)
	}
	// The stream of a lost job may end late or never, so the job is read again
	// periodically.
	ctx, cancel := context.WithTimeout(ctx, min(left, ex.Recheck))
	defer cancel()
	return ex.Log.Follow(ctx, s, offset, joblog.MaxRead)
}

// waitJob waits until the job differs from j. It returns false if the deadline passes
// first.
func (ex *Execution) waitJob(ctx context.Context, j Job, deadline time.Time) (bool, error) {
	left := deadline.Sub(ex.Now())
	if left <= 0 {
		return false, nil
	}
	changed := false
	err := ex.Wait(ctx, string(j.ID), left, func(ctx context.Context) (bool, error) {
		r, err := ex.Store.Job(ctx, j.ID)
		changed = r.V.State != j.State || r.V.Lease.Epoch != j.Lease.Epoch
		return changed, err
	})
	return changed, err
}

// attempt returns the stream of an epoch (0: the first) and the next one.
func attempt(streams []joblog.Info, epoch int64) (cur, next *joblog.Info) {
	for i := range streams {
		s := &streams[i]
		switch {
		case cur == nil && (epoch == 0 || s.Stream.Epoch == epoch):
			cur = s
		case cur != nil && next == nil:
			next = s
		}
	}
	return cur, next
}

// CheckRunner queues a job that does nothing on the runner. Its success shows that
// queue, claim, launch, spec, log and report work. Only an operator can check a shared
// runner.
func (ex *Execution) CheckRunner(ctx context.Context, by kernel.User, runner, key string) (Job, error) {
	return ex.askRunner(ctx, by, runner, job.OpCheck, kernel.Once{Org: by.Org, Route: "check-runner " + runner, Key: key})
}

// RunnerLog queues a job on the runner whose log is the recent log of its agent.
func (ex *Execution) RunnerLog(ctx context.Context, by kernel.User, runner, key string) (Job, error) {
	return ex.askRunner(ctx, by, runner, job.OpAgentLog, kernel.Once{Org: by.Org, Route: "runner-log " + runner, Key: key})
}

// pluginCheck is the plugin that executes job.OpCheck. The agent itself executes
// job.OpAgentLog.
const pluginCheck = "check"

func (ex *Execution) askRunner(ctx context.Context, by kernel.User, runner string, op job.Operation, once kernel.Once) (Job, error) {
	org := by.Org
	id := fairlead.JobID(ex.IDs(fairlead.PrefixJob))
	var out Job
	err := ex.Transact(ctx, "check runner "+runner, func(tx *kernel.Tx) error {
		made, err := tx.Seen(once, string(id))
		if err != nil || made != "" {
			if err == nil {
				out, err = ex.Job(ctx, org, fairlead.JobID(made))
			}
			return err
		}
		r, err := runners.OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		if tx.Again {
			if old, err := ex.Store.Job(ctx, id); err == nil {
				out = JobOf(old.V)
				return nil // our own earlier commit, whose outcome was unclear
			}
		}
		j := store.Job{Job: job.New(id, op, tx.Now), RunnerName: r.V.Name, Shared: r.V.Shared()}
		if j.Org, j.Runner = org, r.V.ID; op == job.OpCheck {
			j.Plugin = pluginCheck
		}
		out = JobOf(NewJob(tx, j, r.V))
		return nil
	})
	return out, err
}
