package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// The media types of an artifact's parts. A reader accepts only these types, so a change of
// the packing needs a new type.
const (
	// ArtifactType is the type of a component's source; SharedType is the type of a source with shared folders.
	ArtifactType = tree.ArtifactType
	SharedType   = tree.SharedType
	// ModulesType is the type of a source with modules of other places.
	ModulesType = tree.ModulesType
	// layerType is the type of the only layer, which is the uncompressed tar.
	layerType types.MediaType = tree.LayerType
	// emptyType is the config's type in an OCI 1.1 artifact without a config. Its content
	// is the two bytes of emptyConfig.
	emptyType types.MediaType = "application/vnd.oci.empty.v1+json"
)

const emptyConfig = "{}"

// Artifact is a packed source folder. It is immutable and safe for concurrent use.
type Artifact struct {
	digest   string
	manifest []byte
	layer    v1.Descriptor
	tar      []byte
	files    int
	bytes    int64
}

// ModulesFolder has the modules of other places in an artifact of ModulesType.
const ModulesFolder = tree.ModulesFolder

// newArtifact returns the artifact of an archive.
func newArtifact(archive []byte, files int, content int64, as source) (*Artifact, error) {
	a := &Artifact{tar: archive, files: files, bytes: content, layer: describe(layerType, archive)}
	// The library's struct sets the order of the fields. A golden digest in the tests detects a change.
	m := v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  ArtifactType,
		Config:        describe(emptyType, []byte(emptyConfig)),
		Layers:        []v1.Descriptor{a.layer},
	}
	if as.folder != "" {
		m.ArtifactType, m.Annotations = as.kind, map[string]string{tree.FolderAnnotation: as.folder}
	}
	manifest, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	a.manifest = manifest
	a.digest = digestOf(manifest).String()
	return a, nil
}

// Digest returns the digest of the OCI manifest, "sha256:" and 64 hex digits. The digest is
// known before the artifact is pushed.
func (a *Artifact) Digest() string { return a.digest }

// Files returns the number of files in the artifact.
func (a *Artifact) Files() int { return a.files }

// Bytes returns the size of the content of all files together.
func (a *Artifact) Bytes() int64 { return a.bytes }

// Tar returns a reader of the archive, for Unpack.
func (a *Artifact) Tar() io.Reader { return bytes.NewReader(a.tar) }

func describe(mediaType types.MediaType, content []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(content)), Digest: digestOf(content)}
}

func digestOf(content []byte) v1.Hash {
	sum := sha256.Sum256(content)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// image returns the artifact in the form that the library pushes.
func (a *Artifact) image() (v1.Image, error) {
	return partial.CompressedToImage(imageCore{a})
}

type imageCore struct{ a *Artifact }

func (c imageCore) RawConfigFile() ([]byte, error)      { return []byte(emptyConfig), nil }
func (c imageCore) RawManifest() ([]byte, error)        { return c.a.manifest, nil }
func (c imageCore) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c imageCore) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	switch h {
	case c.a.layer.Digest:
		return rawLayer{c.a.layer, c.a.tar}, nil
	case digestOf([]byte(emptyConfig)):
		return rawLayer{describe(emptyType, []byte(emptyConfig)), []byte(emptyConfig)}, nil
	}
	return nil, fmt.Errorf("the artifact has no blob %s", h)
}

type rawLayer struct {
	desc    v1.Descriptor
	content []byte
}

func (l rawLayer) Digest() (v1.Hash, error)            { return l.desc.Digest, nil }
func (l rawLayer) Size() (int64, error)                { return l.desc.Size, nil }
func (l rawLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }
func (l rawLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.content)), nil
}
