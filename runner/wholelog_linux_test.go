package main

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/plane"
)

// The log of a killed step used to be marked as truncated, whatever had become
// of it. Now it is only if bytes may be missing.
func TestCompleteLogOfAKilledStepIsNotTruncated(t *testing.T) {
	t.Run("the tool was done: it is whole, also what had not been sent", func(t *testing.T) {
		t.Parallel()
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		wait := filepath.Join(t.TempDir(), "go-on")
		job, _ := applyingOn(t, s, "local", module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done; echo last words`))
		s.SetDown(true)
		if err := os.WriteFile(wait, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Until("the log is complete", func() bool { return len(a.glob("steps/"+job+"-1/log-end.json")) == 1 })
		syscall.Kill(a.stepPID(job), syscall.SIGKILL)
		s.SetDown(false)
		j := s.UntilDied(job)
		if l := j.Died.Log; l == nil || l.Size != int64(len(j.Log)) || l.CRC32 != crc32.ChecksumIEEE(j.Log) || !hasLine(j.Log, "last words") {
			t.Errorf("of %d bytes it is said %+v:\n%s", len(j.Log), l, j.Log)
		}
	})
	t.Run("the tool was at work: nobody can tell", func(t *testing.T) {
		t.Parallel()
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		job, _ := applyingOn(t, s, "local", patientModule(mark()))
		syscall.Kill(a.stepPID(job), syscall.SIGKILL)
		if l := s.UntilDied(job).Died.Log; l != nil {
			t.Errorf("a log whose end nobody knows is taken for whole: %+v", *l)
		}
	})
}
