package attempt_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/attempt"
)

func TestWhatIsKnownOfALogWhoseStepHasDied(t *testing.T) {
	for name, tc := range map[string]struct {
		log   string // "": none was begun
		end   *attempt.LogEnd
		want  attempt.LogEnd
		whole bool
	}{
		"it had not begun: nothing is missing":  {"", nil, attempt.LogEnd{}, true},
		"it had begun: nobody can tell":         {"working\n", nil, attempt.LogEnd{}, false},
		"the tool was done: nothing is missing": {"working\n", &attempt.LogEnd{Size: 8}, attempt.LogEnd{Size: 8}, true},
		"the disk was full: bytes are missing":  {"working\n", &attempt.LogEnd{Size: 8, Truncated: true}, attempt.LogEnd{Size: 8, Truncated: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			if tc.log != "" {
				if err := os.WriteFile(dir.Path(attempt.LogFile), []byte(tc.log), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.end != nil {
				if err := dir.SaveLogEnd(*tc.end); err != nil {
					t.Fatal(err)
				}
			}
			if got, whole := dir.LogEnd(); got != tc.want || whole != tc.whole {
				t.Errorf("%+v, whole %v", got, whole)
			}
		})
	}
}

func TestRenewalIsKept(t *testing.T) {
	dir := newDir(t)
	if got := dir.Renew(); got != 0 {
		t.Errorf("before it was kept: %v", got)
	}
	if err := dir.SaveRenew(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := dir.Renew(); got != 15*time.Second {
		t.Errorf("kept as %v", got)
	}
}

func newDir(t *testing.T) attempt.Dir {
	t.Helper()
	dir, err := attempt.Create(filepath.Join(t.TempDir(), "job_1-1"), attempt.Input{})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
