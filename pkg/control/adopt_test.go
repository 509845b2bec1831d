package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Each row names what became of the agent that started the steps, and which of them another agent gets.
func TestOnlyStepsOfGoneAgentsAreAdopted(t *testing.T) {
	both := "a claimed job; a job in a warm step; a warm step without a job"
	for _, tt := range []struct {
		name  string
		apart func(p *warmPlane) // what happens before the other agent asks
		want  string
	}{
		{"an agent that is online keeps its steps", func(p *warmPlane) { p.enrolAs("local", "another") }, ""},
		{"an agent that has logged out", func(p *warmPlane) {
			p.must("log out", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Ending: true}) })
			p.enrolAs("local", "another")
		}, both},
		{"an agent that asks for its own steps", func(*warmPlane) {}, both},
		{"an agent of another runner gets none", func(p *warmPlane) {
			p.must("log out", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Ending: true}) })
			p.must("make a runner", func() error { return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "other", Storage: "http"}) })
			p.enrolAt("other")
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
				first := p.claim()
				warm := p.ahead(first, 2)
				p.step(first)
				second := p.claim() // in a warm step
				p.install("other")
				p.deploy("other", control.NewDeployment{AutoApprove: true}, "other")
				third := p.claim()
				if second.WarmStep == "" || third.WarmStep != "" {
					t.Fatalf("the claims are in %q and %q, want the first of them in a warm step", second.WarmStep, third.WarmStep)
				}
				waits := warm[0].ID
				if waits == second.WarmStep {
					waits = warm[1].ID
				}
				tt.apart(p)
				found, err := p.AdoptSteps(p.ctx, p.session, []control.Attempt{{Job: third.ID, Epoch: third.Lease.Epoch}, {Job: third.ID, Epoch: third.Lease.Epoch + 1},
					{Job: first.ID, Epoch: first.Lease.Epoch}, {Job: "job_missing", Epoch: 1}}, []fairlead.WarmStepID{second.WarmStep, waits, "wrm_missing"})
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, c := range found.Claims {
					switch {
					case c.LaunchToken != "":
						t.Errorf("an adopted step has a launch token: %+v", c)
					case c.ID == third.ID && c.WarmStep == "":
						got += "a claimed job; "
					case c.ID == second.ID && c.WarmStep == second.WarmStep:
						got += "a job in a warm step; "
					default:
						got += fmt.Sprintf("%+v; ", c)
					}
				}
				for _, id := range found.Ended {
					if id == waits {
						got += "a warm step without a job"
					}
				}
				if got != tt.want {
					t.Errorf("the agent gets %q, want %q", got, tt.want)
				}
			})
		})
	}
}
