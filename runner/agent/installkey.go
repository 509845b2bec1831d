package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/installseed"
	"github.com/fairlead/fairlead/runner/internal/secretsource"
	"github.com/fairlead/fairlead/runner/internal/secretsource/awsstore"
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

// seedByDefault reports whether no runner in a sandbox has the seed: the agent made it, or the agent's file states it.
func (a *Agent) seedByDefault(by *launcher) bool {
	return a.executors.file.InstallKeyByDefault || a.ownSeed(by)
}

// seedReference returns where a step finds the seed of the install keys; "": the agent gives it to the step, or there is none.
func (a *Agent) seedReference(by *launcher) string {
	if ref := a.executors.file.InstallKey; ref != "" || !a.ownSeed(by) || !by.place.Machine {
		return ref
	}
	path := installseed.Path(a.cfg.Data)
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return runnerspec.StoreFile + ":" + path
}

// seeds returns the seeds that the agent can read; "": it has none. They are those of its steps.
func (a *Agent) seeds(ctx context.Context) (string, error) {
	if ref := a.executors.file.InstallKey; ref != "" {
		from, err := runnerspec.ParseReference(ref)
		if err != nil {
			return "", err
		}
		given := map[string]string{}
		for _, v := range a.environ {
			if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, runnerspec.GivenPrefix) {
				given[name] = value
			}
		}
		return secretsource.Source{Given: given, AWS: awsstore.Read}.Read(ctx, environment(a.environ, "AWS_REGION"), from)
	}
	if by, err := a.executors.current(); err != nil || !a.ownSeed(by) {
		return "", nil
	}
	return installseed.Read(a.cfg.Data)
}

// hasSeed reports whether the agent reports keys of installs.
func (a *Agent) hasSeed() bool {
	if a.executors.file.InstallKey != "" {
		return true
	}
	by, err := a.executors.current()
	if err != nil || !a.ownSeed(by) {
		return false
	}
	_, err = os.Lstat(installseed.Path(a.cfg.Data))
	return err == nil
}

const (
	readSeedsEvery = 5 * time.Minute // from a secret store
	readSeedsFor   = 3 * time.Second // a heartbeat waits for it
	sendSeedsEvery = time.Hour       // the control plane answers a heartbeat also if it could not store the seeds
)

// seedReport decides which seeds a heartbeat names. Safe for concurrent use.
type seedReport struct {
	mu   sync.Mutex
	read time.Time // the last read of the seeds
	now  []string  // the identifiers of the seeds, the current one first
	sent []string  // what the control plane answered last
	at   time.Time // when it answered
}

// unsentSeeds returns the identifiers of the agent's seeds, or nil if it has sent them within
// sendSeedsEvery, or they cannot be read.
func (a *Agent) unsentSeeds(ctx context.Context) []string {
	r := &a.seedReport
	r.mu.Lock()
	defer r.mu.Unlock()
	// A file on this machine costs nothing. A secret store has a price and a rate limit.
	if stored := a.executors.file.InstallKey != ""; !stored || r.read.IsZero() || a.now().Sub(r.read) >= readSeedsEvery {
		r.read = a.now()
		ctx, cancel := context.WithTimeout(ctx, readSeedsFor)
		defer cancel()
		seeds, err := a.seeds(ctx)
		if err == nil && seeds != "" {
			r.now, err = installkey.SeedIDs(seeds)
		}
		if err != nil {
			a.log.Debug("cannot name the seeds of the install keys", "err", err)
		}
	}
	if slices.Equal(r.now, r.sent) && a.now().Sub(r.at) < sendSeedsEvery {
		return nil
	}
	return r.now
}

// accepted notes that the control plane answered a heartbeat with these seeds.
func (r *seedReport) accepted(seeds []string, at time.Time) {
	if len(seeds) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent, r.at = seeds, at
}

// reportKeysFor bounds one report of keys.
const reportKeysFor = 30 * time.Second

// reportKeys reports the public keys of installs. After an error the answer to the next heartbeat asks again.
func (a *Agent) reportKeys(ctx context.Context, installs []string) {
	ctx, cancel := context.WithTimeout(ctx, reportKeysFor)
	defer cancel()
	seeds, err := a.seeds(ctx)
	keys := map[string]string{}
	for _, id := range installs {
		var ring installkey.Ring
		if err == nil {
			ring, err = installkey.NewRing(seeds, fairlead.InstallID(id))
		}
		if err == nil {
			keys[id] = ring.Current().Public().String()
		}
	}
	if err == nil {
		err = a.session.do(ctx, func(c *client.Client) error { return c.ReportKeys(ctx, keys) })
	}
	if err != nil {
		a.log.Warn("cannot report the keys of installs; the answer to a later heartbeat asks again", "err", err)
	}
}

// seedFor returns the variable with the seed for a step that does not see the data folder; none if the step needs none.
func (a *Agent) seedFor(by *launcher, in attempt.Input) ([]string, error) {
	if in.InstallKey != "" || !a.ownSeed(by) || by.place.Machine {
		return nil, nil
	}
	seeds, err := installseed.Read(a.cfg.Data)
	if err != nil || seeds == "" {
		return nil, err
	}
	return []string{attempt.SeedVariable + "=" + seeds}, nil
}
