package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// begun deploys the app shop to the install acme, starts the first plan, and returns the
// holder of its lease.
func (p *plane) begun() control.Holder {
	p.t.Helper()
	p.publish(shop)
	p.install("acme")
	p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
	var c control.Claim
	p.must("claim", func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return })
	p.must("start", func() error { _, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "the-step"); return err })
	return control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
}

// If a tool hangs, its step still renews the lease. So only the no-output timeout ends the
// job.
func TestHangingToolEndsAfterNoOutputTimeout(t *testing.T) {
	for _, tt := range []struct {
		name     string
		terms    job.Terms
		noOutput time.Duration
		state    job.State
	}{
		{"a second before the timeout the job runs", job.Terms{}, job.NoOutput - time.Second, job.Running},
		{"at the timeout the job is interrupted", job.Terms{}, job.NoOutput, job.Canceling},
		{"a longer timeout of the operator applies", job.Terms{NoOutput: time.Hour}, job.NoOutput, job.Running},
		{"a shorter timeout of the operator applies", job.Terms{NoOutput: time.Minute}, time.Minute, job.Canceling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Terms = tt.terms
				h := p.begun()
				for range 2 { // the step repeats the request, because the first answer may be lost
					j, err := p.RenewLease(p.ctx, h, tt.noOutput, 0)
					if err != nil || j.State != tt.state || j.State == job.Canceling && j.Stop != fairlead.ReasonNoOutput {
						t.Fatalf("the job is %s for %q: %v", j.State, j.Stop, err)
					}
				}
				if tt.state != job.Canceling {
					return
				}
				p.must("finish", func() error {
					return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeCanceled, Reason: "canceled", Message: "the tool was interrupted"})
				})
				j, err := p.Job(p.ctx, org, h.Job)
				if err != nil || j.State != job.Failed || j.Reason != fairlead.ReasonNoOutput || j.Message == "the tool was interrupted" {
					t.Errorf("the job ended %s for %q (%s): %v", j.State, j.Reason, j.Message, err)
				}
			})
		})
	}
}

// The job timeout of a runner applies instead of the default of the operation. It can be
// shorter or longer than the default.
func TestRunnerSetsTimeoutOfItsJobs(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 30 * time.Minute, 90 * time.Second: 90 * time.Second, 4 * time.Hour: 4 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlane(t, enginetest.Memory())
			p.Terms.Timeout = limit
			h := p.begun()
			j, err := p.Job(p.ctx, org, h.Job)
			if err != nil {
				t.Fatal(err)
			}
			if _, late := j.Overdue(j.Started.Add(want)); late && j.Lease.Expires.After(j.Started.Add(want)) {
				t.Errorf("with %s the control plane stops the job before its step does", limit)
			}
			j.Lease.Expires = j.Started.Add(24 * time.Hour) // as if the step renewed its lease
			if e, late := j.Overdue(j.Started.Add(want + job.Grace)); !late || e.Kind != job.TimeOut {
				t.Errorf("with %s the job is not stopped after %s and the grace period", limit, want)
			}
			var spec events.JobSpec
			p.stepFault = func(s events.JobSpec) stepFault {
				if s.Operation == "plan" {
					spec = s
				}
				return none
			}
			p.work()
			if got := spec.Timeout.Duration(); got != want {
				t.Errorf("with %s the step's timeout is %s, want %s", limit, got, want)
			}
		})
	}
}
