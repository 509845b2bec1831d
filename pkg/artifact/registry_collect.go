package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// Named reports whether the manifest of the digest is still referenced, for example by a version of an app.
type Named func(ctx context.Context, repository, digest string) (bool, error)

// Collect removes manifests that are no longer referenced, blobs that no manifest needs, and
// abandoned uploads. It keeps content that was pushed or read within RegistryOptions.KeepFor,
// because a client may push content before an app's version refers to the content. It reads
// every manifest, but no blob. It stops at the first error; the next call removes the rest.
// Only one call may run at a time.
func (h *Registry) Collect(ctx context.Context, named Named) error {
	h.uploads.expire()
	needed := map[string]map[string]bool{} // hex digests, by the account's folder
	accounts, err := readDir(h.root, manifestsDir)
	if err != nil {
		return fmt.Errorf("collect artifacts: %w", err)
	}
	for _, a := range accounts {
		if !a.IsDir() {
			err = h.collectManifest(ctx, path.Join(manifestsDir, a.Name()), named, needed)
		} else {
			err = h.collectAccount(ctx, path.Join(manifestsDir, a.Name()), named, needed)
		}
		if err != nil {
			return fmt.Errorf("collect artifacts: %w", err)
		}
	}
	if err := h.collectBlobs(ctx, needed); err != nil {
		return fmt.Errorf("collect artifacts: %w", err)
	}
	return nil
}

func (h *Registry) collectAccount(ctx context.Context, dir string, named Named, needed map[string]map[string]bool) error {
	repositories, err := readDir(h.root, dir)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		of := path.Join(dir, r.Name())
		records, err := readDir(h.root, of)
		if err != nil {
			return err
		}
		for _, e := range records {
			if err := h.collectManifest(ctx, path.Join(of, e.Name()), named, needed); err != nil {
				return err
			}
		}
		h.files.Lock()
		_ = h.root.Remove(of) // fails unless the folder is empty
		h.files.Unlock()
	}
	return nil
}

// collectManifest removes the record if it is old and unreferenced. Otherwise it adds the
// blobs of the manifest to needed. It moves a record from its former place (see formerName)
// to the current place.
func (h *Registry) collectManifest(ctx context.Context, name string, named Named, needed map[string]map[string]bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rec, err := h.load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	needs, _, damaged := blobsOf(rec)
	wanted := false
	if damaged == nil && rec.whole() {
		if wanted, err = named(ctx, rec.Repository, rec.Digest); err != nil {
			return err
		}
	}
	h.files.Lock()
	defer h.files.Unlock()
	if !wanted {
		removed, err := h.removeOld(name)
		if removed || err != nil {
			return err
		}
	}
	if damaged != nil || !rec.whole() {
		return nil
	}
	folder := h.accounts.folder(rec.Repository)
	if needed[folder] == nil {
		needed[folder] = map[string]bool{}
	}
	for _, d := range needs {
		needed[folder][d.Digest.Hex] = true
	}
	if to := h.fileName(rec.Repository, rec.Reference); to != name && path.Dir(name) == manifestsDir {
		if _, err := h.root.Stat(to); err == nil {
			return h.root.Remove(name) // the manifest was pushed again in the meantime
		}
		return publish(h.root, name, to)
	}
	return nil
}

// removeOld removes the file unless it was pushed or read recently. It reports whether the
// file no longer exists. The caller holds h.files.
func (h *Registry) removeOld(name string) (bool, error) {
	info, err := h.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || h.now().Sub(info.ModTime()) < max(h.keepFor, freshFor+time.Minute) {
		return false, err
	}
	return true, h.root.Remove(name)
}

// collectBlobs removes blobs that no manifest needs, and subtracts these blobs from the
// counts of the accounts.
func (h *Registry) collectBlobs(ctx context.Context, needed map[string]map[string]bool) error {
	all := map[string]bool{}
	for _, of := range needed {
		for digest := range of {
			all[digest] = true
		}
	}
	blobs, err := readDir(h.root, blobsDir)
	if err != nil {
		return err
	}
	removed := map[string]bool{}
	for _, b := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if all[b.Name()] {
			continue
		}
		h.files.Lock()
		removed[b.Name()], err = h.removeOld(path.Join(blobsDir, b.Name()))
		h.files.Unlock()
		if err != nil {
			return err
		}
	}
	folders, err := readDir(h.root, accountsDir)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if err := h.accounts.forget(f.Name(), removed); err != nil {
			return err
		}
	}
	return nil
}
