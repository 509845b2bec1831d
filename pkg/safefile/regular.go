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

// ErrNotRegular means that a path is not a regular file.
var ErrNotRegular = errors.New("is not a regular file")

// Open opens a regular file for reading. It does not follow symbolic links, and it
// does not block, for example on a FIFO. It returns ErrNotRegular if the path is not
// a regular file, and fs.ErrNotExist if there is no file. It opens hard links, because
// hard links are safe: only a process that may open a file can link to the file, and a
// link cannot cross mounts. So a container can link only to files that it already has.
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

// Read returns the content of a regular file. A file of more than limit bytes is an
// error.
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
		return nil, fmt.Errorf("%s has more than the permitted %d bytes", path, limit)
	}
	return b.Bytes(), nil
}

// IsRegular reports whether the path is a regular file. It does not follow links.
func IsRegular(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode().IsRegular()
}
