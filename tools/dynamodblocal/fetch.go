package dynamodblocal

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

// fetchLimit bounds the download of some 50 MB.
const fetchLimit = 5 * time.Minute

//go:embed pom.xml
var pom string

// fetch returns the folder of the server's libraries, which are downloaded
// first if no test of this user ever did. Test binaries run side by side, so a
// lock file lets one of them download while the others wait; the folder
// appears whole or not at all.
func fetch(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("DynamoDB Local needs Java: %w", err)
	}
	version := regexp.MustCompile(`<artifactId>DynamoDBLocal</artifactId>\s*<version>([^<]+)<`).FindStringSubmatch(pom)
	if version == nil {
		return "", errors.New("pom.xml names no version of DynamoDBLocal")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for DynamoDB Local: %w", err)
	}
	dir := filepath.Join(cache, "fairlead", "dynamodb-local-"+version[1])
	lib := filepath.Join(dir, "lib")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a place for DynamoDB Local: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock the place of DynamoDB Local: %w", err)
	}
	defer func() { _ = lock.Close() }() // which unlocks
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return "", fmt.Errorf("lock the place of DynamoDB Local: %w", err)
	}
	if _, err := os.Stat(lib); !errors.Is(err, fs.ErrNotExist) {
		return lib, err
	}
	if err := download(ctx, dir, lib); err != nil {
		return "", fmt.Errorf("download DynamoDB Local: %w", err)
	}
	return lib, nil
}

func download(ctx context.Context, dir, lib string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("it needs Maven, once: %w", err)
	}
	part := filepath.Join(dir, "lib.part")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, []byte(pom), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", file,
		"dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return os.Rename(part, lib)
}
