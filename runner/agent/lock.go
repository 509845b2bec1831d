package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// takeLock ensures that only one agent uses the data folder. The kernel releases the lock when the
// process ends, even after a crash.
func takeLock(data string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(data, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range lockTries { // agentRuns may hold it briefly
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent uses the data folder %s. Stop that agent, or set FAIRLEAD_RUNNER_DATA to another folder", data)
		}
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return f, nil
}

// agentRuns reports whether an agent uses the data folder.
func agentRuns(data string) bool {
	f, err := os.Open(filepath.Join(data, lockFile))
	if err != nil {
		return false
	}
	defer f.Close() // releases the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
