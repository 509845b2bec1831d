package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/registry"
)

const blobsDir = "blobs/sha256"

// blobStore stores blobs in files whose name is the digest. Unlike the library's disk
// handler, it flushes a file before it gives the file its name, and leaves no file after a
// failed upload.
type blobStore struct {
	root  *os.Root
	log   *slog.Logger
	touch func(name string, info fs.FileInfo) bool // see Registry.touch

	hashing chan struct{} // one value for each file that is being verified

	mu    sync.Mutex
	whole map[string]identity // verified files, by hex digest
}

// identity identifies the content of a file. If a process writes to the file, the file gets
// another identity.
type identity struct {
	size    int64
	changed time.Time
	file    fs.FileInfo
}

// same reports whether info describes the file of i, and the file is unchanged.
func (i identity) same(info fs.FileInfo) bool {
	return i.file != nil && i.size == info.Size() && i.changed.Equal(info.ModTime()) && os.SameFile(i.file, info)
}

// maxVerdicts is the maximum number of blobs that are recorded as verified. At this number,
// the registry drops all records and verifies the blobs again when they are requested.
const maxVerdicts = 100_000

var _ registry.BlobStatHandler = (*blobStore)(nil)

// Stat returns the size of the blob, or registry.ErrNotFound if it is missing or damaged.
func (s *blobStore) Stat(ctx context.Context, _ string, h v1.Hash) (int64, error) {
	f, size, err := s.open(ctx, h)
	if err != nil {
		return 0, err
	}
	return size, f.Close()
}

// Get returns the verified blob, or registry.ErrNotFound if it is missing or damaged.
func (s *blobStore) Get(ctx context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, _, err := s.open(ctx, h)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// open returns the verified blob and its size, or registry.ErrNotFound if the blob is
// missing or damaged. It verifies a file at the first request, and again only if the file
// has changed since.
func (s *blobStore) open(ctx context.Context, h v1.Hash) (f *os.File, size int64, err error) {
	if h.Algorithm != "sha256" {
		return nil, 0, registry.ErrNotFound
	}
	name := path.Join(blobsDir, h.Hex)
	f, err = s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, registry.ErrNotFound
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", h, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return f, 0, fmt.Errorf("open blob %s: %w", h, err)
	}
	if !s.verified(h, info) {
		select {
		case s.hashing <- struct{}{}:
		case <-ctx.Done():
			return f, 0, fmt.Errorf("read blob %s: %w", h, ctx.Err())
		}
		defer func() { <-s.hashing }()
		if !s.verified(h, info) {
			digest, _, err := hashFile(ctx, f)
			if err != nil {
				return f, 0, fmt.Errorf("read blob %s: %w", h, err)
			}
			if digest != h {
				s.log.Warn("an artifact's blob is damaged on disk and is not served; push the artifact again to restore it",
					"blob", h.String(), "found", digest.String())
				return f, 0, registry.ErrNotFound
			}
			s.remember(h, info)
		}
	}
	if s.touch(name, info) {
		if touched, err := f.Stat(); err == nil && touched.Size() == info.Size() {
			s.remember(h, touched)
		}
	}
	return f, info.Size(), nil
}

func (s *blobStore) verified(h v1.Hash, info fs.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole[h.Hex].same(info)
}

func (s *blobStore) remember(h v1.Hash, info fs.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.whole) >= maxVerdicts {
		clear(s.whole)
	}
	s.whole[h.Hex] = identity{info.Size(), info.ModTime(), info}
}

// hashFile returns the digest and size of the whole file and resets its offset to the
// start. It stops when ctx ends.
func hashFile(ctx context.Context, f *os.File) (v1.Hash, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v1.Hash{}, 0, err
	}
	sum := sha256.New()
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return v1.Hash{}, 0, err
		}
		n, err := io.CopyN(sum, f, 1<<20)
		size += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return v1.Hash{}, 0, err
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v1.Hash{}, 0, err
	}
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, size, nil
}

// commit moves the flushed file, whose content has the digest h, to the blob's place. The
// blob is durable when commit returns.
func (s *blobStore) commit(name string, h v1.Hash) error {
	return publish(s.root, name, path.Join(blobsDir, h.Hex))
}

// publish renames the flushed file from to its final name to, and flushes the folder, so
// that the new name is durable.
func publish(root *os.Root, from, to string) error {
	dir := path.Dir(to)
	_, err := root.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := root.Rename(from, to); err != nil {
		return err
	}
	if err := syncDir(root, dir); err != nil || !made {
		return err
	}
	for dir != "." { // flush the parent folders, so that the names of new folders are durable
		dir = path.Dir(dir)
		if err := syncDir(root, dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
