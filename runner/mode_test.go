package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/testserver"
)

// say runs a customer's command on the agent's machine and returns its output.
func say(t *testing.T, data string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"agent"}, args...)...)
	cmd.Env = []string{"FAIRLEAD_RUNNER_DATA=" + data, "GOCOVERDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("agent %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// reported waits until a heartbeat reports the customer's mode; "": the customer set none.
func reported(s *plane.Plane, mode string) wire.SessionHeartbeat {
	var b wire.SessionHeartbeat
	s.Until("the heartbeat reports the customer's mode "+mode, func() bool {
		b = s.LastBeat()
		return b.Capacity > 0 && (b.Customer == nil && mode == "" || b.Customer != nil && b.Customer.Mode == mode)
	})
	return b
}

// The customer pauses the agent during an apply. The apply continues to its end, and no other job starts, also after a
// restart. The agent does not even send claims. After the customer enables it, the waiting job runs.
func TestCustomersModeIsKept(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	gate := filepath.Join(t.TempDir(), "gate")
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	apply := applying(t, s, module(`echo working; while ! test -e `+gate+`; do sleep 0.05; done`), nil)
	if output := say(t, a.Data, "pause", "--reason", "books are\nclosed"); !strings.HasPrefix(output, "paused since 20") || !strings.Contains(output, "(books are closed)") {
		t.Errorf("pause prints %q", output)
	}
	b := reported(s, "paused")
	if b.Customer.Reason != "books are closed" || b.Customer.Since == nil || len(b.Running) != 1 {
		t.Errorf("heartbeat %+v, customer %+v", b, b.Customer)
	}
	s.Until("the last poll ends", func() bool { return s.Open(wire.ClaimJob) == 0 })
	asked := s.Asked(wire.ClaimJob)
	waits := s.Queue(checkSpec())
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.UntilFinished(apply); j.Finish.Outcome != "succeeded" {
		t.Errorf("the running apply ended as %+v", *j.Finish)
	}
	s.Until("nothing left on disk", a.empty)
	if output := say(t, a.Data, "drain", "--wait"); !strings.Contains(output, "No step runs.") {
		t.Errorf("drain prints %q", output)
	}
	reported(s, "draining")

	a.kill()
	again := startAgent(t, s, a.Data)
	s.Until("the next agent is ready", func() bool { return strings.Contains(again.out.String(), "msg=ready") })
	_, beats := s.Counts()
	s.Until("the next agent sends a heartbeat", func() bool { _, n := s.Counts(); return n > beats })
	reported(s, "draining")
	if now := s.Asked(wire.ClaimJob); now != asked || s.Job(waits).Claimed {
		t.Errorf("%d claims were sent against the customer's mode, claimed: %t", now-asked, s.Job(waits).Claimed)
	}
	if output := say(t, a.Data, "enable"); output != "enabled\n" {
		t.Errorf("enable prints %q", output)
	}
	if j := s.UntilFinished(waits); j.Epoch != 1 {
		t.Errorf("the waiting job was claimed %d times", j.Epoch)
	}
	reported(s, "")
}

// A disabled agent stops its running jobs in the same way as a cancel does: the tool saves its state, and the end is
// reported.
func TestDisablingAnAgentStopsItsJobs(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	m := mark()
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, patientModule(m), nil)
	say(t, a.Data, "disable")
	j := s.UntilFinished(job)
	if j.Finish.Outcome != "canceled" || j.Finish.Reason != "interrupted" {
		t.Errorf("finished as %+v", *j.Finish)
	}
	if left := alive(m); len(left) > 0 {
		t.Errorf("processes still alive: %q", left)
	}
	if st, err := os.ReadFile(filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate")); err != nil || !strings.Contains(string(st), `"first"`) {
		t.Errorf("the state lacks the new resource: %v %s", err, st)
	}
	reported(s, "disabled")
	if output := say(t, a.Data, "mode"); !strings.HasPrefix(output, "disabled since ") {
		t.Errorf("mode prints %q", output)
	}
	select {
	case <-a.done:
		t.Error("the agent has ended")
	default:
	}
}

// The agent has a mode from its environment (FAIRLEAD_MODE) and a mode from mode.json. The stricter mode applies. An
// unreadable mode.json counts as paused.
func TestStricterModeIsApplied(t *testing.T) {
	for name, tc := range map[string]struct {
		started, file string
		want          string
	}{
		"started paused, enabled since":          {"paused", `{"mode":"enabled"}`, "paused"},
		"started paused, disabled since":         {"paused", `{"mode":"disabled"}`, "disabled"},
		"started draining, paused since":         {"draining", `{"mode":"paused"}`, "draining"},
		"started enabled, a truncated mode.json": {"enabled", `{"mode":"dis`, "paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := plane.New(t, plane.Options{Heartbeat: time.Second})
			waits := s.Queue(checkSpec())
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, "mode.json"), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			startAgent(t, s, data, "FAIRLEAD_MODE="+tc.started, "FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken())
			reported(s, tc.want)
			s.Until("the agent had time to claim", func() bool { _, beats := s.Counts(); return beats > 2 })
			if n := s.Asked(wire.ClaimJob); n > 0 || s.Job(waits).Claimed {
				t.Errorf("%d claims were sent, claimed: %t", n, s.Job(waits).Claimed)
			}
		})
	}
}

func TestInvalidModeIsRefused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_MODE=off")
	if code := a.exit(s); code != 1 || !strings.Contains(a.out.String(), `FAIRLEAD_MODE: "off" is not a mode`) {
		t.Errorf("exit code %d, output %s", code, a.out)
	}
	for args, want := range map[string]string{
		"pause --data " + t.TempDir() + "/none": "find the agent's data folder",
		"mode --data " + t.TempDir() + "/none":  "find the agent's data folder",
		"pause --until monday":                  "flag provided but not defined",
	} {
		var output bytes.Buffer
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, append([]string{"agent"}, strings.Fields(args)...)...)
		cmd.Stderr = &output
		if err := cmd.Run(); err == nil || !strings.Contains(output.String(), want) {
			t.Errorf("%s: %v, %s", args, err, &output)
		}
	}
}

// Table of both modes: each pair of the vendor's and the customer's mode has a runner with a real agent and a waiting job.
// The job runs only if both modes are enabled. If one mode is set to enabled again, the other mode still applies.
func TestJobNeedsBothModesEnabled(t *testing.T) {
	t.Parallel()
	p := newLocal(t)
	type cell struct{ vendor, customer string }
	modes := []string{"enabled", "paused", "draining", "disabled"}
	agents, jobs := map[cell]*agentProcess{}, map[cell]string{}
	for _, vendor := range modes {
		for _, customer := range modes {
			at := cell{vendor, customer}
			name := vendor + "-" + customer
			agents[at] = p.agent(name, "FAIRLEAD_MODE="+customer)
			if _, err := p.SetRunnerMode(t.Context(), name, vendor); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at := range agents {
		name := at.vendor + "-" + at.customer
		testserver.Until(t, "the agent of runner "+name, func() bool {
			r, err := p.GetRunner(t.Context(), name)
			customer := "enabled"
			if err == nil && r.Customer != nil {
				customer = r.Customer.Mode
			}
			return err == nil && r.State == "online" && r.Mode == at.vendor && customer == at.customer && len(r.Sessions) == 1 && r.Sessions[0].Capacity > 0
		})
		jobs[at] = p.queueCheck(name)
	}
	p.untilSucceeded(jobs[cell{"enabled", "enabled"}])
	for range 10 { // time in which other jobs could have started
		p.untilSucceeded(p.queueCheck("enabled-enabled"))
	}
	for at, id := range jobs {
		j, err := p.GetJob(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if want := at == (cell{"enabled", "enabled"}); (j.ClaimedAt != nil) != want {
			t.Errorf("vendor mode %s, customer mode %s: the job is %s", at.vendor, at.customer, j.State)
		}
	}
	// The vendor enables all runners again: the customer's mode still applies.
	for at := range agents {
		if _, err := p.SetRunnerMode(t.Context(), at.vendor+"-"+at.customer, "enabled"); err != nil {
			t.Fatal(err)
		}
	}
	for _, vendor := range modes {
		p.untilSucceeded(jobs[cell{vendor, "enabled"}])
	}
	for at, id := range jobs {
		if j, err := p.GetJob(t.Context(), id); err != nil || (j.ClaimedAt != nil) != (at.customer == "enabled") {
			t.Errorf("vendor mode enabled, customer mode %s: the job is %s, %v", at.customer, j.State, err)
		}
	}
}

// localPlane is a control plane like that of `fairlead server`, and a client of its API.
type localPlane struct {
	*client.Client
	t   *testing.T
	url string
}

func newLocal(t *testing.T) *localPlane {
	t.Helper()
	s, err := local.Start(t.Context(), local.Options{Data: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &localPlane{Client: c, t: t, url: s.URL()}
}

// agent creates a runner and starts a real agent for it.
func (p *localPlane) agent(runner string, env ...string) *agentProcess {
	p.t.Helper()
	return p.agentOf("", runner, env...)
}

// agentOf is agent with another build of the runner.
func (p *localPlane) agentOf(program, runner string, env ...string) *agentProcess {
	p.t.Helper()
	if _, err := p.CreateRunner(p.t.Context(), wire.CreateRunnerRequest{Name: runner}); err != nil {
		p.t.Fatal(err)
	}
	e, err := p.CreateEnrolment(p.t.Context(), runner)
	if err != nil {
		p.t.Fatal(err)
	}
	return startAt(p.t, p.url, program, p.t.TempDir(), append([]string{"FAIRLEAD_ENROLMENT_TOKEN=" + e.Token}, env...)...)
}

func (p *localPlane) queueCheck(runner string) string {
	p.t.Helper()
	j, err := p.CheckRunner(p.t.Context(), runner)
	if err != nil {
		p.t.Fatal(err)
	}
	return j.ID
}

func (p *localPlane) untilSucceeded(job string) {
	p.t.Helper()
	testserver.Until(p.t, "the end of job "+job, func() bool {
		j, err := p.GetJob(p.t.Context(), job)
		return err == nil && j.State == "succeeded"
	})
}

// After the pause command returns, the agent starts no job.
func TestPauseReturnsAfterTheAgentPaused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	a := startAgent(t, s, "")
	s.Until("the agent is ready", func() bool { return strings.Contains(a.out.String(), "msg=ready") })
	if line := say(t, a.Data, "pause"); !strings.HasPrefix(line, "paused since 20") || strings.Count(line, "\n") != 1 {
		t.Errorf("pause prints %q", line)
	}
	waits := s.Queue(checkSpec()) // an agent that claims gets this job at once
	_, before := s.Counts()
	s.Until("the agent had time to claim", func() bool { _, beats := s.Counts(); return beats > before+1 })
	if s.Job(waits).Finish != nil {
		t.Fatal("a job started after the pause was confirmed")
	}
}

// The command reports an agent that does not confirm the mode, and does not wait if no agent runs.
func TestPauseReportsAnUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	begun := time.Now()
	if line := say(t, data, "pause"); !strings.HasPrefix(line, "paused since 20") || !strings.Contains(line, "No agent runs on this data folder.") {
		t.Errorf("without an agent, pause prints %q", line)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("without an agent, pause took %s", took)
	}
	f, err := os.OpenFile(filepath.Join(data, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "agent", "pause", "--data", data)
	cmd.Env = []string{"GOCOVERDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "The agent did not confirm the mode within 6s") {
		t.Errorf("exit code %d (%v), output %s", code, err, out)
	}
}
