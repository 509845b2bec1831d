package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/proctree/proctreetest"
	"github.com/fairlead/fairlead/test/plane"
)

// A tool must save its state after its step was killed. Otherwise, the next plan would create some resources again: those
// that the tool created after it last saved its state.
func TestToolOfAKilledStepSavesItsState(t *testing.T) {
	for name, tc := range map[string]struct {
		storage string
		group   func(testing.TB) proctree.Group // makes the agent's control group; nil: the agent stays in the test's group
	}{
		"local":                      {"local", nil},
		"http, without a key":        {"http", nil},
		"local, the step has a shim": {"local", proctreetest.Barren},
	} {
		storage := tc.storage
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mark()
			s := plane.New(t, plane.Options{})
			var attr *syscall.SysProcAttr
			if tc.group != nil {
				attr = beginIn(t, tc.group(t))
			}
			data := t.TempDir()
			if storage == "http" { // with a key, the tool reaches the control plane only through its step
				data = keylessFolder(t)
			}
			a := startWith(t, s.URL(), "", data, attr, "FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken(), "FAIRLEAD_TOFU="+tool(t))
			job, ref := applyingOn(t, s, storage, patientModule(m))
			syscall.Kill(a.stepPID(job), syscall.SIGKILL)
			j := s.UntilDied(job)
			if left := alive(m); len(left) > 0 {
				t.Errorf("processes alive when the death was reported: %q", left)
			}
			if j.Died.Signal != "killed" {
				t.Errorf("reported as %+v", *j.Died)
			}
			s.Until("nothing left on disk", a.empty)
			// The next plan has only the resource whose creation was interrupted.
			p := succeeded(t, s.UntilFinished(s.Queue(spec("plan", storage, ref)))).Finish.Plan
			if p.Changes.Add != 1 || changes(p.ChangeSet, "terraform_data.first") {
				t.Errorf("the plan would create an existing resource again: %+v\n%+v", p.Changes, p.ChangeSet)
			}
		})
	}
}

// A plugin's program must be able to end in order after its step was killed: it gets the interrupt and the end of its standard input.
func TestProgramOfAKilledStepEndsInOrder(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	saved := filepath.Join(t.TempDir(), "saved")
	sp := noteSpec(s, saved, "http")
	sp.Artifact = s.PushOf("note", withEvents(strings.Replace(notePlugin, `: > "$file"`, `trap '' INT; echo working; read -r line; : > "$file"; exec sleep 0 `+m, 1)))
	plan := succeeded(t, s.UntilFinished(s.Queue(sp)))
	job := s.Queue(after(sp, "apply", plan))
	s.UntilLog(job, "working")
	syscall.Kill(a.stepPID(job), syscall.SIGKILL)
	j := s.UntilDied(job)
	if _, err := os.Stat(saved); err != nil || len(alive(m)) > 0 {
		t.Errorf("the program did not end in order: %v, alive: %q", err, alive(m))
	}
	if j.Died.Signal != "killed" {
		t.Errorf("reported as %+v", *j.Died)
	}
	s.Until("nothing left on disk", a.empty)
}

// changes reports whether the set has a change of the object.
func changes(set *changeset.Set, address string) bool {
	return slices.ContainsFunc(set.Changes, func(c changeset.Change) bool { return c.Address == address })
}

// If the tool of a killed step cannot save its state, the agent keeps the copy that the tool left.
func TestUnsavedStateOfAKilledStepIsKept(t *testing.T) {
	t.Parallel()
	t.Run("the control plane refuses the state", func(t *testing.T) { keepsUnsavedState(t, plane.Options{}, keylessFolder(t)) })
	// With a limit of bodies, or with a key, the tool reaches the control plane only through its step.
	t.Run("the relay ends with the step", func(t *testing.T) { keepsUnsavedState(t, plane.Options{MaxBody: 1 << 20}, keylessFolder(t)) })
	t.Run("the step that encrypts ends", func(t *testing.T) { keepsUnsavedState(t, plane.Options{}, t.TempDir()) })
}

func keepsUnsavedState(t *testing.T, o plane.Options, data string) {
	t.Parallel()
	m := mark()
	s := plane.New(t, o)
	a := startAt(t, s.URL(), "", data, "FAIRLEAD_ENROLMENT_TOKEN="+s.EnrolmentToken(), "FAIRLEAD_TOFU="+tool(t))
	job, _ := applyingOn(t, s, "http", patientModule(m))
	s.RefuseState()
	syscall.Kill(a.stepPID(job), syscall.SIGKILL)
	j := s.UntilDied(job)
	kept := a.glob("salvage/" + job + "-1/errored.tfstate")
	if len(kept) != 1 || !strings.Contains(j.Died.Message, strings.TrimPrefix(kept[0], a.Data+"/")) {
		t.Fatalf("salvaged %q, reported as %+v", kept, *j.Died)
	}
	if b, err := os.ReadFile(kept[0]); err != nil || !strings.Contains(string(b), `"first"`) {
		t.Errorf("the salvaged state lacks the new resource: %v %s", err, b)
	}
}

// If an agent and its step die at the same time, the next agent waits for the tool.
func TestNextAgentWaitsForTheTool(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	job, ref := applyingOn(t, s, "local", patientModule(m))
	pid := a.stepPID(job)
	a.kill()
	syscall.Kill(pid, syscall.SIGKILL)
	startAgent(t, s, a.Data, "FAIRLEAD_TOFU="+tool(t))
	if j := s.UntilDied(job); j.Died.Reason != "vanished" {
		t.Errorf("reported as %+v", *j.Died)
	}
	if left := alive(m); len(left) > 0 {
		t.Errorf("processes alive when the death was reported: %q", left)
	}
	p := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref)))).Finish.Plan
	if changes(p.ChangeSet, "terraform_data.first") {
		t.Errorf("the plan would create an existing resource again: %+v", p.ChangeSet)
	}
}

// applyingOn is like applying, with a choice of storage, and also returns the module's artifact.
func applyingOn(t *testing.T, s *plane.Plane, storage string, files map[string]string) (job string, ref *events.ArtifactRef) {
	t.Helper()
	ref = s.Push(files)
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", storage, ref))))
	job = s.Queue(applySpec("apply", storage, ref, plan)) // the apply's grace period is 5 s
	s.UntilLog(job, "working")
	return job, ref
}

// A tool that cannot end, because it cannot store its state, is killed before the death of its step is reported.
func TestHangingToolOfAKilledStepIsKilled(t *testing.T) {
	t.Parallel()
	m := mark()
	s := plane.New(t, plane.Options{})
	a := keyless(t, s, "FAIRLEAD_TOFU="+tool(t))
	job, _ := applyingOn(t, s, "http", patientModule(m))
	s.SetDown(true) // the tool retries for a minute, longer than its grace period of 5 s
	syscall.Kill(a.stepPID(job), syscall.SIGKILL)
	s.Until("the tool is gone", func() bool { return len(alive(job))+len(alive(m)) == 0 })
	s.SetDown(false)
	if j := s.UntilDied(job); !strings.Contains(j.Died.Message, "did not end in time") {
		t.Errorf("reported as %+v", *j.Died)
	}
}
