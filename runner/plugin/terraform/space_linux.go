package terraform

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate creates a file of the size with all its blocks allocated.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	for {
		if err = unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			return errors.Join(err, f.Close())
		}
	}
}
