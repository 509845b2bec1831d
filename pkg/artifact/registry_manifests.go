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

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
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
	return r.Digest == digest && (r.Reference == digest || tagPattern().MatchString(r.Reference)) &&
		repositoryPattern().MatchString(r.Repository)
}

func (h *registryHandler) putManifest(w http.ResponseWriter, req *http.Request, r route) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, tree.MaxManifest))
	if err != nil {
		writeBodyError(w, err, tree.MaxManifest)
		return
	}
	rec := record{
		Repository: r.repository, Reference: r.name, MediaType: req.Header.Get("Content-Type"),
		Digest: digestOf(raw).String(), Manifest: raw,
	}
	if tree.IsDigest(rec.Reference) && rec.Reference != rec.Digest {
		writeError(w, http.StatusBadRequest, "DIGEST_INVALID", "the manifest has the digest "+rec.Digest)
		return
	}
	needs, err := blobsOf(rec)
	if err != nil {
		writeError(w, http.StatusBadRequest, "MANIFEST_INVALID", err.Error())
		return
	}
	if !h.checkBlobs(w, req, needs, http.StatusBadRequest) {
		return
	}
	// One at a time, so that of two manifests for one tag the same is in memory
	// and on disk. On disk first: what a client has seen must be there after a
	// crash. By digest too: a tag may move on, the manifest stays.
	h.puts.Lock()
	defer h.puts.Unlock()
	byDigest := rec
	byDigest.Reference = rec.Digest
	err = h.save(byDigest)
	if err == nil && rec.Reference != rec.Digest {
		err = h.save(rec)
	}
	if err != nil {
		h.log.Error("an artifact's manifest cannot be stored", "repository", rec.Repository, "err", err)
		writeError(w, http.StatusInsufficientStorage, codeStorage, "the manifest cannot be stored")
		return
	}
	h.publish(w, req.Context(), rec, needs)
}

// getManifest leaves the answer to the library, except that a manifest whose
// blobs are not whole any more is absent: it would otherwise tell a client that
// there is nothing to push.
func (h *registryHandler) getManifest(w http.ResponseWriter, req *http.Request, r route) {
	h.mu.RLock()
	needs := h.needs[r]
	h.mu.RUnlock()
	if h.checkBlobs(w, req, needs, http.StatusNotFound) {
		h.library.ServeHTTP(w, req)
	}
}

// blobsOf returns what the manifest needs. Manifests of another kind than an
// image's are refused: their parts would have to be kept together too.
func blobsOf(rec record) ([]v1.Descriptor, error) {
	if !types.MediaType(rec.MediaType).IsImage() {
		return nil, errors.New("only image manifests are stored here")
	}
	m, err := v1.ParseManifest(bytes.NewReader(rec.Manifest))
	if err != nil {
		return nil, fmt.Errorf("the manifest cannot be parsed: %w", err)
	}
	if m.MediaType != "" && string(m.MediaType) != rec.MediaType {
		return nil, errors.New("the manifest's mediaType and the Content-Type differ")
	}
	return append([]v1.Descriptor{m.Config}, m.Layers...), nil
}

// checkBlobs reports whether all blobs are there and whole. If not, it has
// answered, with the status missing if it is for want of a blob.
func (h *registryHandler) checkBlobs(w http.ResponseWriter, req *http.Request, needs []v1.Descriptor, missing int) bool {
	for _, desc := range needs {
		size, err := h.blobs.Stat(req.Context(), "", desc.Digest)
		switch {
		case errors.Is(err, registry.ErrNotFound) || err == nil && size != desc.Size:
			writeError(w, missing, "MANIFEST_BLOB_UNKNOWN", fmt.Sprintf("blob %s of %d bytes is not there", desc.Digest, desc.Size))
			return false
		case err != nil:
			h.log.Error("an artifact's blob cannot be read", "blob", desc.Digest.String(), "err", err)
			writeError(w, http.StatusInternalServerError, "UNKNOWN", "a blob cannot be read")
			return false
		}
	}
	return true
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

// publish makes the stored record readable, by the library, which answers the
// client.
func (h *registryHandler) publish(w http.ResponseWriter, ctx context.Context, rec record, needs []v1.Descriptor) {
	h.mu.Lock()
	for _, name := range []string{rec.Reference, rec.Digest} {
		h.needs[route{repository: rec.Repository, noun: "manifests", name: name}] = needs
	}
	h.mu.Unlock()
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
		needs, err := blobsOf(rec)
		if err != nil || !rec.whole() || rec.fileName() != name {
			h.log.Warn("an artifact's manifest is damaged on disk and is not served; pushing it again heals it", "file", name)
			continue
		}
		answer := &statusWriter{header: http.Header{}}
		h.publish(answer, context.Background(), rec, needs)
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
	content, err := io.ReadAll(io.LimitReader(f, 2*tree.MaxManifest))
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
