package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func (p *plane) agentConfiguration(id fairlead.RunnerID, have string) (*control.AgentConfiguration, error) {
	settings, err := p.AgentSettings(p.ctx, id, have)
	return settings.Configuration, err
}

// Agents get the configuration of their runner without its secrets. They get the
// configuration again after each change, also if only a secret changed.
func TestAgentsGetConfigurationOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		by := control.User{Org: org}
		made, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: "crate", File: control.RunnerFile{Set: []string{"runner_configuration.type=docker", "state_storage_configuration.type=http",
			"runner_configuration.job.image=registry.example/runner:1", "runner_configuration.job.registry={username: ci, password: hush-hush}"}}}, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.agentConfiguration(made.ID, "")
		if err != nil || got == nil || got.Revision == "" || strings.Contains(string(got.Runner), "hush") {
			t.Fatalf("the agents get %+v, %v", got, err)
		}
		r, err := runnerspec.DecodeRunner(got.Runner)
		if err != nil || r.(*runnerspec.DockerRunner).Job.Image != "registry.example/runner:1" {
			t.Errorf("the agents decode %+v, %v", r, err)
		}
		if again, err := p.agentConfiguration(made.ID, got.Revision); err != nil || again != nil {
			t.Errorf("an agent with the current revision gets %+v, %v", again, err)
		}
		time.Sleep(time.Second)
		if _, err := p.UpdateRunner(p.ctx, by, "crate", control.RunnerFile{Set: []string{"runner_configuration.job.registry.password=hush-hush-2"}}); err != nil {
			t.Fatal(err)
		}
		if again, err := p.agentConfiguration(made.ID, got.Revision); err != nil || again == nil || again.Revision == got.Revision {
			t.Errorf("after another secret the agents get %+v, %v", again, err)
		}
		// A change of the runner's mode does not change its configuration.
		now, err := p.agentConfiguration(made.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []fairlead.RunnerMode{fairlead.ModeDisabled, fairlead.ModeEnabled} {
			if _, err := p.SetRunnerMode(p.ctx, by, "crate", mode); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := p.agentConfiguration(made.ID, now.Revision); err != nil || again != nil {
			t.Errorf("after a change of the mode the agents get %+v, %v", again, err)
		}
	})
}

// If an agent is unhealthy, the reason is stored with its session until the agent is
// healthy.
func TestReasonOfAnUnhealthyAgentIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		for _, unhealthy := range []string{"the Docker Engine does not answer", ""} {
			if err := p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4, Unhealthy: unhealthy}); err != nil {
				t.Fatal(err)
			}
			r, err := p.Runner(p.ctx, org, "local")
			if err != nil || r.Sessions[0].Unhealthy != unhealthy {
				t.Errorf("the session is %+v, %v", r.Sessions[0], err)
			}
		}
	})
}

// A job has the start timeout and the stop grace of its runner. The stop grace is the time
// in which a stopped tool can save its state.
func TestJobsHaveTheTimesOfTheirRunner(t *testing.T) {
	for name, tc := range map[string]struct {
		set                 []string
		startTimeout, grace time.Duration
	}{
		"a process":               {nil, 20 * time.Second, 2 * time.Minute},
		"explicit settings":       {[]string{"runner_configuration.job.start_timeout=90s", "runner_configuration.job.stop_grace=30s"}, 90 * time.Second, 30 * time.Second},
		"a container":             {[]string{"runner_configuration.type=docker"}, 5 * time.Minute, 2 * time.Minute},
		"a task":                  {[]string{"runner_configuration.type=aws-ecs"}, 5 * time.Minute, 10 * time.Minute},
		"a task that saves long":  {[]string{"runner_configuration.type=aws-ecs", "runner_configuration.job.stop_grace=1h"}, 5 * time.Minute, time.Hour},
		"a pod with its own time": {[]string{"runner_configuration.type=kubernetes", "runner_configuration.job.start_timeout=20m"}, 20 * time.Minute, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				set := append([]string{"runner_configuration.type=local", "state_storage_configuration.type=http"}, tc.set...)
				if _, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: "timed", File: control.RunnerFile{Set: set}}, ""); err != nil {
					t.Fatal(err)
				}
				p.enrolAt("timed")
				if _, err := p.CheckRunner(p.ctx, me, "timed", ""); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				c, err := p.Claim(p.ctx, p.session, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if startTimeout := c.Lease.Expires.Sub(began); startTimeout != tc.startTimeout || c.Terms.OrDefault().Grace != tc.grace {
					t.Errorf("the step has %s to start and its tool %s to save, want %s and %s", startTimeout, c.Terms.OrDefault().Grace, tc.startTimeout, tc.grace)
				}
			})
		})
	}
}
