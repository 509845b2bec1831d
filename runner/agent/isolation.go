package agent

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/workspace"
)

// The values of FAIRLEAD_ISOLATION.
const (
	isolationWanted   = "wanted"
	isolationRequired = "required"
	isolationOff      = "off"
)

// The values of FAIRLEAD_SHARED_PROCESS.
const (
	sharedYes = "true"
	sharedNo  = "false"
)

// checkIsolation refuses unknown values of FAIRLEAD_ISOLATION and FAIRLEAD_SHARED_PROCESS, and relative paths.
func checkIsolation(cfg config.Runner) error {
	switch cfg.Isolation {
	case "", isolationWanted, isolationRequired, isolationOff:
	default:
		return fmt.Errorf("FAIRLEAD_ISOLATION: %q is not one of %s, %s, %s", cfg.Isolation, isolationWanted, isolationRequired, isolationOff)
	}
	if s := cfg.SharedProcess; s != "" && s != sharedYes && s != sharedNo {
		return fmt.Errorf("FAIRLEAD_SHARED_PROCESS: %q is not one of %s, %s", s, sharedYes, sharedNo)
	}
	for name, paths := range map[string][]string{"FAIRLEAD_READABLE": cfg.Readable, "FAIRLEAD_WRITABLE": cfg.Writable, "FAIRLEAD_PRIVATE": cfg.Private} {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				return fmt.Errorf("%s: %q is not an absolute path", name, path)
			}
		}
	}
	return nil
}

// isolationAt returns the mechanism that keeps the tools of different steps apart at the place.
func isolationAt(cfg config.Runner, place executor.Place) string {
	switch {
	case !place.Machine:
		return wire.IsolationContainer
	case cfg.Isolation != isolationOff && confine.Supported():
		return wire.IsolationLandlock
	}
	return wire.IsolationNone
}

// confined returns what the tools of a step can reach in addition to the job's own folders; nil if
// nothing confines them.
func (a *Agent) confined(by *launcher) *attempt.Confined {
	if by.isolated != wire.IsolationLandlock {
		return nil
	}
	private := slices.Concat([]string{a.cfg.Data, workspace.Path(by.work(a.cfg.Data), "")}, a.cfg.Private)
	for _, file := range []string{a.cfg.EnrolmentTokenFile, environment(a.environ, "FAIRLEAD_OIDC_TOKEN_FILE")} {
		if path, err := filepath.Abs(file); file != "" && err == nil {
			private = append(private, path)
		}
	}
	// A vendor's program must not read what the policy would notice, and still less change it.
	if p, err := runnerspec.ParsePolicy(a.executors.file.Policy); err == nil && p.Store == runnerspec.StoreFile {
		private = append(private, p.Name)
	}
	if l, err := runnerspec.ParseLedger(a.executors.file.Ledger); err == nil && l.Store == runnerspec.StoreFile {
		private = append(private, l.Name)
	}
	return &attempt.Confined{Readable: a.cfg.Readable, Writable: a.cfg.Writable, Private: private}
}
