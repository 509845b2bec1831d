// Package dir stores blobs as files in a folder, for a control plane on one machine.
//
// Put writes a blob to a temporary file, syncs it, renames it to its place and syncs its folder. So after a crash at
// any moment there is either the old blob or the new blob, and a confirmed Put survives a power failure. All paths are
// resolved within an os.Root: no key and no link in the folder leads to a file outside.
//
// The folder tmp/ has unfinished files, and blobs/ has the blobs. A key's segments are its
// path. The last segment ends in ",blob", because both "a" and "a/b" may be keys, and a
// file cannot also be a folder. An upper-case letter is written as "," and the lower-case
// letter, because some file systems ignore case. Keys have no comma, so a file name is
// unambiguous.
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

	// writeStep is the number of bytes that are written between two checks of the context.
	writeStep = 1 << 20
)

// Store is a blob.Store. Safe for concurrent use. Only one process at a time may use a
// folder.
type Store struct {
	root *os.Root

	// mu orders changes of folders. Put creates a folder and then renames a file into it.
	// In between, no Delete may remove the empty folder, and no other Put may use the
	// folder before it is synced.
	mu sync.Mutex
}

var _ blob.Store = (*Store)(nil)

// New returns the store in the folder root. It creates the folder if there is none, and
// removes unfinished files of a crash. The caller closes the store. Errors are those of
// Put.
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
		_ = r.Close() // nothing was written
		return nil, classify("prepare blob folder "+root, root, err)
	}
	return s, nil
}

// makeRoot creates the folder and makes it durable in its parent. The code that creates the
// parents must sync them.
func makeRoot(root string) error {
	if err := os.MkdirAll(root, dirPerm); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(root))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }() // opened only for reading
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

// Close releases the folder. No other method may run at the same time.
func (s *Store) Close() error { return s.root.Close() }

// Put implements blob.Store. If the disk is full, the error is of KindUnavailable with code
// "disk-full"; if the folder is not writable, the code is "data-read-only". The previous
// blob of the key is then unchanged.
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
		// The file does not exist if only the sync after the rename failed. If Remove
		// fails, New removes the file at the next start.
		_ = s.root.Remove(temp)
		return classify("put blob "+key, s.root.Name(), err)
	}
	return nil
}

// write creates the temporary file and syncs it.
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
	return ctx.Err() // last check before anything changes
}

// place creates the folder of name and renames temp to name, durably.
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

// mkdir creates a folder and its parents, each durable in its own parent.
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
	defer func() { _ = d.Close() }() // opened only for reading
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
	defer func() { _ = f.Close() }() // opened only for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > blob.MaxSize { // Put did not write this file
		return nil, blob.ErrTooLarge
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

// Delete implements blob.Store. It also removes folders that become empty.
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

// prune removes folder and its parents while they are empty. It returns the first folder that is not removed.
func (s *Store) prune(folder string) string {
	for folder != blobsDir && s.root.Remove(folder) == nil {
		folder = path.Dir(folder)
	}
	return folder
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	// Only the folder in which the prefix ends can have matching keys.
	start := blobsDir
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if blob.CheckKey(prefix[:i]) != nil {
			return nil, ctx.Err() // no key has this prefix
		}
		start = path.Join(blobsDir, encode(prefix[:i]))
	}
	var keys []string
	err := fs.WalkDir(s.root.FS(), start, func(name string, entry fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // missing, or deleted in the meantime
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

// keyOf is the inverse of file. It returns false for a file that Put does not write.
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

// encode encodes upper-case letters, so that a file system may ignore case.
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

// classify wraps err with the operation. A fault of the disk becomes a *fairlead.Error.
func classify(op, root string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDiskFull,
			Message: fmt.Sprintf("%s: the disk of %s is full", op, root),
			Hint:    "Free some disk space, then repeat the request. All confirmed changes are stored.",
			Err:     err,
		}
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDataReadOnly,
			Message: fmt.Sprintf("%s: the folder %s is not writable", op, root),
			Hint:    "Check the folder's owner, its mode, and whether its file system is mounted read-only.",
			Err:     err,
		}
	case errors.Is(err, syscall.EIO):
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeDataIO,
			Message: fmt.Sprintf("%s: the disk of %s reported an error", op, root),
			Hint:    "Check the disk and the system's log, then repeat the request.",
			Err:     err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
