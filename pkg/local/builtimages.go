package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
)

// keepImagesFor is how long an image that no version names stays after its push: a version is published some time after its
// builds. Artifacts stay as long.
const keepImagesFor = 24 * time.Hour

// builtImages are the images that builds have made, in the registry of images.
type builtImages struct {
	root     string // of the registry's repositories
	registry http.Handler
	keepFor  time.Duration
	now      func() time.Time
}

// entry is a descriptor of a manifest.
type entry struct {
	Digest      string            `json:"digest"`
	Annotations map[string]string `json:"annotations"`
	Manifests   []entry           `json:"manifests"`
}

// subjectAnnotation marks, in the index of a repository, the list of the referrers of a manifest, which is the value. The
// registry's library writes it.
const subjectAnnotation = "org.olareg.referrer.subject"

// collect deletes the images that are not named and were pushed long ago. The registry's own collection then frees the space of
// their layers. It stops at the first error; the next call deletes the rest.
func (b *builtImages) collect(ctx context.Context, named artifact.Named) error {
	folders, err := filepath.Glob(filepath.Join(b.root, "images", "*", "*", "*", "index.json"))
	if err != nil {
		return fmt.Errorf("collect images: %w", err)
	}
	for _, index := range folders {
		if err := b.collectOf(ctx, filepath.Dir(index), named); err != nil {
			return fmt.Errorf("collect images: %w", err)
		}
	}
	return nil
}

// collectOf is collect for the repository in a folder.
func (b *builtImages) collectOf(ctx context.Context, folder string, named artifact.Named) error {
	relative, err := filepath.Rel(b.root, folder)
	if err != nil {
		return err
	}
	repository := filepath.ToSlash(relative)
	var index entry
	if err := readJSON(filepath.Join(folder, "index.json"), &index); err != nil {
		return ignoreMissing(err) // the registry has deleted an empty repository
	}
	kept := map[string]bool{} // the manifests of images that are named or new, with those of their platforms
	for _, m := range index.Manifests {
		keep, err := named(ctx, repository, m.Digest)
		if err == nil && !keep {
			keep, err = b.isNew(folder, m.Digest)
		}
		if err == nil && keep {
			err = keepAll(folder, m.Digest, kept)
		}
		if err != nil {
			return err
		}
	}
	if err := keepReferrers(folder, index.Manifests, kept); err != nil {
		return err
	}
	for _, m := range index.Manifests {
		if kept[m.Digest] {
			continue
		}
		if err := b.delete(ctx, repository, m.Digest); err != nil {
			return err
		}
	}
	return nil
}

// keepReferrers adds the referrers of what is kept to kept, and the referrers of those.
func keepReferrers(folder string, index []entry, kept map[string]bool) error {
	for more := true; more; {
		more = false
		for _, m := range index {
			if kept[m.Digest] || !kept[m.Annotations[subjectAnnotation]] {
				continue
			}
			more = true
			if err := keepAll(folder, m.Digest, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepAll adds a manifest and all that it lists to kept.
func keepAll(folder, digest string, kept map[string]bool) error {
	if kept[digest] {
		return nil
	}
	kept[digest] = true
	var m entry
	if err := readJSON(blobPath(folder, digest), &m); err != nil {
		return ignoreMissing(err)
	}
	for _, child := range m.Manifests {
		if err := keepAll(folder, child.Digest, kept); err != nil {
			return err
		}
	}
	return nil
}

func (b *builtImages) isNew(folder, digest string) (bool, error) {
	info, err := os.Stat(blobPath(folder, digest))
	if err != nil {
		return false, ignoreMissing(err)
	}
	return b.now().Sub(info.ModTime()) < b.keepFor, nil
}

func blobPath(folder, digest string) string {
	algorithm, hex, _ := strings.Cut(digest, ":")
	return filepath.Join(folder, "blobs", algorithm, hex)
}

// delete deletes a manifest by the registry itself, which has its repositories in memory.
func (b *builtImages) delete(ctx context.Context, repository, digest string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "/v2/"+repository+"/manifests/"+digest, http.NoBody)
	if err != nil {
		return err
	}
	answer := &discarded{header: http.Header{}}
	b.registry.ServeHTTP(answer, req)
	if answer.status != http.StatusAccepted && answer.status != http.StatusNotFound {
		return fmt.Errorf("delete %s of %s: the registry answers %d", digest, repository, answer.status)
	}
	return nil
}

// discarded is an answer of which only the status counts.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarded) WriteHeader(status int)      { d.status = status }

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
