package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/tofu"
)

// The apply of each module below runs until it is stopped. Each module has its own mark: the seconds of a sleep. The test finds
// the module's processes by the mark.

var marks atomic.Int64

func mark() string { return fmt.Sprintf("%d.%04d", 3000+os.Getpid()%1000, marks.Add(1)) }

// patientModule returns a module whose apply ends at the first signal.
func patientModule(mark string) map[string]string {
	return module(`echo working; exec sleep ` + mark)
}

// stubbornModule returns a module whose apply ignores signals and leaves two processes: one in the background, one in a
// session of its own.
func stubbornModule(mark string) map[string]string {
	return module(`trap '' INT TERM HUP; sleep ` + mark + ` & setsid sleep ` + mark + ` & echo working; while :; do sleep ` + mark + `; done`)
}

func module(command string) map[string]string {
	return map[string]string{"main.tf": fmt.Sprintf(`
resource "terraform_data" "first" {}
resource "terraform_data" "it" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = %q
  }
}
output "done" { value = terraform_data.it.id }
`, command)}
}

// alive lists the processes with the mark in their command line.
func alive(mark string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), mark) {
			continue
		}
		st, err := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		if err == nil && !strings.Contains(string(st), ") Z ") {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// tool returns one of the tools, in the order of FAIRLEAD_TOFU, tofu, terraform.
func tool(t *testing.T) string {
	tools := tofu.Tools(t)
	for _, name := range []string{"FAIRLEAD_TOFU", "tofu", "terraform"} {
		if tools[name] != "" {
			return tools[name]
		}
	}
	panic("tofu.Tools skips the test if there is no tool")
}

// applying plans the module and starts its apply, which then runs.
func applying(t *testing.T, s *plane.Plane, files map[string]string, change func(*events.JobSpec)) (job string) {
	t.Helper()
	ref := s.Push(files)
	sp := spec("plan", "local", ref)
	plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
	ap := applySpec("apply", "local", ref, plan)
	ap.Grace = 2
	if change != nil {
		change(&ap)
	}
	job = s.Queue(ap)
	s.UntilLog(job, "working")
	return job
}

func TestStoppedApplyIsReportedWithItsReason(t *testing.T) {
	for name, tc := range map[string]struct {
		module  func(string) map[string]string
		change  func(*events.JobSpec)
		stop    func(s *plane.Plane, a *agentProcess, job string)
		outcome string
		reason  string
	}{
		"canceled, the tool stops": {patientModule, nil,
			func(s *plane.Plane, _ *agentProcess, job string) { s.Cancel(job) }, "canceled", "canceled"},
		"canceled, the tool's processes ignore it": {stubbornModule, nil,
			func(s *plane.Plane, _ *agentProcess, job string) { s.Cancel(job) }, "canceled", "canceled"},
		"timed out": {patientModule, func(sp *events.JobSpec) { sp.Timeout = 3 },
			func(*plane.Plane, *agentProcess, string) {}, "failed", "timeout"},
		"the second signal to the agent": {patientModule, nil,
			func(s *plane.Plane, a *agentProcess, job string) {
				a.signal(syscall.SIGTERM)
				s.Until("the agent drains", func() bool { return s.LastBeat().Draining })
				a.signal(syscall.SIGTERM)
			}, "canceled", "interrupted"},
		"kill -9 of the tool": {stubbornModule, nil,
			func(s *plane.Plane, a *agentProcess, job string) { killTool(a, job) }, "failed", "tool-killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mark()
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
			job := applying(t, s, tc.module(m), tc.change)
			tc.stop(s, a, job)
			j := s.UntilFinished(job)
			if left := alive(m); len(left) > 0 {
				t.Errorf("processes alive when the end was reported: %q", left)
			}
			if f := j.Finish; f.Outcome != tc.outcome || f.Reason != tc.reason || !f.Mutated {
				t.Errorf("finished as %+v", *f)
			}
			// A tool that is killed at once saves nothing: its state stays as it was, and the next plan finds the
			// difference.
			st, err := os.ReadFile(filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate"))
			if tc.reason != "tool-killed" && (err != nil || !strings.Contains(string(st), `"first"`)) {
				t.Errorf("the state lacks the new resource: %v %s", err, st)
			}
			s.Until("nothing left on disk", a.empty)
		})
	}
}

// killTool kills only the tool, not the processes that it started.
func killTool(a *agentProcess, job string) {
	for _, f := range a.glob("work/" + job + "-*/tool.pid") {
		b, _ := os.ReadFile(f)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestDeathIsReportedAfterAllProcessesEnd(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, stubbornModule(m), nil)
	syscall.Kill(a.stepPID(job), syscall.SIGKILL)
	j := s.UntilDied(job)
	if left := alive(m); len(left) > 0 {
		t.Errorf("processes alive when the death was reported: %q", left)
	}
	if j.Died.Reason != "killed" || j.Died.Signal != "killed" {
		t.Errorf("reported as %+v", *j.Died)
	}
	s.Until("nothing left on disk", a.empty)
}

func TestReplacedAgentDoesNotDisturbAnApply(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	wait := filepath.Join(t.TempDir(), "go-on")
	job := applying(t, s, module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done; echo `+m), nil)
	a.kill()
	b := startAgent(t, s, a.Data, "FAIRLEAD_TOFU="+tool(t))
	s.Until("the new agent reports the step", func() bool { return len(s.LastBeat().Running) == 1 && s.LastBeat().Running[0] == job })
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := succeeded(t, s.UntilFinished(job))
	if j.Epoch != 1 || !hasLine(j.Log, m) {
		t.Errorf("epoch %d, log %s", j.Epoch, j.Log)
	}
	s.Until("nothing left on disk", b.empty)
}

func TestUnwatchedDeathIsReportedAsVanished(t *testing.T) {
	for name, tc := range map[string]struct {
		between func(t *testing.T, a *agentProcess, job string)
	}{
		"agent and step killed": {func(t *testing.T, a *agentProcess, job string) {
			pid := a.stepPID(job)
			a.kill()
			syscall.Kill(pid, syscall.SIGKILL)
		}},
		"the step's process number was not recorded": {func(t *testing.T, a *agentProcess, job string) {
			pid := a.stepPID(job)
			a.kill()
			if err := os.Remove(a.glob("steps/" + job + "-*/process.json")[0]); err != nil {
				t.Fatal(err)
			}
			syscall.Kill(pid, syscall.SIGKILL)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mark()
			s := plane.New(t, plane.Options{})
			a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
			job := applying(t, s, stubbornModule(m), nil)
			tc.between(t, a, job)
			b := startAgent(t, s, a.Data, "FAIRLEAD_TOFU="+tool(t))
			j := s.UntilDied(job)
			if left := alive(m); len(left) > 0 {
				t.Errorf("processes alive when the death was reported: %q", left)
			}
			if j.Died.Reason != "vanished" {
				t.Errorf("reported as %+v", *j.Died)
			}
			s.Until("nothing left on disk", b.empty)
		})
	}
}

func TestStepWithoutRecordIsFoundAgain(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, patientModule(m), nil)
	a.kill()
	if err := os.Remove(a.glob("steps/" + job + "-*/process.json")[0]); err != nil {
		t.Fatal(err)
	}
	b := startAgent(t, s, a.Data, "FAIRLEAD_TOFU="+tool(t))
	s.Until("the new agent reports the step", func() bool { return len(s.LastBeat().Running) == 1 })
	s.Cancel(job)
	if j := s.UntilFinished(job); j.Finish.Outcome != "canceled" {
		t.Errorf("finished as %+v", *j.Finish)
	}
	s.Until("nothing left on disk", b.empty)
}

func TestDeathIsReportedWhenTheControlPlaneIsBack(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, stubbornModule(m), nil)
	s.SetDown(true)
	syscall.Kill(a.stepPID(job), syscall.SIGKILL)
	s.Until("the report is kept", func() bool { return len(a.glob("attempts/*/died.json")) == 1 })
	a.kill() // the next agent reports the death
	s.SetDown(false)
	b := startAgent(t, s, a.Data)
	if j := s.UntilDied(job); j.Died.Reason != "killed" {
		t.Errorf("reported as %+v", *j.Died)
	}
	s.Until("nothing left on disk", b.empty)
}

func TestDrainLetsStepsEnd(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	wait := filepath.Join(t.TempDir(), "go-on")
	job := applying(t, s, module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done`), nil)
	a.signal(syscall.SIGTERM)
	s.Until("the agent drains", func() bool { return s.LastBeat().Draining })
	// The control plane notices late that the agent closed its last poll. Until then it could give a job to the closed poll.
	s.Until("the last poll ends", func() bool { return s.Open(wire.ClaimJob) == 0 })
	claims, _ := s.Counts()
	later := s.Queue(checkSpec())
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	succeeded(t, s.UntilFinished(job))
	if code := a.exit(s); code != 0 {
		t.Errorf("the agent exited with %d", code)
	}
	if now, _ := s.Counts(); now != claims || s.Job(later).Claimed {
		t.Error("a draining agent claimed a job")
	}
	if !s.LastBeat().Ending || !a.empty() {
		t.Errorf("last heartbeat %+v, folders %v", s.LastBeat(), a.glob("steps/*"))
	}
}

func TestLostLeaseKillsTheToolAndWritesNothing(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{LeaseTTL: 15 * time.Second})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job := applying(t, s, stubbornModule(m), func(sp *events.JobSpec) { sp.Grace = 100 })
	s.Expire(job)
	s.Until("nothing left on disk", a.empty)
	if left := alive(m); len(left) > 0 {
		t.Errorf("still alive: %q", left)
	}
	if j := s.Job(job); j.Finish != nil || j.Died != nil {
		t.Errorf("a report without a lease was accepted: %+v %+v", j.Finish, j.Died)
	}
}

func TestOutageEndsAnApplyOnlyWithItsLease(t *testing.T) {
	t.Run("shorter than the lease: the apply continues and is reported", func(t *testing.T) {
		t.Parallel()
		s := plane.New(t, plane.Options{LeaseTTL: 15 * time.Second})
		startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		wait := filepath.Join(t.TempDir(), "go-on")
		job := applying(t, s, module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done; echo was-away`), nil)
		s.SetDown(true)
		if err := os.WriteFile(wait, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		state := func() bool {
			m, _ := filepath.Glob(wait)
			return len(m) == 1
		}
		s.Until("the apply continues", state)
		s.SetDown(false)
		if j := succeeded(t, s.UntilFinished(job)); !hasLine(j.Log, "was-away") {
			t.Errorf("log: %s", j.Log)
		}
	})
	t.Run("longer than the lease: the tool is interrupted and saves its state", func(t *testing.T) {
		t.Parallel()
		m := mark()
		s := plane.New(t, plane.Options{LeaseTTL: 4 * time.Second})
		a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		job := applying(t, s, patientModule(m), func(sp *events.JobSpec) { sp.Grace = 30 })
		s.Until("the lease was renewed", func() bool { return s.Job(job).Renewals > 0 })
		s.SetDown(true)
		s.Until("the tool has ended", func() bool { return len(alive(m)) == 0 })
		s.SetDown(false)
		j := s.UntilFinished(job)
		if f := j.Finish; f.Outcome != "failed" || f.Reason != "lease-expired" || !f.Mutated {
			t.Errorf("finished as %+v", *f)
		}
		if st, err := os.ReadFile(filepath.Join(a.Data, "state/ins_1/web/terraform.tfstate")); err != nil || !strings.Contains(string(st), `"first"`) {
			t.Errorf("the state lacks the new resource: %v", err)
		}
	})
}

func TestLogSurvivesLostAnswersAndRewinds(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	wait := filepath.Join(t.TempDir(), "go-on")
	job := applying(t, s, module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done; for i in $(seq 1 2000); do echo line-$i-of-the-log; done`), nil)
	s.LoseLogAnswers(job, 2)
	s.TruncateLog(job, 10) // the next append leaves a gap and is answered with offset 10
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := succeeded(t, s.UntilFinished(job)) // the server checks size and checksum
	// On a busy machine the tool breaks a line whose end it does not get within 100 ms.
	whole := regexp.MustCompile(`\n\S+ \(local-exec\): `).ReplaceAll(j.Log, nil)
	if n := len(regexp.MustCompile(`line-[0-9]+-of-the-log`).FindAll(whole, -1)); j.Finish.Log.Truncated || n != 2000 || !hasLine(j.Log, "working") {
		t.Errorf("%d lines in %d bytes, %+v", n, len(j.Log), j.Finish.Log)
	}
}
