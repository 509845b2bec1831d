// Package mirror keeps the archives of providers in storage of the customer, so that jobs whose disk is empty need not download
// them from a registry. The layout is that of a packed filesystem mirror of OpenTofu and Terraform, so the tools themselves can
// use a copy of it. Jobs of all operations write to the mirror, so a reader must compare an archive with its lock file.
package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

// Mirror stores archives. Names are valid for io/fs. Every driver passes mirrortest. Safe for concurrent use.
type Mirror interface {
	// Get writes the archive's content to w. The error is fs.ErrNotExist if the mirror has no archive of this name, and
	// ErrTooLarge if the archive has more than providers.MaxArchive bytes. After an error, w may have a part of the content.
	Get(ctx context.Context, name string, w io.Writer) error
	// Put stores the content of from, or replaces the archive. Readers see the earlier archive or the whole new one.
	Put(ctx context.Context, name string, from *os.File) error
}

// ErrTooLarge reports an archive with more than providers.MaxArchive bytes.
var ErrTooLarge = errors.New("the archive is too large")

// Folder is a mirror in a folder, such as a volume that several runners share.
type Folder string

// Get implements Mirror.
func (d Folder) Get(_ context.Context, name string, w io.Writer) error {
	f, err := safefile.Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	defer f.Close()
	return CopyLimited(w, f)
}

// Put implements Mirror.
func (d Folder) Put(_ context.Context, name string, from *os.File) error {
	if err := os.MkdirAll(string(d), 0o777); err != nil {
		return fmt.Errorf("make the folder of the mirror: %w", err)
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return err
	}
	defer root.Close()
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	part := name + ".part-" + rand.Text()
	to, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return nil
}

// CopyLimited copies an archive of at most providers.MaxArchive bytes. The error is ErrTooLarge if r has more.
func CopyLimited(w io.Writer, r io.Reader) error {
	n, err := io.Copy(w, io.LimitReader(r, providers.MaxArchive+1))
	if err == nil && n > providers.MaxArchive {
		err = ErrTooLarge
	}
	return err
}
