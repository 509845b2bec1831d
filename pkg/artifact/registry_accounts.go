package artifact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// accountsDir has a folder for each account, with an empty file "<hex digest>.<size>" for
// each blob that counts for the account. The accounts share the blobs themselves.
const accountsDir = "accounts"

// accounts counts the content of each account. It reads an account's counts from disk when
// the account first stores content, not at the start. Safe for concurrent use.
type accounts struct {
	root         *os.Root
	of           func(repository string) string
	maxBytes     int64
	maxManifests int

	mu   sync.Mutex
	used map[string]*usage // by folder
}

// usage has the counts of one account.
type usage struct {
	blobs         map[string]int64 // sizes, by hex digest
	blobBytes     int64
	manifests     int
	manifestBytes int64
}

func newAccounts(root *os.Root, o RegistryOptions) *accounts {
	of := o.Account
	if of == nil {
		of = func(string) string { return "" }
	}
	return &accounts{root: root, of: of, maxBytes: cmp.Or(o.MaxBytes, 20<<30), maxManifests: cmp.Or(o.MaxManifests, 50_000), used: map[string]*usage{}}
}

// folder returns a valid file name for the account of the repository, for any account name.
func (a *accounts) folder(repository string) string { return hashed(a.of(repository)) }

// hashed returns a valid file name for s.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// fullError reports that an account has reached a limit.
type fullError struct{ what string }

func (e *fullError) Error() string {
	return "the account has " + e.what + "; unreferenced content is removed after a day"
}

// load returns the account's usage. The caller holds the lock.
func (a *accounts) load(folder string) (*usage, error) {
	if u, ok := a.used[folder]; ok {
		return u, nil
	}
	u := &usage{blobs: map[string]int64{}}
	entries, err := readDir(a.root, path.Join(accountsDir, folder))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		digest, size, _ := strings.Cut(e.Name(), ".")
		n, err := strconv.ParseInt(size, 10, 64)
		if err == nil {
			u.blobs[digest] = n
			u.blobBytes += n
		}
	}
	repositories, err := readDir(a.root, path.Join(manifestsDir, folder))
	if err != nil {
		return nil, err
	}
	for _, r := range repositories {
		records, err := readDir(a.root, path.Join(manifestsDir, folder, r.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range records {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			u.manifests++
			u.manifestBytes += info.Size()
		}
	}
	a.used[folder] = u
	return u, nil
}

// absent reports whether err means that the file does not exist. The file also does not
// exist if a folder of its path is not a folder but a file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// readDir lists a folder; a missing folder is empty.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(root.FS(), name)
	if absent(err) {
		return nil, nil
	}
	return entries, err
}

// roomForBlob returns a *fullError if the blob would exceed the limits of the account. A
// blob that the account already has needs no space.
func (a *accounts) roomForBlob(folder string, h v1.Hash, size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, err := a.load(folder)
	if err != nil {
		return err
	}
	if _, has := u.blobs[h.Hex]; has {
		return nil
	}
	return a.room(u, size, 0)
}

// roomForManifest returns a *fullError if a manifest would exceed the limits of the account.
// bytes is the size of the manifest minus the size of the manifest that it replaces. more is
// 1 for a new manifest and 0 for a manifest that replaces another manifest.
func (a *accounts) roomForManifest(folder string, bytes int64, more int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, err := a.load(folder)
	if err != nil {
		return err
	}
	return a.room(u, bytes, more)
}

func (a *accounts) room(u *usage, bytes int64, manifests int) error {
	if has := u.blobBytes + u.manifestBytes; has+bytes > a.maxBytes {
		return &fullError{fmt.Sprintf("%d bytes of artifacts and may have %d", has, a.maxBytes)}
	}
	if u.manifests+manifests > a.maxManifests {
		return &fullError{fmt.Sprintf("%d manifests and may have %d", u.manifests, a.maxManifests)}
	}
	return nil
}

// addBlob counts the blob for the account. If the account already has the blob, addBlob
// changes nothing.
func (a *accounts) addBlob(folder string, h v1.Hash, size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, err := a.load(folder)
	if err != nil {
		return err
	}
	if _, ok := u.blobs[h.Hex]; ok {
		return nil
	}
	if err := a.root.MkdirAll(path.Join(accountsDir, folder), 0o700); err != nil {
		return err
	}
	f, err := a.root.OpenFile(path.Join(accountsDir, folder, fmt.Sprintf("%s.%d", h.Hex, size)), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	u.blobs[h.Hex] = size
	u.blobBytes += size
	return nil
}

// addManifest counts a manifest's file of bytes bytes. replaced is the size of the file that
// it replaces, or -1 if it replaces no file.
func (a *accounts) addManifest(folder string, bytes, replaced int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, ok := a.used[folder]
	if !ok {
		return // load counts the file when the account is next used
	}
	if replaced < 0 {
		u.manifests++
		replaced = 0
	}
	u.manifestBytes += bytes - replaced
}

// forget subtracts the removed blobs from the account's count. The keys of removed are hex
// digests. The next load counts the account's content again.
func (a *accounts) forget(folder string, removed map[string]bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, folder)
	entries, err := readDir(a.root, path.Join(accountsDir, folder))
	for _, e := range entries {
		if digest, _, _ := strings.Cut(e.Name(), "."); removed[digest] {
			err = errors.Join(err, a.root.Remove(path.Join(accountsDir, folder, e.Name())))
		}
	}
	return err
}
