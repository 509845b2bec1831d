package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// release builds the runner's program with a version, like a release, and writes it to path.
func release(t *testing.T, path, version string) {
	t.Helper()
	b, err := os.ReadFile(program.Build(t, "runner", "-ldflags=-X main.version="+version))
	if err != nil {
		t.Fatal(err)
	}
	program.Write(t, path, b)
}

// A package manager replaces the runner's program during an apply, and systemd restarts the service: the old agent gets
// SIGTERM and then SIGKILL, but its step gets no signal. The new version continues on the same data folder. The apply
// succeeds, is reported once, and its log is complete.
func TestNewVersionTakesOverDuringAnApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installed, next, gate := filepath.Join(dir, "fairlead-runner"), filepath.Join(dir, "next"), filepath.Join(dir, "gate")
	release(t, installed, "v1.0.0")
	release(t, next, "v2.0.0")
	s := plane.New(t, plane.Options{})
	a := startProgram(t, s, installed, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, module(`echo working; while ! test -e `+gate+`; do sleep 0.05; done; echo the-last-of-it`), nil)
	step := a.stepPID(job)

	if err := os.Rename(next, installed); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGTERM)
	s.Until("the old agent drains", func() bool { return s.LastBeat().Draining })
	a.kill()
	b := startProgram(t, s, installed, a.Data, "FAIRLEAD_TOFU="+tool(t))
	s.Until("the new version runs", func() bool { return strings.Contains(b.out.String(), "version=v2.0.0") })
	s.Until("the new agent reports the step", func() bool {
		beat := s.LastBeat()
		return !beat.Draining && len(beat.Running) == 1 && beat.Running[0] == job
	})
	if now := b.stepPID(job); now != step || syscall.Kill(step, 0) != nil {
		t.Errorf("the step was process %d, now it is %d", step, now)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := succeeded(t, s.UntilFinished(job))
	if j.Epoch != 1 || j.Finishes != 1 || j.Died != nil || !hasLine(j.Log, "the-last-of-it") || int64(len(j.Log)) != j.Finish.Log.Size {
		t.Errorf("epoch %d, reported %d times, died %v, %d bytes of log of %d", j.Epoch, j.Finishes, j.Died, len(j.Log), j.Finish.Log.Size)
	}
	s.Until("nothing left on disk", b.empty)
	s.UntilFinished(s.Queue(checkSpec()))
}

// The vendor pins a version. An agent of another version then gets no jobs, logs the reason and waits;
// the runner and the waiting job name the reason. The agent of the pinned version opens its session
// beside the old one, and runs the job.
func TestPinnedRunnerRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, next := filepath.Join(dir, "v1"), filepath.Join(dir, "v2")
	release(t, old, "v1.0.0")
	release(t, next, "v2.0.0")
	p := newLocal(t)
	a := p.agentOf(old, "acme")
	pin := func(version string) {
		t.Helper()
		in := wire.RunnerConfigurationInput{Set: []string{"runner_configuration.version=" + version}}
		if _, err := p.UpdateRunner(t.Context(), "acme", wire.UpdateRunnerRequest{RunnerConfigurationInput: in}); err != nil {
			t.Fatal(err)
		}
	}
	pin("1.0.0") // the same version without its prefix
	p.untilSucceeded(p.queueCheck("acme"))
	pin("v2.0.0")
	waits := p.queueCheck("acme")
	testserver.Until(t, "the runner's situation", func() bool {
		r, err := p.GetRunner(t.Context(), "acme")
		return err == nil && len(r.Situations) == 1 && r.Situations[0].Kind == "runner-pinned" && strings.Contains(r.Situations[0].What, "pins version v2.0.0, and no agent runs it: it gets no jobs; 1 job waits")
	})
	testserver.Until(t, "the agent's log line", func() bool {
		return strings.Contains(a.out.String(), "this agent gets no jobs: the runner's configuration pins another version")
	})
	if j, err := p.GetJob(t.Context(), waits); err != nil || j.State != "queued" || len(j.Situations) != 1 || j.Situations[0].Kind != "runner-pinned" {
		t.Errorf("the waiting job is %s with the situations %+v, %v", j.State, j.Situations, err)
	}
	e, err := p.CreateEnrolment(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	startAt(t, p.url, next, t.TempDir(), "FAIRLEAD_ENROLMENT_TOKEN="+e.Token) // the old agent still runs
	p.untilSucceeded(waits)
	p.untilSucceeded(p.queueCheck("acme"))
}

// The operator sets the version of the channel stable. A runner of that channel receives the version in the response to a
// heartbeat. The runner is shown as outdated until it runs this version.
func TestRunnerFollowsItsChannel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, next := filepath.Join(dir, "v1"), filepath.Join(dir, "v2")
	release(t, old, "v1.0.0")
	release(t, next, "v2.0.0")
	p := newLocal(t)
	image := "registry.example/runner@sha256:" + strings.Repeat("0a", 32)
	if _, err := p.SetRunnerChannel(t.Context(), "stable", wire.SetRunnerChannelRequest{Version: "v1.0.0"}); err != nil {
		t.Fatal(err)
	}
	a := p.agentOf(old, "acme")
	configure := func(set string) {
		t.Helper()
		in := wire.RunnerConfigurationInput{Set: []string{set}}
		if _, err := p.UpdateRunner(t.Context(), "acme", wire.UpdateRunnerRequest{RunnerConfigurationInput: in}); err != nil {
			t.Fatal(err)
		}
	}
	shown := func(version string, situations int) wire.Runner {
		t.Helper()
		var r wire.Runner
		testserver.Until(t, "agents of "+version, func() bool {
			var err error
			r, err = p.GetRunner(t.Context(), "acme")
			return err == nil && r.State == "online" && r.Sessions[0].Version == version
		})
		if len(r.Situations) != situations {
			t.Errorf("the situations of a runner with %s are %+v", version, r.Situations)
		}
		return r
	}
	configure("runner_configuration.channel=stable")
	if r := shown("v1.0.0", 0); r.Wanted == nil || r.Wanted.Version != "v1.0.0" || r.Sessions[0].Protocol != wire.Protocol {
		t.Errorf("wanted version %+v, session %+v", r.Wanted, r.Sessions[0])
	}

	if _, err := p.SetRunnerChannel(t.Context(), "stable", wire.SetRunnerChannelRequest{Version: "v2.0.0", Image: image}); err != nil {
		t.Fatal(err)
	}
	r := shown("v1.0.0", 1)
	if *r.Wanted != (wire.WantedVersion{Version: "v2.0.0", Image: image, Channel: "stable"}) || r.Situations[0].Kind != "runner-outdated" ||
		!strings.Contains(r.Situations[0].What, "runs v1.0.0, but should run v2.0.0 (channel stable)") {
		t.Errorf("wanted version %+v, situation %+v", r.Wanted, r.Situations[0])
	}
	a.signal(syscall.SIGTERM)
	<-a.done
	again := startAt(t, p.url, old, a.Data) // the answer to its first heartbeat has the wanted version
	testserver.Until(t, "the old version's log line", func() bool {
		return strings.Contains(again.out.String(), `msg="the control plane wants another version of the runner; replacing the agent ends no job" runs=v1.0.0 wanted=v2.0.0 image=`+image)
	})
	again.signal(syscall.SIGTERM) // it reports its end; a killed agent would count as alive for a while
	<-again.done
	startAt(t, p.url, next, a.Data)
	shown("v2.0.0", 0)

	// A pinned version overrides the channel. A channel without a version is an error.
	configure("runner_configuration={version: v1.5.0, channel: null}")
	if r := shown("v2.0.0", 1); *r.Wanted != (wire.WantedVersion{Version: "v1.5.0"}) || r.Situations[0].Kind != "runner-pinned" {
		t.Errorf("wanted version %+v, situation %+v", r.Wanted, r.Situations)
	}
	for _, set := range []string{"runner_configuration.channel=stable", "runner_configuration={version: null, channel: edge}"} {
		in := wire.RunnerConfigurationInput{Set: []string{set}}
		if _, err := p.UpdateRunner(t.Context(), "acme", wire.UpdateRunnerRequest{RunnerConfigurationInput: in}); err == nil {
			t.Errorf("%s was accepted", set)
		}
	}
	configure("runner_configuration={version: null, channel: stable}")
	if err := p.DeleteRunnerChannel(t.Context(), "stable"); err != nil {
		t.Fatal(err)
	}
	if r := shown("v2.0.0", 0); r.Wanted != nil {
		t.Errorf("after the channel was deleted, the wanted version is %+v", r.Wanted)
	}
}
