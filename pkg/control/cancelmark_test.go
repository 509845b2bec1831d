package control_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbustest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// marked records the attempts whose markers were written. While down, it stores none.
type marked struct {
	mu   sync.Mutex
	down bool
	list []cancelmark.Attempt
}

func (m *marked) Put(_ context.Context, a cancelmark.Attempt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errors.New("no route to host")
	}
	m.list = append(m.list, a)
	return nil
}

func (m *marked) taken() []cancelmark.Attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// running returns the lease of the install's first job, which a step has started.
func (p *plane) running() control.Holder {
	p.t.Helper()
	var c control.Claim
	p.must("claim", func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return })
	p.must("start", func() error { return errOf(p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1")) })
	return control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
}

// Each cause that makes a running job stop writes the marker of its attempt, and only of its
// attempt. If the write is lost, the table's stream writes it again.
func TestCancelWritesTheAttemptsMarker(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(p *plane, d fairlead.DeploymentID, h control.Holder)
	}{
		{"a person cancels the job", func(p *plane, _ fairlead.DeploymentID, h control.Holder) {
			p.must("cancel", func() error { return errOf(p.CancelJob(p.ctx, org, h.Job)) })
			p.must("cancel again", func() error { return errOf(p.CancelJob(p.ctx, org, h.Job)) })
		}},
		{"a person cancels the deployment", func(p *plane, d fairlead.DeploymentID, _ control.Holder) {
			p.must("cancel", func() error { return errOf(p.CancelDeployment(p.ctx, org, d)) })
		}},
		{"the job passes its time limit", func(p *plane, _ fairlead.DeploymentID, h control.Holder) {
			for state := job.Running; state != job.Canceling; {
				p.sleep(30 * time.Second)
				p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
				p.must("renew", func() error {
					j, err := p.RenewLease(p.ctx, h, 0, 0)
					state = j.State
					return err
				})
			}
		}},
	} {
		for _, down := range []bool{false, true} {
			name := tt.name
			if down {
				name += ", and the first write is lost"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, marks := &stream{Engine: enginetest.Memory()}, &marked{}
					p := newPlane(t, e)
					p.CancelMarks = marks
					p.publish(shop)
					p.install("acme")
					d := p.deploy("acme", control.NewDeployment{Kind: deployment.Deploy}, "k")
					h := p.running()
					install, err := p.Install(p.ctx, org, "acme")
					if err != nil {
						t.Fatal(err)
					}
					want := []cancelmark.Attempt{{Install: install.ID, Job: h.Job, Epoch: h.Epoch}}
					seen := len(e.since(0))
					marks.down = down
					tt.stop(p, d, h)
					marks.down = false
					if got := marks.taken(); !down && !slices.Equal(got, want) {
						t.Errorf("marked %+v, want %+v", got, want)
					}
					dispatcher := &control.Dispatcher{CancelMarks: marks, Bus: eventbustest.Memory(), Now: time.Now, Logger: p.Logger}
					if again := dispatcher.Dispatch(p.ctx, e.since(seen)); again != nil {
						t.Errorf("records %v must be delivered again, want none", again)
					}
					if got := marks.taken(); !slices.Equal(got, want) {
						t.Errorf("the dispatcher marked %+v, want %+v", got, want)
					}
					p.must("finish", func() error {
						return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeCanceled, Reason: "canceled"})
					})
					if dispatcher.Dispatch(p.ctx, e.since(seen)); len(marks.taken()) > 0 {
						t.Error("a job that has ended was marked")
					}
				})
			})
		}
	}
}

// A job that no step has started is canceled by the commit alone.
func TestUnstartedJobNeedsNoMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		marks := &marked{}
		p := newPlane(t, enginetest.Memory())
		p.CancelMarks = marks
		p.publish(shop)
		p.install("acme")
		d := p.deploy("acme", control.NewDeployment{}, "k")
		p.must("cancel", func() error { return errOf(p.CancelDeployment(p.ctx, org, d)) })
		if got := marks.taken(); got != nil {
			t.Errorf("marked %+v, want none", got)
		}
	})
}
