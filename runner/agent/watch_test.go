package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/attempt"
)

// The tool of a dead step may save its state only while the step's lease certainly lasts. After the lease has expired, a
// new plan may read the state.
func TestSaveTimeEndsBeforeTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		grace, renew, want time.Duration
	}{
		"the default values":      {2 * time.Minute, 15 * time.Second, 20 * time.Second},
		"a short grace":           {5 * time.Second, 15 * time.Second, 5 * time.Second},
		"a short lease":           {2 * time.Minute, 3 * time.Second, 4 * time.Second},
		"a long lease":            {2 * time.Minute, 5 * time.Minute, 20 * time.Second},
		"no renewal period known": {2 * time.Minute, 0, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Agent{}
			a.cfg.Data = t.TempDir()
			for _, folder := range []string{stepsFolder, attemptsFolder} {
				if err := os.Mkdir(filepath.Join(a.cfg.Data, folder), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			dir, err := a.folders("job_1-1", attempt.Input{Grace: tc.grace})
			if err != nil {
				t.Fatal(err)
			}
			if tc.renew > 0 {
				if err := dir.SaveRenew(tc.renew); err != nil {
					t.Fatal(err)
				}
			}
			if got := a.saveTime("job_1-1"); got != tc.want {
				t.Errorf("saveTime = %v, want %v", got, tc.want)
			}
		})
	}
	if got := (&Agent{}).saveTime("job_none-1"); got != 0 {
		t.Errorf("saveTime without a folder = %v, want 0", got)
	}
}
