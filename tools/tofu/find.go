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

// pinnedVersion is the OpenTofu of tools/opentofu/go.mod; a test holds the two
// together.
const pinnedVersion = "1.12.6"

// overrideEnv names a tool that is to be used whatever else there is.
const overrideEnv = "FAIRLEAD_TOFU"

// finder finds or gets the tool.
type finder struct {
	cache   string // the user's cache folder
	pinned  bool   // nothing from PATH
	release release
	module  string // the folder of the module that pins OpenTofu
	log     io.Writer
}

func (f finder) find(ctx context.Context) (string, error) {
	if name := os.Getenv(overrideEnv); name != "" {
		path, err := lookup(name)
		if err == nil {
			err = usable(ctx, path)
		}
		if err != nil {
			// Falling back would run another tool than the one asked for.
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

// getPinned returns the pinned OpenTofu from the cache, and puts it there if
// need be. Of several processes one gets it and the others wait.
func (f finder) getPinned(ctx context.Context) (string, error) {
	dir := filepath.Join(f.cache, "fairlead", "opentofu-"+pinnedVersion)
	path := filepath.Join(dir, "tofu")
	if isPinned(ctx, path) == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
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
	defer os.Remove(tmp) // it is gone if all went well
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

// lockPoll is how often a waiting process looks whether the lock is free; the
// holder needs seconds or minutes.
const lockPoll = 200 * time.Millisecond

// lock waits for the lock on the file. The system frees it when the holder
// dies.
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
			fmt.Fprintln(f.log, "waiting for another process that gets OpenTofu")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockPoll):
		}
	}
}
