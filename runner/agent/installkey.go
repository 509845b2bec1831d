package agent

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/installseed"
)

// makeSeed makes a seed of install keys in a new data folder. A folder that an agent of an earlier release has used gets none:
// another agent of the same runner may have another folder, and two seeds of one runner cannot read each other's values. The
// caller makes the other folders only after the seed.
func makeSeed(data string) error {
	if _, err := os.Lstat(filepath.Join(data, stepsFolder)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return installseed.Make(data, rand.Reader)
}

// ownSeed reports whether the steps of a launcher use the seed in the agent's data folder: the agent's file names no other, and
// the folder is on the machine that runs the steps. The data folder of an agent of other steps may be empty at each start.
func (a *Agent) ownSeed(by *launcher) bool {
	kind := by.setup.Executor()
	return a.executors.file.InstallKey == "" && a.options.Executor == nil && (kind == runnerspec.ExecutorProcess || kind == runnerspec.ExecutorDocker)
}

// seedReference returns where a step finds the seed of the install keys; "": the agent gives it to the step, or there is none.
func (a *Agent) seedReference(by *launcher) string {
	if ref := a.executors.file.InstallKey; ref != "" || !a.ownSeed(by) || !by.place.Shared {
		return ref
	}
	path := installseed.Path(a.cfg.Data)
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return runnerspec.StoreFile + ":" + path
}

// seedFor returns the variable with the seed for a step that does not see the data folder; none if the step needs none.
func (a *Agent) seedFor(by *launcher, in attempt.Input) ([]string, error) {
	if in.InstallKey != "" || !a.ownSeed(by) || by.place.Shared {
		return nil, nil
	}
	seeds, err := installseed.Read(a.cfg.Data)
	if err != nil || seeds == "" {
		return nil, err
	}
	return []string{attempt.SeedVariable + "=" + seeds}, nil
}
