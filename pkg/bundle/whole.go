package bundle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is what an entry of a bundle is.
type Kind string

// The kinds.
const (
	Artifact Kind = "artifact" // of a component or an action
	Locked   Kind = "image"    // of the lock
	Provider Kind = "provider" // of a module: an index with an archive for each platform
)

// Bundle is everything that an install of a version fetches.
type Bundle struct {
	App     string  `json:"app"`
	Version string  `json:"version"`
	Images  []Image `json:"images,omitempty"`
	Items   []Item  `json:"items,omitempty"` // what is not an image of the lock
}

// Item is an artifact or a provider.
type Item struct {
	Kind    Kind     `json:"kind"`
	Name    string   `json:"name"`              // component or action, or address of a provider
	Version string   `json:"version,omitempty"` // of a provider
	Digest  string   `json:"digest,omitempty"`  // of an artifact
	Hashes  []string `json:"hashes,omitempty"`  // of a provider's archives
	From    string   `json:"from,omitempty"`    // HOST/REPOSITORY that has the artifact
	UsedBy  []string `json:"used_by,omitempty"`
}

// Entry is an object of OCI that a bundle has.
type Entry struct {
	Kind      Kind     `json:"kind"`
	Name      string   `json:"name"`
	Version   string   `json:"version,omitempty"`
	UsedBy    []string `json:"used_by,omitempty"`
	Digest    string   `json:"digest"`
	MediaType string   `json:"media_type"`
	Size      int      `json:"size"` // of the manifest
}

// The annotations of the index of a bundle, and of its entries.
const (
	annotationApp       = "dev.fairlead.bundle.app"
	annotationVersionID = "dev.fairlead.bundle.version"
	annotationKind      = "dev.fairlead.bundle.kind"
	annotationEntry     = "dev.fairlead.bundle.name"
	annotationRelease   = "dev.fairlead.bundle.provider-version"
	annotationUsedBy    = "dev.fairlead.bundle.used-by"
)

// WholeType is the type of the index of a bundle.
const WholeType = "application/vnd.fairlead.bundle.v1"

// WholeTag begins the tag of the index of a bundle. The digits of the index's digest follow.
const WholeTag = "bundle-"

type whole struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations"`
}

// Whole returns the index of OCI that names all entries of a bundle, with what each is, and its digest. It is the same for the
// same entries, in whatever order.
func Whole(app, version string, entries []Entry) (text []byte, digest string) {
	w := whole{SchemaVersion: 2, MediaType: IndexType, ArtifactType: WholeType, Manifests: []descriptor{}, Annotations: map[string]string{annotationApp: app, annotationVersionID: version}}
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b Entry) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	}) {
		of := map[string]string{annotationKind: string(e.Kind), annotationEntry: e.Name}
		if e.Version != "" {
			of[annotationRelease] = e.Version
		}
		if len(e.UsedBy) > 0 {
			of[annotationUsedBy] = strings.Join(slices.Compact(slices.Sorted(slices.Values(e.UsedBy))), " ")
		}
		w.Manifests = append(w.Manifests, descriptor{MediaType: e.MediaType, Digest: e.Digest, Size: e.Size, Annotations: of})
	}
	text, err := json.Marshal(w)
	if err != nil {
		panic(err) // encoding texts and numbers cannot fail
	}
	return text, digestOf(text)
}

// ReadWhole reads the index of a bundle.
func ReadWhole(text []byte) (app, version string, entries []Entry, err error) {
	var w whole
	if err := json.Unmarshal(text, &w); err != nil {
		return "", "", nil, fmt.Errorf("read the index of the bundle: %w", err)
	}
	if w.ArtifactType != WholeType {
		return "", "", nil, errors.New("the index is not that of a bundle, or of a later version of this program")
	}
	for _, d := range w.Manifests {
		e := Entry{Kind: Kind(d.Annotations[annotationKind]), Name: d.Annotations[annotationEntry], Version: d.Annotations[annotationRelease],
			UsedBy: strings.Fields(d.Annotations[annotationUsedBy]), Digest: d.Digest, MediaType: d.MediaType, Size: d.Size}
		if e.Name == "" || !digestForm.MatchString(e.Digest) || e.Size <= 0 || e.Kind != Artifact && e.Kind != Locked && e.Kind != Provider {
			return "", "", nil, fmt.Errorf("the index of the bundle has an entry that this version of the program does not know: %.200q", e.Name)
		}
		entries = append(entries, e)
	}
	return w.Annotations[annotationApp], w.Annotations[annotationVersionID], entries, nil
}

// ProviderTag returns the tag under which a repository has the archives of a provider.
func ProviderTag(address, version string) string {
	sum := sha256.Sum256([]byte(address + "\n" + version))
	return "provider-" + hex.EncodeToString(sum[:16])
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
