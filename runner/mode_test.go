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

// say runs one of the customer's commands, as a person on the agent's machine
// does, and returns what it says.
func say(t *testing.T, data string, words ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"agent"}, words...)...)
	cmd.Env = []string{"FAIRLEAD_RUNNER_DATA=" + data, "GOCOVERDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("agent %s: %v: %s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// heard waits until a heartbeat has brought the word: "" is leave to work.
func heard(s *plane.Plane, mode string) wire.SessionHeartbeat {
	var b wire.SessionHeartbeat
	s.Until("the control plane hears "+mode, func() bool {
		b = s.LastBeat()
		return b.Capacity > 0 && (b.Customer == nil && mode == "" || b.Customer != nil && b.Customer.Mode == mode)
	})
	return b
}

// The customer pauses the agent while an apply runs: the apply ends in peace,
// nothing else is begun, and a restart changes nothing about it. The agent does
// not even ask for work. When the customer lets it go on, what has waited is done.
func TestCustomersModeIsKept(t *testing.T) {
	s := plane.New(t, plane.Options{})
	gate := filepath.Join(t.TempDir(), "gate")
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	apply := applying(t, s, module(`echo working; while ! test -e `+gate+`; do sleep 0.05; done`), nil)
	if said := say(t, a.Data, "pause", "--reason", "books are\nclosed"); !strings.HasPrefix(said, "paused since 20") || !strings.Contains(said, "(books are closed)") {
		t.Errorf("it says %q", said)
	}
	b := heard(s, "paused")
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
		t.Errorf("the apply that ran ended as %+v", *j.Finish)
	}
	s.Until("nothing left on disk", a.empty)
	if said := say(t, a.Data, "drain", "--wait"); !strings.Contains(said, "No step runs.") {
		t.Errorf("it says %q", said)
	}
	heard(s, "draining")

	a.kill()
	again := startAgent(t, s, a.Data)
	s.Until("the next agent is there", func() bool { return strings.Contains(again.out.String(), "msg=ready") })
	_, beats := s.Counts()
	s.Until("it is heard", func() bool { _, n := s.Counts(); return n > beats })
	heard(s, "draining")
	if now := s.Asked(wire.ClaimJob); now != asked || s.Job(waits).Claimed {
		t.Errorf("jobs were asked for %d times against the customer's mode, claimed: %t", now-asked, s.Job(waits).Claimed)
	}
	if said := say(t, a.Data, "enable"); said != "enabled\n" {
		t.Errorf("it says %q", said)
	}
	if j := s.UntilFinished(waits); j.Epoch != 1 {
		t.Errorf("what has waited was claimed %d times", j.Epoch)
	}
	heard(s, "")
}

// Disabled, the agent stops what runs, as a cancel does: the tool saves its
// state and the end is reported.
func TestDisablingAnAgentStopsItsJobs(t *testing.T) {
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
		t.Errorf("these are alive: %q", left)
	}
	if st, err := os.ReadFile(filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate")); err != nil || !strings.Contains(string(st), `"first"`) {
		t.Errorf("the state does not know what was made: %v %s", err, st)
	}
	heard(s, "disabled")
	if said := say(t, a.Data, "mode"); !strings.HasPrefix(said, "disabled since ") {
		t.Errorf("it says %q", said)
	}
	select {
	case <-a.done:
		t.Error("the agent has ended")
	default:
	}
}

// What an agent is started with holds for as long as it runs, whatever is said
// to its folder; of two words the stricter counts. A word that nobody can read
// is no leave to work.
func TestStricterModeIsApplied(t *testing.T) {
	for name, tc := range map[string]struct {
		started, said string
		want          string
	}{
		"started paused, enabled since":    {"paused", `{"mode":"enabled"}`, "paused"},
		"started paused, disabled since":   {"paused", `{"mode":"disabled"}`, "disabled"},
		"started draining, paused since":   {"draining", `{"mode":"paused"}`, "draining"},
		"started enabled, the word is cut": {"enabled", `{"mode":"dis`, "paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := plane.New(t, plane.Options{Heartbeat: time.Second})
			waits := s.Queue(checkSpec())
			data := t.TempDir()
			if err := os.WriteFile(filepath.Join(data, "mode.json"), []byte(tc.said), 0o600); err != nil {
				t.Fatal(err)
			}
			startAgent(t, s, data, "FAIRLEAD_MODE="+tc.started, "FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken())
			heard(s, tc.want)
			s.Until("it has had time to claim", func() bool { _, beats := s.Counts(); return beats > 2 })
			if n := s.Asked(wire.ClaimJob); n > 0 || s.Job(waits).Claimed {
				t.Errorf("jobs were asked for %d times, claimed: %t", n, s.Job(waits).Claimed)
			}
		})
	}
}

func TestInvalidModeIsRefused(t *testing.T) {
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_MODE=off")
	if code := a.exit(s); code != 1 || !strings.Contains(a.out.String(), `FAIRLEAD_MODE: "off" is not a mode`) {
		t.Errorf("ended with %d and said %s", code, a.out)
	}
	for words, says := range map[string]string{
		"pause --data " + t.TempDir() + "/none": "find the agent's data folder",
		"mode --data " + t.TempDir() + "/none":  "find the agent's data folder",
		"pause --until monday":                  "flag provided but not defined",
	} {
		var said bytes.Buffer
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, append([]string{"agent"}, strings.Fields(words)...)...)
		cmd.Stderr = &said
		if err := cmd.Run(); err == nil || !strings.Contains(said.String(), says) {
			t.Errorf("%s: %v, %s", words, err, &said)
		}
	}
}

// TestJobNeedsBothModesEnabled is the table of what is claimed: the vendor's mode by the
// customer's, each on a runner of its own with a real agent and a job that
// waits. Only where both let it is anything begun; when either takes its word
// back, the other's stands.
func TestJobNeedsBothModesEnabled(t *testing.T) {
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
		testserver.Until(t, "the agent of "+name, func() bool {
			r, err := p.GetRunner(t.Context(), name)
			said := "enabled"
			if err == nil && r.Customer != nil {
				said = r.Customer.Mode
			}
			return err == nil && r.State == "online" && r.Mode == at.vendor && said == at.customer && len(r.Sessions) == 1 && r.Sessions[0].Capacity > 0
		})
		jobs[at] = p.queueCheck(name)
	}
	p.untilSucceeded(jobs[cell{"enabled", "enabled"}])
	for range 10 { // time in which others could have begun
		p.untilSucceeded(p.queueCheck("enabled-enabled"))
	}
	for at, id := range jobs {
		j, err := p.GetJob(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if want := at == (cell{"enabled", "enabled"}); (j.ClaimedAt != nil) != want {
			t.Errorf("the vendor says %s, the customer %s: the job is %s", at.vendor, at.customer, j.State)
		}
	}
	// The vendor takes its word back: the customer's stands.
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
			t.Errorf("the vendor says enabled, the customer %s: the job is %s, %v", at.customer, j.State, err)
		}
	}
}

// localPlane is a control plane as `fairlead server` starts it, and its API.
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

// agent makes a runner and starts a real agent of it.
func (p *localPlane) agent(runner string, env ...string) *agentProcess {
	p.t.Helper()
	return p.agentOf("", runner, env...)
}

// agentOf is agent with a build of the runner.
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

// A person who has paused the agent may rely on it from then on.
func TestPauseReturnsAfterTheAgentPaused(t *testing.T) {
	s := plane.New(t, plane.Options{Heartbeat: time.Second})
	a := startAgent(t, s, "")
	s.Until("the agent is there", func() bool { return strings.Contains(a.out.String(), "msg=ready") })
	if line := say(t, a.Data, "pause"); !strings.HasPrefix(line, "paused since 20") || strings.Count(line, "\n") != 1 {
		t.Errorf("it says %q", line)
	}
	waits := s.Queue(checkSpec()) // for any agent that asks, at once
	_, before := s.Counts()
	s.Until("it has had time to claim", func() bool { _, beats := s.Counts(); return beats > before+1 })
	if s.Job(waits).Finish != nil {
		t.Fatal("a job was begun after the pause was acknowledged")
	}
}

// The command does not claim that an agent has obeyed which does not look, and
// does not wait for one that is not there.
func TestPauseReportsAnUnresponsiveAgent(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	begun := time.Now()
	if line := say(t, data, "pause"); !strings.HasPrefix(line, "paused since 20") || !strings.Contains(line, "No agent runs on this data folder.") {
		t.Errorf("without an agent it says %q", line)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("without an agent it took %s", took)
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
		t.Errorf("it ends with %d (%v) and says %s", code, err, out)
	}
}
