//go:build unix

package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotRegular reports that a path is not a regular file.
var ErrNotRegular = errors.New("is no regular file")

// Open opens a regular file for reading. It follows no link and waits for
// nobody; what is no regular file is ErrNotRegular, what is not there fs.ErrNotExist.
// A hard link is the file itself, and opens: it can only be made by one who may
// open that file, and in a container to no file that it has no other name of,
// because a link does not cross mounts.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO): // a link, a socket
		return nil, fmt.Errorf("%s %w", path, ErrNotRegular)
	case err != nil:
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", path, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns what is in a regular file, which has at most limit bytes. One
// that has more is an error.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, min(st.Size(), limit)+bytes.MinRead)) // one allocation, if the file does not grow
	if _, err := b.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, fmt.Errorf("%s has more than the %d bytes that it may have", path, limit)
	}
	return b.Bytes(), nil
}

// IsRegular reports whether there is a regular file.
func IsRegular(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode().IsRegular()
}
