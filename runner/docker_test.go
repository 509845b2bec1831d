package main

import (
	"context"
	"testing"

	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/runner/internal/controltest"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
)

// A step in a container goes on when its agent is killed; the next agent sees it
// to its end, and removes what is left. One that is killed is reported.
func TestAgentOfContainers(t *testing.T) {
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	env := []string{"FAIRLEAD_EXECUTOR=docker", "FAIRLEAD_DOCKER_HOST=" + host, "FAIRLEAD_DOCKER_NETWORK=host", "FAIRLEAD_DOCKER_PULL=Never",
		"FAIRLEAD_DOCKER_IMAGE=" + dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner")}, "/runner")}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	containers := func(runner string) int {
		list, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("name", runner)})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}

	t.Run("a replaced agent touches no step", func(t *testing.T) {
		s := controltest.New(t, controltest.Options{})
		a := startAgent(t, s, "", env...)
		s.LoseFinishAnswers(1 << 30) // the step stays, and reports again and again
		job := s.Queue(checkSpec())
		s.Until("the step reports", func() bool { return s.Job(job).Finishes > 0 })
		a.kill()
		b := startAgent(t, s, a.Data, env...)
		s.Until("the new agent knows the step", func() bool { return len(s.LastBeat().Running) == 1 && s.LastBeat().Running[0] == job })
		s.LoseFinishAnswers(0)
		if j := s.UntilFinished(job); j.Epoch != 1 || j.Died != nil {
			t.Errorf("epoch %d, died %+v", j.Epoch, j.Died)
		}
		s.Until("nothing left on disk", b.empty)
		if n := containers(job); n > 0 {
			t.Errorf("%d containers are left", n)
		}
	})
	t.Run("a killed step is reported, and removed", func(t *testing.T) {
		s := controltest.New(t, controltest.Options{})
		a := startAgent(t, s, "", env...)
		job := s.Queue(checkSpec())
		s.LoseLogAnswers(job, 1<<30) // the step sends its log again and again, and reports after that
		s.UntilLog(job, "runs job "+job)
		if _, err := c.ContainerKill(t.Context(), "fairlead-"+job+"-1", client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
			t.Fatal(err)
		}
		if d := s.UntilDied(job).Died; d.Reason != "killed" || d.Signal != "killed" || d.ExitCode != nil {
			t.Errorf("reported as %+v", d)
		}
		s.Until("nothing left on disk", a.empty)
		if n := containers(job); n > 0 {
			t.Errorf("%d containers are left", n)
		}
	})
}
