package ko

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// finish writes the image that the tool made to the folder, with the SBOM of each platform in the form in which BuildKit stores
// it: so all that reads an image of a build finds its SBOM in one place.
func (b *Builder) finish(f folders, folder string) error {
	made, err := images(f.made)
	if err != nil {
		return damaged(err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var attestations []mutate.IndexAddendum
	for _, img := range made {
		a, err := attestation(f.sboms, img)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img.Image, Descriptor: v1.Descriptor{MediaType: img.mediaType, Digest: img.digest, Platform: img.platform}})
		attestations = append(attestations, a)
	}
	index = mutate.AppendManifests(index, attestations...)
	out, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = out.AppendIndex(index)
	}
	if err != nil {
		return fmt.Errorf("store the image: %w", err)
	}
	return nil
}

func damaged(err error) error {
	return &plugin.Error{Reason: fairlead.ReasonImageInvalid, Err: err, Message: "ko made no valid image: " + err.Error()}
}

// platformImage is the image of one platform.
type platformImage struct {
	v1.Image
	platform  *v1.Platform
	digest    v1.Hash
	mediaType types.MediaType
}

// images returns the images of the platforms in the layout that the tool wrote.
func images(folder string) ([]platformImage, error) {
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	m, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(m.Manifests) == 1 && m.Manifests[0].MediaType.IsIndex() {
		if top, err = top.ImageIndex(m.Manifests[0].Digest); err == nil {
			m, err = top.IndexManifest()
		}
		if err != nil {
			return nil, err
		}
	}
	var out []platformImage
	for _, d := range m.Manifests {
		img, err := top.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		p := &v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
		out = append(out, platformImage{Image: img, platform: p, digest: d.Digest, mediaType: d.MediaType})
	}
	return out, nil
}

// attestation returns the SBOM of an image as an attestation.
func attestation(folder string, img platformImage) (mutate.IndexAddendum, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*-"+strings.ReplaceAll(img.platform.String(), "/", "-")+".spdx.json"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("there are %d SBOMs for %s", len(files), img.platform)
	}
	if err != nil {
		return mutate.IndexAddendum{}, damaged(err)
	}
	document, err := os.ReadFile(files[0])
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("read the SBOM: %w", err)
	}
	statement, err := json.Marshal(map[string]any{"_type": "https://in-toto.io/Statement/v1", "predicateType": artifact.SPDXDocument, "predicate": json.RawMessage(document),
		"subject": []map[string]any{{"name": img.platform.String(), "digest": map[string]string{img.digest.Algorithm: img.digest.Hex}}}})
	if err != nil {
		return mutate.IndexAddendum{}, damaged(err)
	}
	own, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: static.NewLayer(statement, artifact.StatementType), Annotations: map[string]string{artifact.PredicateAnnotation: artifact.SPDXDocument}})
	if err != nil {
		return mutate.IndexAddendum{}, damaged(err)
	}
	return mutate.IndexAddendum{Add: own, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": img.digest.String()}}}, nil
}
