package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/executor"
)

// installFile is the file of the data folder with the install whose jobs run as processes of this machine. No job can read or
// write it.
const installFile = "install.json"

// maxInstall limits installFile, in bytes.
const maxInstall = 4 << 10

// served is the content of installFile.
type served struct {
	ID   fairlead.InstallID `json:"id,omitempty"` // "": none yet, or a control plane that names no IDs
	Name string             `json:"name,omitempty"`
	// Any means that an agent of a version without this rule used the data folder. It may have served several installs, and
	// they must not stop when the agent is updated.
	Any bool `json:"any,omitempty"`
}

func (s served) is(id fairlead.InstallID, name string) bool {
	if s.ID == "" || id == "" {
		return s.Name == name
	}
	return s.ID == id
}

func readServed(data string) (s served, err error) {
	b, err := safefile.Read(filepath.Join(data, installFile), maxInstall)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("read which install this runner serves, in %s of its data folder: %w", installFile, err)
	}
	return s, err
}

func writeServed(data string, s served) error {
	b, err := json.Marshal(s)
	if err == nil {
		err = safefile.Replace(filepath.Join(data, installFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write which install this runner serves, in %s of its data folder: %w", installFile, err)
	}
	return nil
}

// keepUpgraded records a data folder that an agent of a version without this rule used, and a new one. It must be called
// before the identity is made.
func keepUpgraded(data string) error {
	_, err := readServed(data)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Stat(filepath.Join(data, identityFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the runner's identity: %w", err)
	}
	return writeServed(data, served{Any: err == nil})
}

// admit refuses a job of a second install whose step would be a process beside those of the first: as processes of one user, jobs
// of two installs reach each other. The agent decides it, because a control plane that the customer does not trust could start
// such a job.
func (a *Agent) admit(ctx context.Context, by *launcher, c wire.Claim) error {
	if !by.place.Machine || a.cfg.SharedProcess == sharedYes {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &executor.LaunchError{Cause: fairlead.CauseInstallRefused, Err: fmt.Errorf(format, args...)}
	}
	if c.Install == "" && c.InstallID == "" {
		if job.Operation(c.Operation).OfRunner() {
			return nil
		}
		return refuse("the job names no install, and this runner starts jobs as processes of one install only")
	}
	a.serving.Lock()
	defer a.serving.Unlock()
	s, err := readServed(a.cfg.Data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refuse("%w", err)
	}
	id := fairlead.InstallID(c.InstallID)
	switch {
	case s.Any:
		return nil
	case s == served{}, s.is(id, c.Install) && id != "" && s != served{ID: id, Name: c.Install}: // none yet, its ID is new, or its name
		return writeServed(a.cfg.Data, served{ID: id, Name: c.Install})
	case !s.is(id, c.Install) && a.forgotten(ctx, s):
		return writeServed(a.cfg.Data, served{ID: id, Name: c.Install})
	case !s.is(id, c.Install):
		return refuse("the job is for the install %s, and this runner, which starts jobs as processes, serves the install %s. Jobs of two installs would reach each other as processes of one user. "+
			"Give %s a runner whose jobs have containers (docker, kubernetes or ecs), or a machine of its own. "+
			"If this machine may run both, start the agent with FAIRLEAD_SHARED_PROCESS=true (fairlead dev --shared-process). If %s is gone, write {} into the file %s",
			c.Install, s.Name, c.Install, s.Name, filepath.Join(a.cfg.Data, installFile))
	}
	return nil
}

// forgotten reports whether the owner of the control plane has deleted an install. Only a control plane that belongs to the owner of
// this machine is believed. Without its answer, the install exists.
func (a *Agent) forgotten(ctx context.Context, s served) bool {
	if a.cfg.OwnerTokenFile == "" || s.ID == "" {
		return false
	}
	token, err := os.ReadFile(a.cfg.OwnerTokenFile)
	if err != nil {
		a.log.Warn("cannot ask whether the install that this runner serves still exists", "install", s.Name, "err", err)
		return false
	}
	c, err := newClient(a.id.URL, a.options)
	if err != nil {
		a.log.Warn("cannot ask whether the install that this runner serves still exists", "install", s.Name, "err", err)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	in, err := c.WithToken(strings.TrimSpace(string(token))).GetInstall(ctx, s.Name)
	if err != nil && !client.HasStatus(err, http.StatusNotFound) {
		a.log.Warn("cannot ask whether the install that this runner serves still exists", "install", s.Name, "err", err)
		return false
	}
	return err != nil || in.ID != string(s.ID)
}
