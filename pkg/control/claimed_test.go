package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// On Docker, ECS and Kubernetes a step may take minutes to start, because its image is
// pulled. If the agent dies before the step starts, its claim is lost within a minute of
// the agent's last heartbeat. The control plane does not wait for the start timeout.
func TestClaimOfDeadAgentIsLostWithinAMinute(t *testing.T) {
	const startTimeout, sweep = 5 * time.Minute, 12 * time.Second // the values of a control plane on AWS
	beats := func(p *plane, h control.Heartbeat) {
		h.Capacity = 4
		p.must("send a heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, h) })
	}
	for _, tt := range []struct {
		name      string
		intervals control.Intervals
		every     func(p *plane, id string, at time.Duration) // the test calls it before each sweep; at is the time since the claim
		over      time.Duration                               // the attempt is lost at most this long after the claim
		message   string
	}{
		{"its agent sends no heartbeats", control.Intervals{}, func(*plane, string, time.Duration) {}, time.Minute, "last seen more than 45s ago"},
		{"its agent sends no heartbeats, with metered intervals", control.Metered(), func(*plane, string, time.Duration) {}, time.Minute, "last seen more than 45s ago"},
		{"its agent sends heartbeats for two minutes", control.Intervals{}, func(p *plane, _ string, at time.Duration) {
			if at <= 2*time.Minute {
				beats(p, control.Heartbeat{})
			}
		}, 3 * time.Minute, "last seen more than 45s ago"},
		{"its agent sends heartbeats, and the step does not start", control.Intervals{}, func(p *plane, _ string, _ time.Duration) { beats(p, control.Heartbeat{}) }, startTimeout + sweep, "did not start within 5m0s"},
		{"its agent sends heartbeats at the metered interval", control.Metered(), func(p *plane, _ string, at time.Duration) {
			if at%(36*time.Second) == 0 {
				beats(p, control.Heartbeat{})
			}
		}, startTimeout + sweep, "did not start within 5m0s"},
		{"its agent has a new session", control.Intervals{}, func(p *plane, _ string, at time.Duration) {
			if at == sweep {
				p.enrolAs("local", "test")
			}
			beats(p, control.Heartbeat{})
		}, startTimeout + sweep, "did not start within 5m0s"},
		{"the next agent reports the job", control.Intervals{}, func(p *plane, id string, at time.Duration) {
			if at == sweep {
				p.enrolAs("local", "the next")
			}
			beats(p, control.Heartbeat{Running: []string{id}})
		}, startTimeout + sweep, "did not start within 5m0s"},
		{"the next agent reports another job", control.Intervals{}, func(p *plane, _ string, at time.Duration) {
			if at == sweep {
				p.enrolAs("local", "the next")
			}
			beats(p, control.Heartbeat{Running: []string{"job_other"}})
		}, time.Minute, "last seen more than 45s ago"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals, p.Terms.StartTimeout = tt.intervals, startTimeout
				p.publish(shop)
				p.install("acme")
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
				p.sleep(3 * time.Minute) // after this pause and the sweep, the wake-up of the job is not due again for a while
				p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
				var c control.Claim
				p.must("claim", func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return })
				var now control.Job
				at := time.Duration(0)
				for now = c.Job; now.State == job.Claimed; {
					at += sweep
					p.sleep(sweep)
					tt.every(p, string(c.ID), at)
					p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
					now = p.job(c.ID)
				}
				if now.State != job.Queued || at > tt.over || at < tt.over-30*time.Second {
					t.Errorf("after %s the job is %s; want queued after %s", at, now.State, tt.over)
				}
				if len(now.Deaths) != 1 || now.Deaths[0].Reason != fairlead.ReasonStartTimeout || !strings.Contains(now.Deaths[0].Message, tt.message) {
					t.Errorf("the deaths are %+v, want one with the message %q", now.Deaths, tt.message)
				}
			})
		})
	}
}

// If all agents that claim a job die before a step starts, the job fails with
// start-timeout. It does not fail with poison, because no step ran.
func TestJobThatNeverStartedIsNotPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.Terms.StartTimeout = 5 * time.Minute
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		var now control.Job
		for n := range job.MaxAttempts {
			p.enrolAs("local", fmt.Sprint("agent ", n))
			var c control.Claim
			p.must("claim", func() (err error) { c, err = p.Claim(p.ctx, p.session, time.Minute); return })
			p.sleep(46 * time.Second)
			p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
			now = p.job(c.ID)
		}
		if now.State != job.Failed || now.Reason != fairlead.ReasonStartTimeout {
			t.Errorf("the job is %s for %q: %s", now.State, now.Reason, now.Message)
		}
	})
}

// A control plane receives no heartbeats while it is down. So after an outage, it waits
// before it marks a claim lost.
func TestAgentIsNotLostAfterServerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.Terms.StartTimeout = 5 * time.Minute
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		var c control.Claim
		p.must("claim", func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return })
		p.sleep(2 * time.Minute)
		p.HoldLeases() // the control plane is up again
		p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
		if now := p.job(c.ID); now.State != job.Claimed {
			t.Errorf("the job is %s", now.State)
		}
		p.sleep(46 * time.Second)
		p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
		if now := p.job(c.ID); now.State != job.Queued {
			t.Errorf("46 s later the job is %s", now.State)
		}
	})
}
