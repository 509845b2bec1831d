//go:build unix

// Package providers caches the provider packages that `init` downloads, for later jobs of a runner.
//
// `init` installs packages into a private folder of its job. After all processes of the job have
// ended, the agent moves new packages into its cache. It computes each package's hash, and stores the
// package under its name and hash. The job's code could have put any content into the private folder,
// so only these jobs use a package:
//
//   - the jobs of the same install, and
//   - a job of any install whose dependency lock file has exactly that hash.
//
// The hash is the one that OpenTofu and Terraform call h1.
package providers

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Private is the folder, in a step's folder, into which the job's `init` installs providers.
const Private = "plugins"

// Whole is a file in Private that a job makes after a successful `init`. If the file does not exist, a
// package in Private may be incomplete.
const Whole = ".whole"

// Package is a provider package in the cache.
type Package struct {
	Name string `json:"name"`          // <host>/<namespace>/<type>/<version>/<platform>
	Hash string `json:"hash"`          // h1:…
	Own  bool   `json:"own,omitempty"` // a job of the same install downloaded it
}

// Address returns the provider's source address, as in a dependency lock file.
func (p Package) Address() string { return path.Dir(path.Dir(p.Name)) }

// Version returns the provider's version.
func (p Package) Version() string { return path.Base(path.Dir(p.Name)) }

// Path returns the package's folder in the cache.
func (p Package) Path(cache string) string {
	sum, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Hash, "h1:")) // dirhash made it, so it is valid
	return filepath.Join(cache, filepath.FromSlash(p.Name), hex.EncodeToString(sum))
}

// The limits of the cache.
const (
	maxTaken  = 64       // packages that Take takes from one job
	maxUsable = 1000     // packages that Usable returns
	maxIndex  = 64 << 20 // bytes of the index
)

// Store is the cache. Its index records the identity of each file at the time when the hash was
// computed. No job can write to the index. Safe for concurrent use by one process. Several processes
// may share the cache folder, each with its own index.
type Store struct {
	dir   string
	index string
	log   *slog.Logger

	mu      sync.Mutex
	entries []entry // oldest first
}

// entry is a package in the index.
type entry struct {
	Package
	Installs []string `json:"installs"` // IDs of the installs whose jobs downloaded it
	Files    []file   `json:"files"`
}

// file identifies a file and its content. If a user other than root changes or replaces the file, at
// least one of these fields changes.
type file struct {
	Path     string `json:"path"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified_ns"`
	Changed  int64  `json:"changed_ns"`
}

// Open returns the cache in the folder dir. If the index does not exist or cannot be read, the cache
// starts empty, and jobs download the packages again.
func Open(dir, index string, log *slog.Logger) *Store {
	s := &Store{dir: dir, index: index, log: log}
	b, err := safefile.Read(index, maxIndex)
	if err == nil {
		err = json.Unmarshal(b, &s.entries)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot read the index of cached providers; jobs download the providers again", "err", err)
		s.entries = nil
	}
	return s
}

// Usable returns the cached packages for a job of the install, the newest first. Own is true for the
// packages that the install's jobs may use without a lock file. Usable checks whether a package changed
// after its hash was computed, and removes the changed packages.
func (s *Store) Usable(install string) []Package {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool {
		_, err := os.Lstat(e.Path(s.dir))
		gone := errors.Is(err, fs.ErrNotExist)
		changed = changed || gone
		return gone
	})
	var usable []Package
	for i := range slices.Backward(s.entries) {
		e := &s.entries[i]
		if now, err := look(e.Path(s.dir)); err != nil || !slices.Equal(now, e.Files) {
			changed = true
			if err == nil {
				err = e.rehash(s.dir, now)
			}
			if err != nil {
				s.log.Warn("a cached provider was altered; it is removed, and jobs download it again", "provider", e.Name, "err", err)
				if err := workspace.RemoveTree(e.Path(s.dir)); err != nil {
					s.log.Error("cannot remove an altered provider from the cache; no job uses it", "provider", e.Name, "err", err)
				}
				e.Files = nil
				continue
			}
		}
		if p := e.Package; len(usable) < maxUsable {
			p.Own = install != "" && slices.Contains(e.Installs, install)
			usable = append(usable, p)
		}
	}
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.Files == nil })
	if changed {
		s.save()
	}
	return usable
}

// rehash compares a package's content with its hash. If they match, it records the new identities of
// the files. For example, a restored backup has the same content in other inodes.
func (e *entry) rehash(dir string, now []file) error {
	sum, err := hashOf(e.Path(dir))
	if err == nil && sum != e.Hash {
		err = fmt.Errorf("its hash changed to %s from %s", sum, e.Hash)
	}
	if err == nil {
		e.Files = now
	}
	return err
}

// Take moves the new packages of a job's private folder into the cache. No process of the job may run.
// A package that cannot be moved stays in the folder, and the next job downloads it again.
func (s *Store) Take(private, install string) {
	if install == "" || !safefile.IsRegular(filepath.Join(private, Whole)) {
		return
	}
	names := installed(private)
	if len(names) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		if i == maxTaken {
			s.log.Warn("a job installed more providers than the cache takes from one job", "installed", len(names), "kept", maxTaken)
			break
		}
		if err := s.take(filepath.Join(private, filepath.FromSlash(name)), name, install); err != nil {
			s.log.Warn("cannot cache a provider; later jobs download it again", "provider", name, "err", err)
		}
	}
	s.save()
}

// take takes one package. The caller holds mu.
func (s *Store) take(from, name, install string) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the cache of providers: %w", err)
	}
	staging, err := os.MkdirTemp(s.dir, ".new-*")
	if err != nil {
		return fmt.Errorf("make a folder in the cache of providers: %w", err)
	}
	defer workspace.RemoveTree(staging)
	at := filepath.Join(staging, "package")
	err = os.Rename(from, at)
	if errors.Is(err, unix.EXDEV) { // the cache is on another disk
		err = os.CopyFS(at, os.DirFS(from))
	}
	if err == nil {
		err = seal(at)
	}
	if err != nil {
		return fmt.Errorf("move the package into the cache: %w", err)
	}
	e := entry{Package: Package{Name: name}, Installs: []string{install}}
	if e.Hash, err = hashOf(at); err != nil {
		return err
	}
	if i := slices.IndexFunc(s.entries, func(o entry) bool { return o.Package == e.Package }); i >= 0 {
		if !slices.Contains(s.entries[i].Installs, install) {
			s.entries[i].Installs = append(s.entries[i].Installs, install)
		}
		return nil // the cached copy has the same content; Usable detects a copy with other content
	}
	to := e.Path(s.dir)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), workspace.RemoveTree(to), os.Rename(at, to)); err != nil {
		return fmt.Errorf("move the package into the cache: %w", err)
	}
	if e.Files, err = look(to); err != nil {
		return err
	}
	s.entries = append(s.entries, e)
	return nil
}

// save writes the index. If that fails, the jobs of the next agent download the packages again. The
// caller holds mu.
func (s *Store) save() {
	b, err := json.Marshal(s.entries)
	if err == nil {
		err = safefile.Write(s.index, b, 0o600)
	}
	if err != nil {
		s.log.Warn("cannot write the index of cached providers; after a restart, jobs download them again", "err", err)
	}
}

// installed returns the names of the packages in a private folder, except links into a cache.
func installed(private string) []string {
	level := []string{""}
	for range 5 {
		var next []string
		for _, dir := range level {
			entries, err := os.ReadDir(filepath.Join(private, filepath.FromSlash(dir)))
			if err != nil {
				continue
			}
			for _, e := range entries {
				if e.IsDir() && !strings.HasPrefix(e.Name(), ".") { // IsDir is false for a link
					next = append(next, path.Join(dir, e.Name()))
				}
			}
		}
		level = next
	}
	return level
}

var errNoFile = errors.New("the package holds something other than folders and regular files with one name")

// look returns the files of a package in lexical order. It refuses a package with a symlink, a file
// with a second name, or a pipe: another process could alter such a file from outside the package, or
// the file has no end.
func look(dir string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return &os.PathError{Op: "lstat", Path: at, Err: err}
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || st.Nlink != 1 {
			return fmt.Errorf("%s: %w", rel, errNoFile)
		}
		files = append(files, file{Path: rel, Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("the package is empty")
	}
	return files, err
}

// seal makes a package readable only by its owner, and its files read-only, so that a provider that
// writes to its own files does not alter them for other jobs.
func seal(dir string) error {
	if _, err := look(dir); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(at, 0o700)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(at, info.Mode().Perm()&0o100|0o400)
	})
}

func hashOf(dir string) (string, error) {
	sum, err := dirhash.HashDir(dir, "", dirhash.Hash1)
	if err != nil {
		return "", fmt.Errorf("hash the package: %w", err)
	}
	return sum, nil
}
