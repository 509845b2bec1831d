package attempt_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/attempt"
)

func TestLogEndTellsWhetherTheLogIsComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		log   string // "": the step has no log
		end   *attempt.LogEnd
		want  attempt.LogEnd
		whole bool
	}{
		"no log: complete":                     {"", nil, attempt.LogEnd{}, true},
		"a log without its end: incomplete":    {"working\n", nil, attempt.LogEnd{}, false},
		"a log with its end: complete":         {"working\n", &attempt.LogEnd{Size: 8}, attempt.LogEnd{Size: 8}, true},
		"a log that was truncated: incomplete": {"working\n", &attempt.LogEnd{Size: 8, Truncated: true}, attempt.LogEnd{Size: 8, Truncated: true}, false},
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
				t.Errorf("LogEnd = %+v, complete %v, want %+v, complete %v", got, whole, tc.want, tc.whole)
			}
		})
	}
}

func TestRenewalPeriodIsSaved(t *testing.T) {
	dir := newDir(t)
	if got := dir.Renew(); got != 0 {
		t.Errorf("before SaveRenew, Renew = %v, want 0", got)
	}
	if err := dir.SaveRenew(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := dir.Renew(); got != 15*time.Second {
		t.Errorf("Renew = %v, want 15s", got)
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
