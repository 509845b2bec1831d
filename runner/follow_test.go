package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/plane"
)

// followed returns a runner's configuration whose jobs run in the folder.
func followed(folder, licence string) string {
	return fmt.Sprintf(`{"type": "local", "concurrency": 3, "job": {"folder": %q, "secrets": {"LICENCE": %q}, "proxy": {"no_proxy": "inside.example"}}}`, folder, licence)
}

// A runner's configuration sets how its jobs start. A change does not affect running jobs, even if the agent is replaced.
// Later jobs start with the new settings. The agent reports a configuration that it cannot follow, and fails jobs by name until it
// is fixed.
func TestAgentFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	licence := filepath.Join(t.TempDir(), "licence")
	if err := os.WriteFile(licence, []byte("hush-hush-licence\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here, there, wait := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "go on")
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	s.Configure("r1", followed(here, licence))
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, module(`echo "licence is $LICENCE, past $NO_PROXY, in $PWD"; test "$LICENCE" = hush-hush-licence && echo it is the right one
echo working; while [ ! -e '`+wait+`' ]; do sleep 0.05; done`), nil)
	if b := s.LastBeat(); b.Configuration != "r1" || b.Unhealthy != "" || b.Capacity != 3 {
		t.Errorf("the heartbeat is %+v", b)
	}

	s.Configure("r2", `{"type": "local", "job": {"folder": "`+there+`"}}`)
	s.Until("the heartbeat names the new configuration", func() bool { return s.LastBeat().Configuration == "r2" })
	a.kill() // the next agent finds the steps of this one
	a = startAgent(t, s, a.Data, "FAIRLEAD_TOFU="+tool(t))
	s.Until("the step is found", func() bool { return len(s.LastBeat().Running) == 1 })
	sp := spec("plan", "local", s.Push(module(`echo "in $PWD"; [ -z "$LICENCE" ] && echo without any`)))
	sp.State.Key = "ins_2/web" // the state of ins_1 is locked
	plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
	ap := applySpec("apply", "local", sp.Artifact, plan)
	ap.State = sp.State
	if log := string(succeeded(t, s.UntilFinished(s.Queue(ap))).Log); !strings.Contains(log, "in "+there+"/components/") || !strings.Contains(log, "without any") {
		t.Errorf("a job started after the change:\n%s", log)
	}
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := string(succeeded(t, s.UntilFinished(job)).Log)
	if !strings.Contains(log, "in "+here+"/components/") || !strings.Contains(log, "past inside.example") || !strings.Contains(log, "it is the right one") {
		t.Errorf("a job started before the change:\n%s", log)
	}
	if strings.Contains(log, "hush-hush") {
		t.Errorf("the log has the secret:\n%s", log)
	}

	s.Configure("r3", `{"type": "kubernetes", "job": {"namespace": "jobs"}}`)
	s.Until("the heartbeat has the reason for being unhealthy", func() bool { return strings.Contains(s.LastBeat().Unhealthy, "-tags clusters") })
	if d := s.UntilDied(s.Queue(checkSpec())).Died; d.Reason != "misconfigured" || !strings.Contains(d.Message, "-tags clusters") {
		t.Errorf("the job died of %+v", d)
	}
	s.Configure("r4", `{"type": "local", "sandbox": "gvisor"}`)
	s.Until("the heartbeat reports that the agent is too old", func() bool { return strings.Contains(s.LastBeat().Unhealthy, `unknown field "sandbox"`) })
	s.Configure("r5", `{"type": "local", "job": {"secrets": {"LICENCE": "/nowhere"}}}`)
	s.Until("the heartbeat names the configuration", func() bool { b := s.LastBeat(); return b.Configuration == "r5" && b.Unhealthy == "" })
	if d := s.UntilDied(s.Queue(checkSpec())).Died; d.Reason != "misconfigured" || !strings.Contains(d.Message, "/nowhere") {
		t.Errorf("the job died of %+v", d)
	}
	s.Configure("r6", `{"type": "local"}`)
	s.Until("the heartbeat names the configuration", func() bool { return s.LastBeat().Configuration == "r6" })
	succeeded(t, s.UntilFinished(s.Queue(checkSpec())))
	s.Until("nothing left on disk", func() bool {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(here), "*", "work", "*"))
		return err == nil && len(left) == 0 && a.empty()
	})
}

// An operator can make an agent follow only its own file.
func TestFinalFileIgnoresTheConfiguration(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	s.Configure("r1", `{"type": "docker", "job": {"volumes": ["/:/host"]}}`)
	startAgent(t, s, "", "FAIRLEAD_AGENT_CONFIG={final: true, runner_configuration: {type: local}}")
	succeeded(t, s.UntilFinished(s.Queue(checkSpec())))
	s.Until("the heartbeat names the configuration", func() bool { return s.LastBeat().Configuration == "r1" })
	if b := s.LastBeat(); b.Unhealthy != "" {
		t.Errorf("the heartbeat is %+v", b)
	}
}

// An agent whose kind needs an engine reports that the engine is unreachable, and fails its jobs with that reason.
func TestUnreachableEngineIsReported(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	s.Configure("r1", `{"type": "docker", "host": "unix:///nowhere/docker.sock", "job": {"image": "registry.example/runner:1"}}`)
	startAgent(t, s, "")
	s.Until("the heartbeat has the reason for being unhealthy", func() bool { return strings.Contains(s.LastBeat().Unhealthy, "/nowhere/docker.sock") })
	if d := s.UntilDied(s.Queue(checkSpec())).Died; d.Reason != "launch-failed" || !strings.Contains(d.Message, "/nowhere/docker.sock") {
		t.Errorf("the job died of %+v", d)
	}
}
