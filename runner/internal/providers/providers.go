//go:build unix

// Package providers keeps the provider packages that `init` has downloaded, for
// later jobs of a runner.
//
// `init` of a job installs into a folder of the job's own. When nothing of the
// job is left that could write there, the agent moves what is new into its cache,
// under the package's name and the hash of its content, which the agent computes.
// What a job has fetched may be anything that the job's code put there, so a
// package is used by
//
//   - the jobs of the same install, and
//   - a job whose dependency lock file has that very hash, of any install.
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

// Private is the folder of a step's, into which `init` of its job installs
// providers.
const Private = "plugins"

// Whole is the file in Private that a job makes when `init` has ended well. What
// is beside it without may be half of a package.
const Whole = ".whole"

// Package is a provider package in the cache.
type Package struct {
	Name string `json:"name"`          // <host>/<namespace>/<type>/<version>/<platform>
	Hash string `json:"hash"`          // h1:…
	Own  bool   `json:"own,omitempty"` // a job of the same install has fetched it
}

// Address is the provider's, as a dependency lock file names it.
func (p Package) Address() string { return path.Dir(path.Dir(p.Name)) }

// Version is the provider's.
func (p Package) Version() string { return path.Base(path.Dir(p.Name)) }

// Path returns the package's folder in the cache.
func (p Package) Path(cache string) string {
	sum, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Hash, "h1:")) // as dirhash has made it
	return filepath.Join(cache, filepath.FromSlash(p.Name), hex.EncodeToString(sum))
}

// The bounds of what is taken of one job and told to one.
const (
	maxTaken  = 64
	maxUsable = 1000
	maxIndex  = 64 << 20 // bytes
)

// Store is the cache. Its index, which says what each file was when its hash was
// computed, is where no job can write. Safe for concurrent use by one process;
// several may have one folder, each with its own index.
type Store struct {
	dir   string
	index string
	log   *slog.Logger

	mu      sync.Mutex
	entries []entry // in the order in which they were taken
}

// entry is a package of which the hash is known.
type entry struct {
	Package
	Installs []string `json:"installs"` // that have fetched it
	Files    []file   `json:"files"`
}

// file is a file as it was when it was read. Nothing that is not root writes to
// a file, or replaces it, and leaves all of this as it was.
type file struct {
	Path     string `json:"path"`
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified_ns"`
	Changed  int64  `json:"changed_ns"`
}

// Open returns the cache in the folder dir. An index that is not there, or cannot
// be read, knows no package: they are fetched again.
func Open(dir, index string, log *slog.Logger) *Store {
	s := &Store{dir: dir, index: index, log: log}
	b, err := safefile.Read(index, maxIndex)
	if err == nil {
		err = json.Unmarshal(b, &s.entries)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what is known of cached providers cannot be read; they are fetched again", "err", err)
		s.entries = nil
	}
	return s
}

// Usable returns the packages that jobs of the install may use, the newest first.
// Each is what it was when its hash was computed. One that is not is removed.
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
				err = e.again(s.dir, now)
			}
			if err != nil {
				s.log.Warn("a cached provider was altered; it is thrown away and fetched again", "provider", e.Name, "err", err)
				if err := workspace.RemoveTree(e.Path(s.dir)); err != nil {
					s.log.Error("an altered provider is left in the cache; no job uses it", "provider", e.Name, "err", err)
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

// again compares a package's content with its hash: a backup that was restored,
// say, has other inodes and is the same.
func (e *entry) again(dir string, now []file) error {
	sum, err := hashOf(e.Path(dir))
	if err == nil && sum != e.Hash {
		err = fmt.Errorf("its hash is %s and was %s", sum, e.Hash)
	}
	if err == nil {
		e.Files = now
	}
	return err
}

// Take moves the packages that are new in a job's private folder into the cache.
// Nothing of the job may be alive. What cannot be taken is left there, and is
// fetched again by the next job.
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
			s.log.Warn("a job installed more providers than are kept of one", "installed", len(names), "kept", maxTaken)
			break
		}
		if err := s.take(filepath.Join(private, filepath.FromSlash(name)), name, install); err != nil {
			s.log.Warn("a provider is not kept for later jobs", "provider", name, "err", err)
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
		return fmt.Errorf("make room in the cache of providers: %w", err)
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
		return fmt.Errorf("move it into the cache: %w", err)
	}
	e := entry{Package: Package{Name: name}, Installs: []string{install}}
	if e.Hash, err = hashOf(at); err != nil {
		return err
	}
	if i := slices.IndexFunc(s.entries, func(o entry) bool { return o.Package == e.Package }); i >= 0 {
		if !slices.Contains(s.entries[i].Installs, install) {
			s.entries[i].Installs = append(s.entries[i].Installs, install)
		}
		return nil // its content is the same, or Usable finds that it is not
	}
	to := e.Path(s.dir)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), workspace.RemoveTree(to), os.Rename(at, to)); err != nil {
		return fmt.Errorf("move it into the cache: %w", err)
	}
	if e.Files, err = look(to); err != nil {
		return err
	}
	s.entries = append(s.entries, e)
	return nil
}

// save writes the index. Without it the packages are fetched again by the next
// agent. The caller holds mu.
func (s *Store) save() {
	b, err := json.Marshal(s.entries)
	if err == nil {
		err = safefile.Write(s.index, b, 0o600)
	}
	if err != nil {
		s.log.Warn("what is known of cached providers is not kept", "err", err)
	}
}

// installed returns the names of the packages that are in a private folder and
// not links into a cache.
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
				if e.IsDir() && !strings.HasPrefix(e.Name(), ".") { // false of a link
					next = append(next, path.Join(dir, e.Name()))
				}
			}
		}
		level = next
	}
	return level
}

var errNoFile = errors.New("it holds something else than folders and files of its own")

// look returns the files of a package, in order. It refuses one that holds what
// could be altered from elsewhere, or could not be read to an end: a link, a file
// with a second name, a pipe.
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
		err = errors.New("it is empty")
	}
	return files, err
}

// seal makes a package readable by its owner alone, and its files unwritable: a
// provider that writes beside its own program alters it for nobody.
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
		return "", fmt.Errorf("hash it: %w", err)
	}
	return sum, nil
}
