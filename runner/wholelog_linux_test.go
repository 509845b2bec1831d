package main

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/plane"
)

// The log of a killed step is marked as truncated only if bytes may be missing.
func TestCompleteLogOfAKilledStepIsNotTruncated(t *testing.T) {
	t.Run("the tool had ended: the log is complete, with the unsent part", func(t *testing.T) {
		t.Parallel()
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		wait := filepath.Join(t.TempDir(), "go-on")
		job, _ := applyingOn(t, s, "local", module(`echo working; while [ ! -e `+wait+` ]; do sleep 0.05; done; echo last line`))
		s.SetDown(true)
		if err := os.WriteFile(wait, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Until("the log is complete", func() bool { return len(a.glob("steps/"+job+"-1/log-end.json")) == 1 })
		syscall.Kill(a.stepPID(job), syscall.SIGKILL)
		s.SetDown(false)
		j := s.UntilDied(job)
		if l := j.Died.Log; l == nil || l.Size != int64(len(j.Log)) || l.CRC32 != crc32.ChecksumIEEE(j.Log) || !hasLine(j.Log, "last line") {
			t.Errorf("reported for a log of %d bytes: %+v:\n%s", len(j.Log), l, j.Log)
		}
	})
	t.Run("the tool was running: the log may be incomplete", func(t *testing.T) {
		t.Parallel()
		s := plane.New(t, plane.Options{})
		a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
		job, _ := applyingOn(t, s, "local", patientModule(mark()))
		syscall.Kill(a.stepPID(job), syscall.SIGKILL)
		if l := s.UntilDied(job).Died.Log; l != nil {
			t.Errorf("a log without a known end was reported as complete: %+v", *l)
		}
	})
}
