// Package dir keeps blobs as files in a folder, for a control plane on one
// machine.
//
// A blob is written to a temporary file, synced, renamed to its place, and its
// folder is synced; so a crash at any moment leaves the old blob or the new
// one, and what Put confirmed survives the power going off. All paths are
// resolved within an os.Root: no key and no link in the folder leads out.
//
// The folder holds tmp/ for unfinished files and blobs/ for the rest. A key's
// segments are its path, its last one with ",blob" behind it, because "a" and
// "a/b" may both be keys and no file can be a folder too. An upper-case letter
// is written as "," and the lower-case one, because some file systems do not
// tell them apart. Neither can be taken for a key: keys have no comma.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	blobsDir = "blobs"
	tempDir  = "tmp"
	suffix   = ",blob"

	filePerm = 0o600
	dirPerm  = 0o700

	// writeStep is how many bytes are written between two looks at the context.
	writeStep = 1 << 20
)

// Store is a blob.Store. Safe for concurrent use. One process owns a folder at
// a time.
type Store struct {
	root *os.Root

	// mu orders changes of folders: between making a folder and renaming a
	// file into it, no Delete may find it empty and remove it, and no other Put
	// may find it made but not yet synced.
	mu sync.Mutex
}

var _ blob.Store = (*Store)(nil)

// New returns the store in the folder root, which it makes when there is none,
// and removes unfinished files that a crash left. The caller closes it.
// Errors are those of Put.
func New(root string) (*Store, error) {
	if err := makeRoot(root); err != nil {
		return nil, classify("make blob folder "+root, root, err)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, classify("open blob folder "+root, root, err)
	}
	s := &Store{root: r}
	if err := s.prepare(); err != nil {
		_ = r.Close() // it was only read from
		return nil, classify("prepare blob folder "+root, root, err)
	}
	return s, nil
}

// makeRoot makes the folder, durable in its parent. The folders above are
// their makers' to sync.
func makeRoot(root string) error {
	if err := os.MkdirAll(root, dirPerm); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(root))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }() // opened for reading
	return parent.Sync()
}

func (s *Store) prepare() error {
	if err := s.root.RemoveAll(tempDir); err != nil {
		return err
	}
	for _, name := range []string{tempDir, blobsDir} {
		if err := s.root.Mkdir(name, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return s.sync(".")
}

// Close releases the folder. No other method may be running.
func (s *Store) Close() error { return s.root.Close() }

// Put implements blob.Store. When the disk is full the error is of
// KindUnavailable with code "disk-full", when the folder cannot be written
// "data-read-only"; the blob that was there is still there.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	if len(data) > blob.MaxSize {
		return fmt.Errorf("put blob %s: %w", key, blob.ErrTooLarge)
	}
	temp := path.Join(tempDir, rand.Text())
	err := s.write(ctx, temp, data)
	if err == nil {
		err = s.place(temp, file(key))
	}
	if err != nil {
		// Gone already if it was placed and only the sync failed. What cannot
		// be removed now, New removes.
		_ = s.root.Remove(temp)
		return classify("put blob "+key, s.root.Name(), err)
	}
	return nil
}

// write makes the temporary file, synced.
func (s *Store) write(ctx context.Context, name string, data []byte) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for step := range slices.Chunk(data, writeStep) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.Write(step); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return ctx.Err() // the last moment at which nothing has changed
}

// place renames temp to name, durably, making the folders on the way.
func (s *Store) place(temp, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	folder := path.Dir(name)
	if err := s.mkdir(folder); err != nil {
		return err
	}
	if err := s.root.Rename(temp, name); err != nil {
		return err
	}
	return s.sync(folder)
}

// mkdir makes a folder and those above it, each durable in its parent.
func (s *Store) mkdir(folder string) error {
	err := s.root.Mkdir(folder, dirPerm)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.mkdir(path.Dir(folder)); err != nil {
			return err
		}
		err = s.root.Mkdir(folder, dirPerm)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.sync(path.Dir(folder))
}

func (s *Store) sync(folder string) error {
	d, err := s.root.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // opened for reading
	return d.Sync()
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := s.read(file(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, blob.ErrNotFound
	}
	if err != nil {
		return nil, classify("get blob "+key, s.root.Name(), err)
	}
	return data, nil
}

func (s *Store) read(name string) ([]byte, error) {
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > blob.MaxSize { // not written by Put
		return nil, blob.ErrTooLarge
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

// Delete implements blob.Store. It removes the folders that become empty.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := file(key)
	err := s.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.sync(s.prune(path.Dir(name)))
	}
	return classify("delete blob "+key, s.root.Name(), err)
}

// prune removes folder and those above it as long as they are empty, and
// returns the first that stays.
func (s *Store) prune(folder string) string {
	for folder != blobsDir && s.root.Remove(folder) == nil {
		folder = path.Dir(folder)
	}
	return folder
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	// Only the folder in which the prefix ends can hold such keys.
	start := blobsDir
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if blob.CheckKey(prefix[:i]) != nil {
			return nil, ctx.Err() // no key begins with it
		}
		start = path.Join(blobsDir, encode(prefix[:i]))
	}
	var keys []string
	err := fs.WalkDir(s.root.FS(), start, func(name string, entry fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // never there, or deleted meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		if key, ok := keyOf(name); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
		return nil
	})
	if err != nil {
		return nil, classify(fmt.Sprintf("list blobs %q", prefix), s.root.Name(), err)
	}
	slices.Sort(keys)
	return keys, nil
}

// file returns the path of a key's file.
func file(key string) string { return path.Join(blobsDir, encode(key)+suffix) }

// keyOf is the reverse of file; false for a file that Put does not write.
func keyOf(name string) (key string, ok bool) {
	encoded, ok := strings.CutSuffix(strings.TrimPrefix(name, blobsDir+"/"), suffix)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == ',' && i+1 < len(encoded) && encoded[i+1] >= 'a' && encoded[i+1] <= 'z' {
			i++
			c = encoded[i] - 'a' + 'A'
		}
		b.WriteByte(c)
	}
	key = b.String()
	return key, blob.CheckKey(key) == nil && encode(key) == encoded
}

// encode writes upper-case letters so that case does not matter.
func encode(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte(',')
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

// classify wraps err with the operation, as a *fairlead.Error where the disk
// is at fault.
func classify(op, root string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDiskFull,
			Message: fmt.Sprintf("%s: the disk of %s is full", op, root),
			Hint:    "Free some space. Everything that was confirmed is stored; the request can be repeated then.",
			Err:     err,
		}
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDataReadOnly,
			Message: fmt.Sprintf("%s: the folder %s cannot be written", op, root),
			Hint:    "Check the folder's owner, its mode, and whether its file system is mounted read-only.",
			Err:     err,
		}
	case errors.Is(err, syscall.EIO):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDataIO,
			Message: fmt.Sprintf("%s: the disk of %s failed", op, root),
			Hint:    "Check the disk and the system's log, then repeat the request.",
			Err:     err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
