package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// pinnedVersion is the version of OpenTofu in tools/opentofu/go.mod; a test compares the
// two.
const pinnedVersion = "1.12.6"

// overrideEnv is the environment variable with a tool that overrides all others.
const overrideEnv = "FAIRLEAD_TOFU"

// finder finds the tool, or downloads or builds it.
type finder struct {
	cache   string // the user's cache folder
	pinned  bool   // use no tool from PATH
	release release
	module  string // folder of the module that pins OpenTofu
	log     io.Writer
}

func (f finder) find(ctx context.Context) (string, error) {
	if name := os.Getenv(overrideEnv); name != "" {
		path, err := lookup(name)
		if err == nil {
			err = usable(ctx, path)
		}
		if err != nil {
			// A fallback would run another tool than the user requested.
			return "", fmt.Errorf("%s=%s cannot be used: %w", overrideEnv, name, err)
		}
		return path, nil
	}
	if !f.pinned {
		for _, name := range []string{"tofu", "terraform"} {
			path, err := lookup(name)
			if errors.Is(err, exec.ErrNotFound) {
				continue
			}
			if err == nil {
				err = usable(ctx, path)
			}
			if err == nil {
				return path, nil
			}
			fmt.Fprintf(f.log, "not using %s from PATH: %v\n", name, err)
		}
	}
	return f.getPinned(ctx)
}

// lookup returns the absolute path of the executable.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", err
	}
	return filepath.Abs(path)
}

// getPinned returns the pinned OpenTofu from the cache. If it is missing, getPinned
// downloads or builds it. If several processes call getPinned, one process gets the tool
// and the other processes wait.
func (f finder) getPinned(ctx context.Context) (string, error) {
	dir := filepath.Join(f.cache, "fairlead", "opentofu-"+pinnedVersion)
	path := filepath.Join(dir, "tofu")
	if isPinned(ctx, path) == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the cache folder: %w", err)
	}
	unlock, err := f.lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if isPinned(ctx, path) == nil { // another process got it meanwhile
		return path, nil
	}

	tmp := filepath.Join(dir, fmt.Sprintf("tofu.%d.tmp", os.Getpid()))
	defer os.Remove(tmp) // after success the file is renamed already
	err = f.fetch(ctx, tmp)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(f.log, "OpenTofu %s cannot be downloaded (%v)\n", pinnedVersion, err)
		err = f.build(ctx, tmp)
	}
	if err == nil {
		err = isPinned(ctx, tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return "", fmt.Errorf("get OpenTofu %s: %w (install `tofu` or `terraform`, or set %s)", pinnedVersion, err, overrideEnv)
	}
	return path, nil
}

// lockPoll is the time between two attempts to get the lock. The holder of the lock needs
// seconds or minutes.
const lockPoll = 200 * time.Millisecond

// lock waits for the lock on the file and acquires it. The system releases the lock when
// its holder exits.
func (f finder) lock(ctx context.Context, name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	for reported := false; ; reported = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, file.Close())
		}
		if !reported {
			fmt.Fprintln(f.log, "waiting for another process that downloads or builds OpenTofu")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockPoll):
		}
	}
}
