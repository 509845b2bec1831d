package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

const manifestsDir = "manifests"

// record is a manifest under one of its references: its digest or a tag. Its file is
// manifests/<account>/<repository>/<reference>.json, where each part in <> is a hash of the
// name.
type record struct {
	Repository string `json:"repository"`
	Reference  string `json:"reference"` // a digest or a tag
	MediaType  string `json:"mediaType"`
	Digest     string `json:"digest"`
	Manifest   []byte `json:"manifest"`
}

// repositoryDir returns the folder of a repository's records.
func (h *Registry) repositoryDir(repository string) string {
	return path.Join(manifestsDir, h.accounts.folder(repository), hashed(repository))
}

// fileName returns a valid file name that depends only on the repository and the reference.
func (h *Registry) fileName(repository, reference string) string {
	return path.Join(h.repositoryDir(repository), hashed(reference)+".json")
}

// formerName returns the file name that a record had before each account had its own folder.
func formerName(repository, reference string) string {
	return path.Join(manifestsDir, digestOf([]byte(repository+"\x00"+reference)).Hex+".json")
}

// whole reports whether the record is undamaged.
func (r record) whole() bool {
	digest := digestOf(r.Manifest).String()
	return r.Digest == digest && (r.Reference == digest || tagPattern.MatchString(r.Reference)) &&
		repositoryPattern.MatchString(r.Repository)
}

func (h *Registry) putManifest(w http.ResponseWriter, req *http.Request, r route) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPushed))
	if err != nil {
		writeBodyError(w, err, maxPushed)
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
	needs, layers, err := blobsOf(rec)
	if err == nil && layers > 1 {
		err = errors.New("an artifact must have one layer")
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "MANIFEST_INVALID", err.Error())
		return
	}
	if !h.checkBlobs(w, req, needs, http.StatusBadRequest) {
		return
	}
	// The lock prevents Collect from removing the manifest's blobs before the manifest is
	// stored. store also stores the record by digest: if the tag moves to another manifest,
	// this manifest is still available.
	h.files.Lock()
	defer h.files.Unlock()
	if err := h.store(rec, needs); err != nil {
		if full, ok := errors.AsType[*fullError](err); ok {
			writeError(w, http.StatusInsufficientStorage, codeStorage, full.Error())
			return
		}
		h.log.Error("an artifact's manifest cannot be stored", "repository", rec.Repository, "err", err)
		writeError(w, http.StatusInsufficientStorage, codeStorage, "the manifest cannot be stored")
		return
	}
	w.Header().Set("Location", "/v2/"+r.repository+"/manifests/"+r.name)
	w.Header().Set("Docker-Content-Digest", rec.Digest)
	w.WriteHeader(http.StatusCreated)
}

// store writes the record under its reference and under its digest. It counts the records
// and the blobs that the manifest needs. The caller holds h.files.
func (h *Registry) store(rec record, needs []v1.Descriptor) error {
	folder := h.accounts.folder(rec.Repository)
	for _, reference := range slices.Compact([]string{rec.Digest, rec.Reference}) {
		byName := rec
		byName.Reference = reference
		content, err := json.Marshal(byName)
		if err != nil {
			return err
		}
		name, replaced, one := h.fileName(rec.Repository, reference), int64(-1), 1
		if info, err := h.root.Stat(name); err == nil {
			replaced, one = info.Size(), 0
		}
		if err := h.accounts.roomForManifest(folder, int64(len(content))-max(0, replaced), one); err != nil {
			return err
		}
		if err := h.save(name, content); err != nil {
			return err
		}
		h.accounts.addManifest(folder, int64(len(content)), replaced)
	}
	for _, d := range needs {
		if err := h.accounts.addBlob(folder, d.Digest, d.Size); err != nil {
			return err
		}
	}
	return nil
}

// getManifest answers with a manifest from its file. A manifest with a damaged blob counts
// as missing. Otherwise a client would not push the blob again.
func (h *Registry) getManifest(w http.ResponseWriter, req *http.Request, r route) {
	rec, name, err := h.find(r.repository, r.name)
	if err != nil && !absent(err) {
		h.log.Error("an artifact's manifest cannot be read", "repository", r.repository, "err", err)
		writeError(w, http.StatusInternalServerError, "UNKNOWN", "the manifest cannot be read")
		return
	}
	if err != nil {
		writeError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "the manifest does not exist")
		return
	}
	needs, _, err := blobsOf(rec)
	if err != nil || !rec.whole() || rec.Repository != r.repository || rec.Reference != r.name {
		h.log.Warn("an artifact's manifest is damaged on disk and is not served; push the artifact again to restore it", "file", name)
		writeError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "the manifest does not exist")
		return
	}
	if !h.checkBlobs(w, req, needs, http.StatusNotFound) {
		return
	}
	if info, err := h.root.Stat(name); err == nil {
		h.touch(name, info)
	}
	w.Header().Set("Content-Type", rec.MediaType)
	w.Header().Set("Docker-Content-Digest", rec.Digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(rec.Manifest)))
	w.WriteHeader(http.StatusOK)
	if req.Method == http.MethodGet {
		_, _ = w.Write(rec.Manifest) // an error means that the client has disconnected
	}
}

// listTags answers with the sorted tags of a repository.
func (h *Registry) listTags(w http.ResponseWriter, req *http.Request, r route) {
	dir := h.repositoryDir(r.repository)
	entries, err := readDir(h.root, dir)
	tags := []string{}
	for _, e := range entries {
		if req.Context().Err() != nil {
			return
		}
		rec, lerr := h.load(path.Join(dir, e.Name()))
		if lerr == nil && rec.Repository == r.repository && rec.whole() && !tree.IsDigest(rec.Reference) {
			tags = append(tags, rec.Reference)
		}
	}
	if err != nil {
		h.log.Error("an artifact's tags cannot be read", "repository", r.repository, "err", err)
		writeError(w, http.StatusInternalServerError, "UNKNOWN", "the tags cannot be read")
		return
	}
	if len(entries) == 0 {
		writeError(w, http.StatusNotFound, "NAME_UNKNOWN", "the repository does not exist")
		return
	}
	slices.Sort(tags)
	body, err := json.Marshal(map[string]any{"name": r.repository, "tags": tags})
	if err != nil {
		panic(err) // strings always encode
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // an error means that the client has disconnected
}

// find returns the record of a reference and the name of the record's file.
func (h *Registry) find(repository, reference string) (record, string, error) {
	name := h.fileName(repository, reference)
	rec, err := h.load(name)
	if absent(err) {
		name = formerName(repository, reference)
		rec, err = h.load(name)
	}
	return rec, name, err
}

// freshFor is the age of a file's time at which a read updates it. So a file's time may be
// up to freshFor older than the last read.
const freshFor = time.Hour

// touch updates the time of a file that was read, unless the time is younger than freshFor.
// It reports whether it updated the time. Collect removes unreferenced files with old times.
func (h *Registry) touch(name string, info fs.FileInfo) bool {
	now := h.now()
	if now.Sub(info.ModTime()) < freshFor {
		return false
	}
	if err := h.root.Chtimes(name, now, now); err != nil {
		h.log.Warn("the time of a read artifact cannot be updated", "file", name, "err", err)
		return false
	}
	return true
}

// blobsOf returns the blobs that the manifest needs, each blob once, and the number of the
// manifest's layers. It refuses a manifest that is not an image's manifest, because Collect
// does not know which parts other manifests need.
func blobsOf(rec record) (needs []v1.Descriptor, layers int, err error) {
	if !types.MediaType(rec.MediaType).IsImage() {
		return nil, 0, errors.New("only image manifests are allowed")
	}
	m, err := v1.ParseManifest(bytes.NewReader(rec.Manifest))
	if err != nil {
		return nil, 0, fmt.Errorf("the manifest cannot be parsed: %w", err)
	}
	if m.MediaType != "" && string(m.MediaType) != rec.MediaType {
		return nil, 0, errors.New("the manifest's mediaType and the Content-Type differ")
	}
	type mention struct {
		digest v1.Hash
		size   int64
	}
	mentioned := map[mention]bool{}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if at := (mention{d.Digest, d.Size}); !mentioned[at] {
			mentioned[at] = true
			needs = append(needs, d)
		}
	}
	return needs, len(m.Layers), nil
}

// checkBlobs reports whether all blobs exist and are undamaged. If it returns false, it has
// already answered the request, or the client has disconnected. missing is the status of
// the answer if a blob is missing or damaged.
func (h *Registry) checkBlobs(w http.ResponseWriter, req *http.Request, needs []v1.Descriptor, missing int) bool {
	for _, desc := range needs {
		size, err := h.blobs.Stat(req.Context(), "", desc.Digest)
		switch {
		case errors.Is(err, registry.ErrNotFound) || err == nil && size != desc.Size:
			writeError(w, missing, "MANIFEST_BLOB_UNKNOWN", fmt.Sprintf("blob %s of %d bytes does not exist", desc.Digest, desc.Size))
			return false
		case req.Context().Err() != nil:
			return false // the client has disconnected
		case err != nil:
			h.log.Error("an artifact's blob cannot be read", "blob", desc.Digest.String(), "err", err)
			writeError(w, http.StatusInternalServerError, "UNKNOWN", "a blob cannot be read")
			return false
		}
	}
	return true
}

// save stores the file durably and atomically.
func (h *Registry) save(to string, content []byte) error {
	f, name, err := createTemp(h.root)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, h.root.Remove(name))
	}
	if err := publish(h.root, name, to); err != nil {
		return errors.Join(err, h.root.Remove(name))
	}
	return nil
}

// load reads a record. If the file cannot be parsed, it returns an empty record, which
// counts as damaged.
func (h *Registry) load(name string) (record, error) {
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
