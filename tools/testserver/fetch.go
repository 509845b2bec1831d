package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// fetchLimit is the longest time of a download, which has some 50 MB.
const fetchLimit = 5 * time.Minute

// Fetch returns the folder of the program and downloads it if it is not in the user's
// cache. Test binaries run at the same time, so a lock file lets one binary download
// while the other binaries wait. A rename makes the finished folder appear at once.
func (p Program) Fetch(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for %s: %w", p.Name, err)
	}
	dir := filepath.Join(cache, "fairlead", p.Folder)
	lib := filepath.Join(dir, "lib")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the cache folder of %s: %w", p.Name, err)
	}
	unlock, err := Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("lock the cache folder of %s: %w", p.Name, err)
	}
	defer unlock()
	if _, err := os.Stat(lib); !errors.Is(err, fs.ErrNotExist) {
		return lib, err
	}
	part := filepath.Join(dir, "lib.part")
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("clear the cache folder of %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := p.Install(ctx, dir, part); err != nil {
		return "", fmt.Errorf("download %s: %w", p.Name, err)
	}
	return lib, os.Rename(part, lib)
}

// Lock waits for the lock on the file and acquires it; it creates the file if
// necessary. The system releases the lock when the process ends.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing the file releases the lock
}

// Maven returns an Install that downloads the runtime dependencies of pom, the text of
// a pom.xml, into its folder.
func Maven(pom string) func(ctx context.Context, dir, part string) error {
	return func(ctx context.Context, dir, part string) error {
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, []byte(pom), 0o644); err != nil {
			return err
		}
		return run(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies",
			"-DincludeScope=runtime", "-DoutputDirectory="+part)
	}
}

// Pip returns an Install of requirements, the text of a requirements.txt. Each package
// in it must have a version and checksums.
func Pip(requirements string) func(ctx context.Context, dir, part string) error {
	return func(ctx context.Context, dir, part string) error {
		file := filepath.Join(dir, "requirements.txt")
		if err := os.WriteFile(file, []byte(requirements), 0o644); err != nil {
			return err
		}
		return run(ctx, "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input",
			"--require-hashes", "--no-deps", "--only-binary=:all:", "--target="+part, "-r", file)
	}
}

// Npm returns an Install of the packages in manifest, the text of a package.json, with
// the versions and checksums in lock, the text of its package-lock.json. The
// installation runs no scripts of the packages.
func Npm(manifest, lock string) func(ctx context.Context, dir, part string) error {
	return func(ctx context.Context, _, part string) error {
		if err := os.Mkdir(part, 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"package.json": manifest, "package-lock.json": lock} {
			if err := os.WriteFile(filepath.Join(part, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return run(ctx, "npm", "ci", "--prefix", part, "--ignore-scripts", "--no-audit", "--no-fund")
	}
}

func run(ctx context.Context, name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output.Bytes())
	}
	return nil
}
