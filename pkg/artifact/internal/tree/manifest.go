package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

// The media types of an artifact's parts. A reader accepts only these types, so a change of
// the packing needs a new type.
const (
	// ArtifactType is the type of a component's source: the archive is the component's
	// folder.
	ArtifactType = "application/vnd.fairlead.component.v1"
	// SharedType is the type of a component's source with other folders that it needs.
	// FolderAnnotation has the path of the component's folder in the archive. SharedType is
	// a separate type, so that an old reader refuses the artifact. An old reader would
	// use the top of the archive, which has no module or a different module.
	SharedType = "application/vnd.fairlead.component.v2"
	// ModulesType is the type of a component's source with modules of other places, in
	// ModulesFolder. It has a FolderAnnotation. An old reader refuses it, because its tool
	// would fetch the modules again.
	ModulesType = "application/vnd.fairlead.component.v3"
	// ModulesFolder has the modules of other places, at the top of the archive.
	ModulesFolder = ".fairlead"
	// FolderAnnotation is the path of the component's folder in the archive, with slashes.
	FolderAnnotation = "dev.fairlead.component.folder"
	// LayerType is the type of the only layer, which is the uncompressed tar.
	LayerType = "application/vnd.fairlead.component.v1.tar"
	// ManifestType is the type of the manifest.
	ManifestType = "application/vnd.oci.image.manifest.v1+json"
)

// MaxManifest is the maximum size of a manifest in bytes. The distribution specification
// requires at least this limit.
const MaxManifest = 4 << 20

// Layer describes the only layer of a manifest.
type Layer struct {
	Digest string // "sha256:" and 64 hex digits
	Size   int64  // bytes, not negative
	Folder string // valid path of the component's folder in the archive; ".": the whole archive
}

// ParseManifest returns the layer of a component's manifest. It refuses every manifest that
// Pack would not write.
func ParseManifest(raw []byte) (Layer, error) {
	var m struct {
		SchemaVersion int    `json:"schemaVersion"`
		MediaType     string `json:"mediaType"`
		ArtifactType  string `json:"artifactType"`
		Layers        []struct {
			MediaType string `json:"mediaType"`
			Size      int64  `json:"size"`
			Digest    string `json:"digest"`
		} `json:"layers"`
		Annotations map[string]string `json:"annotations"`
	}
	folder := "."
	err := json.Unmarshal(raw, &m)
	switch {
	case err != nil:
		return Layer{}, Damaged("", "has no readable manifest", err)
	case m.SchemaVersion != 2 || m.MediaType != ManifestType || m.ArtifactType != ArtifactType && m.ArtifactType != SharedType && m.ArtifactType != ModulesType:
		return Layer{}, Damaged("", fmt.Sprintf("has the type %q, which is not a component's", Abbreviate(m.ArtifactType)), nil)
	case len(m.Layers) != 1 || m.Layers[0].MediaType != LayerType:
		return Layer{}, Damaged("", "does not have exactly one layer with source", nil)
	case m.Layers[0].Size < 0:
		return Layer{}, Damaged("", "has a layer with a negative size", nil)
	case !IsDigest(m.Layers[0].Digest):
		return Layer{}, Damaged("", "has a layer without a digest", nil)
	}
	if m.ArtifactType != ArtifactType {
		folder = m.Annotations[FolderAnnotation]
		if !fs.ValidPath(folder) || (Limits{}).WithDefaults().CheckPath(ArtifactPath(), folder) != nil {
			return Layer{}, Damaged("", fmt.Sprintf("has the invalid component folder %q", Abbreviate(folder)), nil)
		}
	}
	return Layer{Digest: m.Layers[0].Digest, Size: m.Layers[0].Size, Folder: folder}, nil
}

// Digest returns the digest of content: "sha256:" and 64 hex digits.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IsDigest reports whether s has the format of Digest.
func IsDigest(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}
