package control_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// interrupted is an engine that calls the function do[n] before the nth read.
type interrupted struct {
	engine.Engine
	reads int
	do    map[int]func()
}

func (e *interrupted) read() {
	e.reads++
	if do := e.do[e.reads]; do != nil {
		delete(e.do, e.reads)
		do()
	}
}

func (e *interrupted) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	e.read()
	return e.Engine.Get(ctx, k)
}

func (e *interrupted) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	e.read()
	return e.Engine.Query(ctx, q)
}

// The report that ends a deployment reads the install, reads the next deployment of the
// install, and starts this deployment. The report must succeed if the next deployment is
// canceled between these two reads. The simulator found this with seed 100299.
func TestReportSucceedsIfNextDeploymentIsCanceled(t *testing.T) {
	const unbegun = "a person cancels a deployment that has no running job"
	// Each of these functions ends the active deployment of the install.
	acts := map[string]func(*plane, fairlead.DeploymentID, control.Holder) error{
		"a step reports that its tool failed": func(p *plane, _ fairlead.DeploymentID, h control.Holder) error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Message: "it did not work"})
		},
		"an agent reports a death": func(p *plane, _ fairlead.DeploymentID, h control.Holder) error {
			return p.ReportDeath(p.ctx, p.session, h.Job, control.Death{Epoch: h.Epoch, Cause: "killed", Signal: "killed"})
		},
		"the sweep finds an expired lease": func(p *plane, _ fairlead.DeploymentID, _ control.Holder) error {
			p.sleep(job.LeaseTTL)
			return errOf(p.Sweep(p.ctx))
		},
		unbegun: func(p *plane, active fairlead.DeploymentID, _ control.Holder) error {
			return errOf(p.CancelDeployment(p.ctx, org, active))
		},
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			during := 0
			for n, fewer := 1, false; !fewer; n++ {
				synctest.Test(t, func(t *testing.T) {
					e := &interrupted{Engine: enginetest.Memory()}
					p := newPlane(t, e)
					p.publish(shop)
					p.install("acme")
					active := p.deploy("acme", control.NewDeployment{}, "active")
					var h control.Holder
					if name != unbegun {
						_, h = p.begin()
						p.must("cancel", func() error { return errOf(p.CancelDeployment(p.ctx, org, active)) })
					}
					canceled, next := p.deploy("acme", control.NewDeployment{}, "canceled"), p.deploy("acme", control.NewDeployment{}, "next")
					e.reads, e.do = 0, map[int]func(){n: func() {
						p.must("cancel", func() error { return errOf(p.CancelDeployment(p.ctx, org, canceled)) })
					}}
					if err := act(p, active, h); err != nil {
						t.Errorf("with a cancelation before read %d: %v", n, err)
					}
					if fewer = len(e.do) > 0; fewer {
						return
					}
					during++
					for id, want := range map[fairlead.DeploymentID]deployment.State{canceled: deployment.Canceled, next: deployment.Running} {
						if d := p.deployment(id); d.State != want {
							t.Errorf("canceled before read %d: %s is %s, want %s", n, id, d.State, want)
						}
					}
				})
			}
			if during < 4 {
				t.Errorf("only %d reads were interrupted", during)
			}
		})
	}
}
