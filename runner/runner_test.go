package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/plane"
)

// The main case: an agent enrols, gets a session and claims a job, a step runs the job, and no files remain.
func TestAgentRunsAJob(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	job := s.Queue(checkSpec())
	j := s.UntilFinished(job)
	if j.Finish.Outcome != "succeeded" || j.Finishes != 1 {
		t.Errorf("finished %d times as %+v", j.Finishes, *j.Finish)
	}
	if !hasLine(j.Log, "runs job "+job) {
		t.Errorf("log: %q", j.Log)
	}
	s.Until("nothing left on disk", a.empty)

	a.signal(syscall.SIGTERM)
	if code := a.exit(s); code != 0 {
		t.Errorf("the agent exited with %d", code)
	}
	if b := s.LastBeat(); !b.Ending {
		t.Errorf("last heartbeat: %+v", b)
	}
	for _, f := range []string{"identity.key", "identity.json"} {
		st, err := os.Stat(a.Data + "/" + f)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, st, err)
		}
	}

	// The second start needs no token: the agent proves the same identity.
	startAgent(t, s, a.Data)
	s.UntilFinished(s.Queue(checkSpec()))
}

func TestManyJobsAtOnce(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", file("{type: local, concurrency: 4}"))
	var jobs []string
	for range 40 {
		jobs = append(jobs, s.Queue(checkSpec()))
	}
	for _, job := range jobs {
		if j := s.UntilFinished(job); j.Finish.Outcome != "succeeded" || j.Epoch != 1 {
			t.Errorf("job %s, epoch %d: %+v", job, j.Epoch, *j.Finish)
		}
	}
	s.Until("nothing left on disk", a.empty)
}

func TestSecondAgentOnOneFolderIsRefused(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	s.UntilFinished(s.Queue(checkSpec()))
	b := startAgent(t, s, a.Data)
	if code := b.exit(s); code != 1 || !strings.Contains(b.out.String(), "another agent uses the data folder") {
		t.Errorf("exit code %d, output %s", code, b.out)
	}
}

func TestLostFinishAnswerIsNoSecondReport(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	s.LoseFinishAnswers(2)
	job := s.Queue(checkSpec())
	s.UntilFinished(job)
	s.Until("the step gets the answer", a.empty)
	if j := s.Job(job); j.Finishes < 2 || j.Died != nil {
		t.Errorf("reported %d times, died %v", j.Finishes, j.Died)
	}
}

func TestEndedSessionIsReplaced(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "")
	s.UntilFinished(s.Queue(checkSpec()))
	s.EndSessions()
	s.UntilFinished(s.Queue(checkSpec()))
}

func TestAgentReconnectsAfterAnOutage(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	s.UntilFinished(s.Queue(checkSpec()))
	s.SetDown(true)
	s.Until("the agent logs the outage", func() bool { return strings.Contains(a.out.String(), "cannot claim jobs") })
	s.SetDown(false)
	s.UntilFinished(s.Queue(checkSpec()))
	if n := strings.Count(a.out.String(), "level=WARN msg=\"cannot claim jobs\""); n != 1 {
		t.Errorf("the log has the warning about claims %d times, want once", n)
	}
}
