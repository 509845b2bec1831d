package fetch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// The default limits of a Cache.
const (
	cacheBytes   = 512 << 20
	cacheEntries = 1024
)

// leftover is the age at which an unfinished entry is removed. It is much longer than any
// fetch, so no process can still write the entry.
const leftover = time.Hour

// The files of an entry, and the name prefixes of entries that a process adds or removes.
const (
	manifestFile = "manifest"
	layerFile    = "layer"
	coming       = ".new-"
	going        = ".old-"
)

// Cache stores artifacts in a folder. An artifact's entry is the folder <hex digits of its
// digest>, with the files "manifest" and "layer". Any number of processes may use the folder
// at the same time, without a lock: a rename makes a whole entry visible, and a reader
// verifies the whole entry before use.
//
// The folder and its disk are not trusted. Each entry that is read is verified against the
// digest and unpacked from memory. A damaged, forged or incomplete entry counts as missing,
// and the next fetch replaces it. So a Cache does not sync files. If the folder is not
// writable, the Cache stores nothing and reports no error.
type Cache struct {
	Dir     string           // created on first use
	Bytes   int64            // maximum size of all manifests and layers together; 0: 512 MiB
	Entries int              // maximum number of artifacts; 0: 1024
	Now     func() time.Time // nil: time.Now
}

func (c *Cache) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

func (c *Cache) path(digest string) string {
	return filepath.Join(c.Dir, strings.TrimPrefix(digest, "sha256:"))
}

// get returns the verified archive of the artifact and the path of the component's folder in
// the archive. If the artifact is not in the cache, or its archive has more bytes than the
// parameter most, ok is false.
func (c *Cache) get(digest string, most int64) (archive []byte, folder string, ok bool) {
	if c == nil {
		return nil, "", false
	}
	entry := c.path(digest)
	archive, folder, err := readEntry(entry, digest, most)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(entry):
		return nil, "", false
	case err != nil:
		c.remove(entry) // otherwise a damaged entry would block a valid one
		return nil, "", false
	}
	now := c.now()
	os.Chtimes(entry, now, now) // mark the entry as used; prune removes the least recently used first
	return archive, folder, true
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func readEntry(entry, digest string, most int64) (archive []byte, folder string, err error) {
	manifest, err := safefile.Read(filepath.Join(entry, manifestFile), tree.MaxManifest)
	if err != nil {
		return nil, "", err
	}
	if tree.Digest(manifest) != digest {
		return nil, "", errors.New("the manifest does not match its digest")
	}
	layer, err := tree.ParseManifest(manifest)
	if err != nil {
		return nil, "", err
	}
	archive, err = safefile.Read(filepath.Join(entry, layerFile), min(layer.Size, most))
	if err != nil {
		return nil, "", err
	}
	if int64(len(archive)) != layer.Size || tree.Digest(archive) != layer.Digest {
		return nil, "", errors.New("the layer does not match its digest")
	}
	return archive, layer.Folder, nil
}

// put stores an artifact. It ignores errors: the next job fetches the artifact again.
func (c *Cache) put(digest string, manifest, archive []byte) {
	if c == nil || int64(len(manifest)+len(archive)) > c.bytes() {
		return
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return
	}
	c.prune(int64(len(manifest) + len(archive)))
	tmp, err := os.MkdirTemp(c.Dir, coming)
	if err != nil {
		return
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(tmp, manifestFile), manifest, 0o600),
		os.WriteFile(filepath.Join(tmp, layerFile), archive, 0o600))
	if err == nil {
		now := c.now()
		os.Chtimes(tmp, now, now)
		err = os.Rename(tmp, c.path(digest)) // fails if another process stored the same artifact before
	}
	if err != nil {
		os.RemoveAll(tmp)
	}
}

func (c *Cache) bytes() int64 {
	if c.Bytes > 0 {
		return c.Bytes
	}
	return cacheBytes
}

// prune removes the least recently used entries until there is space for a new entry of room
// bytes. Several processes may prune at the same time, and each may then add an entry. So
// the folder can exceed its limit by one entry for each process.
func (c *Cache) prune(room int64) {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return
	}
	type kept struct {
		path string
		used time.Time
		size int64
	}
	var all []kept
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another process removed the entry
		}
		path := filepath.Join(c.Dir, e.Name())
		if strings.HasPrefix(e.Name(), coming) || strings.HasPrefix(e.Name(), going) {
			if c.now().Sub(info.ModTime()) > leftover {
				os.RemoveAll(path)
			}
			continue
		}
		k := kept{path: path, used: info.ModTime()}
		for _, file := range []string{manifestFile, layerFile} {
			if st, err := os.Lstat(filepath.Join(path, file)); err == nil {
				k.size += st.Size()
			}
		}
		all = append(all, k)
		total += k.size
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	most := c.Entries
	if most <= 0 {
		most = cacheEntries
	}
	for len(all) > 0 && (len(all) >= most || total+room > c.bytes()) {
		c.remove(all[0].path)
		total -= all[0].size
		all = all[1:]
	}
}

// remove renames an entry before it deletes it. So another process sees a whole entry or
// none, and the name is free at once.
func (c *Cache) remove(entry string) {
	tmp, err := os.MkdirTemp(c.Dir, going)
	if err != nil {
		return
	}
	// The rename fails if another process has already removed the entry. In this case only
	// the empty tmp is deleted.
	os.Rename(entry, filepath.Join(tmp, "entry"))
	os.RemoveAll(tmp)
}
