package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const manifestsDir = "manifests"

// record is a manifest under one of its names, in a file. The library knows
// manifests in memory only; the records are given to it again at the start.
type record struct {
	Repository string `json:"repository"`
	Reference  string `json:"reference"` // a digest or a tag
	MediaType  string `json:"mediaType"`
	Digest     string `json:"digest"`
	Manifest   []byte `json:"manifest"`
}

// fileName is the same for the same repository and reference, and is a plain
// name whatever they are.
func (r record) fileName() string {
	sum := sha256.Sum256([]byte(r.Repository + "\x00" + r.Reference))
	return path.Join(manifestsDir, hex.EncodeToString(sum[:])+".json")
}

// whole reports whether the record is what was once written.
func (r record) whole() bool {
	digest := digestOf(r.Manifest).String()
	return r.Digest == digest && (r.Reference == digest || tagPattern.MatchString(r.Reference)) &&
		repositoryPattern.MatchString(r.Repository)
}

func (h *registryHandler) putManifest(w http.ResponseWriter, req *http.Request, r route) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxManifest))
	if err != nil {
		writeBodyError(w, err, maxManifest)
		return
	}
	rec := record{
		Repository: r.repository, Reference: r.name, MediaType: req.Header.Get("Content-Type"),
		Digest: digestOf(raw).String(), Manifest: raw,
	}
	if digestPattern.MatchString(rec.Reference) && rec.Reference != rec.Digest {
		writeError(w, http.StatusBadRequest, "DIGEST_INVALID", "the manifest has the digest "+rec.Digest)
		return
	}
	if status, code, err := h.checkManifest(req.Context(), rec); err != nil {
		writeError(w, status, code, err.Error())
		return
	}
	// On disk first: what a client has seen must be there after a crash.
	if err := h.save(rec); err != nil {
		h.log.Error("an artifact's manifest cannot be stored", "repository", rec.Repository, "err", err)
		writeError(w, http.StatusInternalServerError, "UNKNOWN", "the manifest cannot be stored")
		return
	}
	h.forward(w, req.Context(), rec)
}

// checkManifest refuses what would be of no use later: a manifest of another
// kind than an image's, or one whose blobs are not all there.
func (h *registryHandler) checkManifest(ctx context.Context, rec record) (status int, code string, err error) {
	if !types.MediaType(rec.MediaType).IsImage() {
		return http.StatusBadRequest, "MANIFEST_INVALID", errors.New("only image manifests are stored here")
	}
	m, err := v1.ParseManifest(bytes.NewReader(rec.Manifest))
	if err != nil {
		return http.StatusBadRequest, "MANIFEST_INVALID", fmt.Errorf("the manifest cannot be parsed: %w", err)
	}
	if m.MediaType != "" && string(m.MediaType) != rec.MediaType {
		return http.StatusBadRequest, "MANIFEST_INVALID", errors.New("the manifest's mediaType and the Content-Type differ")
	}
	for _, desc := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		size, err := h.blobs.Stat(ctx, rec.Repository, desc.Digest)
		if errors.Is(err, registry.ErrNotFound) || err == nil && size != desc.Size {
			return http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", fmt.Errorf("blob %s of %d bytes is not there", desc.Digest, desc.Size)
		}
		if err != nil {
			h.log.Error("an artifact's blob cannot be read", "blob", desc.Digest.String(), "err", err)
			return http.StatusInternalServerError, "UNKNOWN", errors.New("a blob cannot be read")
		}
	}
	return 0, "", nil
}

// save stores the record durably, whole or not at all.
func (h *registryHandler) save(rec record) error {
	content, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	f, name, err := createTemp(h.root)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, h.root.Remove(name))
	}
	if err := publish(h.root, name, rec.fileName()); err != nil {
		return errors.Join(err, h.root.Remove(name))
	}
	return nil
}

// forward gives the record to the library, which answers the client.
func (h *registryHandler) forward(w http.ResponseWriter, ctx context.Context, rec record) {
	target := "/v2/" + rec.Repository + "/manifests/" + rec.Reference
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, bytes.NewReader(rec.Manifest))
	if err != nil {
		panic(err) // both names match patterns of plain characters
	}
	req.Header.Set("Content-Type", rec.MediaType)
	h.library.ServeHTTP(w, req)
}

// replay gives the library every manifest that is stored. A damaged record is
// reported and left where it is: the next push writes it anew.
func (h *registryHandler) replay() error {
	entries, err := fs.ReadDir(h.root.FS(), manifestsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(manifestsDir, e.Name())
		rec, err := h.load(name)
		if err != nil {
			return err
		}
		if !rec.whole() || rec.fileName() != name {
			h.log.Warn("an artifact's manifest is damaged on disk and is not served; pushing it again heals it", "file", name)
			continue
		}
		answer := &statusWriter{header: http.Header{}}
		h.forward(answer, context.Background(), rec)
		if answer.status != http.StatusCreated {
			return fmt.Errorf("load manifest %s of %s: status %d", rec.Reference, rec.Repository, answer.status)
		}
	}
	return nil
}

// load reads a record; one that cannot be parsed is returned empty, as damaged.
func (h *registryHandler) load(name string) (record, error) {
	f, err := h.root.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	// Base64 and the names make a record larger than its manifest.
	content, err := io.ReadAll(io.LimitReader(f, 2*maxManifest))
	if err != nil {
		return record{}, err
	}
	var rec record
	if json.Unmarshal(content, &rec) != nil {
		return record{}, nil
	}
	return rec, nil
}

// statusWriter is the answer of a request that nobody made.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header         { return w.header }
func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *statusWriter) WriteHeader(status int)      { w.status = status }
