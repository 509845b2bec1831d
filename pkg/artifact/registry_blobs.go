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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/registry"
)

const blobsDir = "blobs/sha256"

// blobStore keeps blobs in files named by their digest. It is the library's
// disk handler with what that lacks: files are flushed before they get their
// name, and a failed upload leaves nothing.
type blobStore struct {
	root *os.Root
	log  *slog.Logger
}

var _ registry.BlobStatHandler = (*blobStore)(nil)

// Stat returns the size of the blob, or registry.ErrNotFound if there is none
// or it is damaged.
func (s *blobStore) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	f, size, err := s.open(h)
	if err != nil {
		return 0, err
	}
	return size, f.Close()
}

// Get returns the blob, verified, or registry.ErrNotFound.
func (s *blobStore) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, _, err := s.open(h)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// open verifies the whole blob each time: it is small and in the page cache,
// and a remembered verdict would outlive what it was about.
func (s *blobStore) open(h v1.Hash) (*os.File, int64, error) {
	if h.Algorithm != "sha256" {
		return nil, 0, registry.ErrNotFound
	}
	f, err := s.root.Open(path.Join(blobsDir, h.Hex))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, registry.ErrNotFound
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", h, err)
	}
	digest, size, err := hashFile(f)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("read blob %s: %w", h, err), f.Close())
	}
	if digest != h {
		s.log.Warn("an artifact's blob is damaged on disk and is not served; pushing it again heals it",
			"blob", h.String(), "found", digest.String())
		return nil, 0, errors.Join(registry.ErrNotFound, f.Close())
	}
	return f, size, nil
}

// hashFile returns the digest and size of the whole file and leaves its offset
// at the start.
func hashFile(f *os.File) (v1.Hash, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v1.Hash{}, 0, err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return v1.Hash{}, 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return v1.Hash{}, 0, err
	}
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, size, nil
}

// commit gives the file name, whose content has the digest h, its place. It is
// there durably when commit returns.
func (s *blobStore) commit(name string, h v1.Hash) error {
	return publish(s.root, name, path.Join(blobsDir, h.Hex))
}

// publish moves a flushed file to its name and flushes the name.
func publish(root *os.Root, from, to string) error {
	dir := path.Dir(to)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := root.Rename(from, to); err != nil {
		return err
	}
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
