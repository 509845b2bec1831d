package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
)

// containersOf returns an agent's file with steps in containers of the image.
func containersOf(host, image, more string) string {
	return file("{type: docker, host: '" + host + "', job: {image: '" + image + "', image_pull_policy: Never, network: host, " + more + "}}")
}

// A step in a container continues after its agent is killed. The next agent sees how the step ends and removes its container.
// A killed step is reported.
func TestAgentOfContainers(t *testing.T) {
	t.Parallel()
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	env := []string{containersOf(host, dockerd.Image(t, host, "runner", map[string]string{"/runner": program.Build(t, "runner")}, "/runner"), "")}
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
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", env...)
		answer := s.LoseFinishAnswers(-1) // the step stays and reports repeatedly
		job := s.Queue(checkSpec())
		s.Until("the step reports", func() bool { return s.Job(job).Finishes > 0 })
		a.kill()
		b := startAgent(t, s, a.Data, env...)
		s.Until("the new agent reports the step", func() bool { return len(s.LastBeat().Running) == 1 && s.LastBeat().Running[0] == job })
		answer()
		if j := s.UntilFinished(job); j.Epoch != 1 || j.Died != nil {
			t.Errorf("epoch %d, died %+v", j.Epoch, j.Died)
		}
		s.Until("nothing left on disk", b.empty)
		if n := containers(job); n > 0 {
			t.Errorf("%d containers are left", n)
		}
	})
	t.Run("a killed step is reported, and removed", func(t *testing.T) {
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", env...)
		s.Fail(proxy.Route(wire.FinishJob), -1, proxy.Answer(http.StatusServiceUnavailable, "text/plain", "busy")) // the step repeats its report
		job := s.Queue(checkSpec())
		s.Until("the step reports", func() bool { return s.Asked(wire.FinishJob) > 0 })
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

// The module lists the files of the runner's data folder that its container can access. None belong to other installs. Plan and apply in local
// storage still work with a provider that the plan's container fetched and the apply's container cannot write.
func TestContainerCannotReadOtherInstalls(t *testing.T) {
	t.Parallel()
	var engine dockerd.Server
	t.Cleanup(engine.Stop)
	host := engine.Host(t)
	for name, path := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			m := tofu.NewMirror(t, true)
			s := plane.New(t, plane.Options{})
			image := dockerd.Image(t, host, "tool", map[string]string{"/runner": program.Build(t, "runner"), "/bin/tool": path}, "/runner")
			a := startAgent(t, s, "", containersOf(host, image, "volumes: ['"+filepath.Dir(m.Config)+":"+filepath.Dir(m.Config)+":ro']"),
				"FAIRLEAD_TOFU=/bin/tool", "FAIRLEAD_TF_CLI_CONFIG_FILE="+m.Config)
			ref := s.Push(map[string]string{"main.tf": timed + fmt.Sprintf(`
output "seen" { value = [for f in fileset(%q, "**/{terraform.tfstate,plan,version.json,identity.key}") : f] }
`, a.Data)})
			deploy := func(install string) (seen []string) {
				t.Helper()
				sp := ofInstall(planSpec("local", ref), install)
				sp.Vars = nil
				plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
				sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(plan.ID), Digest: plan.Finish.Plan.Digest}
				apply := succeeded(t, s.UntilFinished(s.Queue(sp)))
				if err := json.Unmarshal(apply.Finish.Outputs["seen"].Value, &seen); err != nil {
					t.Fatal(err)
				}
				return seen
			}
			// Each step stores the tool's version in its own container only.
			if err := os.MkdirAll(filepath.Join(a.Data, "tools", "host"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(a.Data, "tools", "host", "version.json"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			deploy("ins_1")
			s.Queue(ofInstall(planSpec("local", ref), "ins_1")) // a plan that is never applied
			deploy("ins_2")
			seen := deploy("ins_2")
			if !slices.Contains(seen, "state/ins_2/web/terraform.tfstate") {
				t.Errorf("the container lacks its own state: %q", seen)
			}
			for _, path := range seen {
				if strings.Contains(path, "ins_1") || strings.HasPrefix(path, "tools/host") || strings.HasSuffix(path, "identity.key") ||
					strings.HasPrefix(path, "plans") && strings.HasSuffix(path, "/plan") {
					t.Errorf("the container has %s", path)
				}
			}
			s.Until("nothing left on disk", a.empty)
			if left := a.glob("salvage/*"); len(left) > 0 {
				t.Errorf("salvaged states are left: %q", left)
			}
		})
	}
}
