package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// refName is the annotation that has the tag of an image in a layout (OCI image layout specification).
const refName = "org.opencontainers.image.ref.name"

// image builds a variant of the runner's image for all architectures, and writes it as one OCI archive: an index, and its signature
// under the tag that cosign gives it.
func (r release) image(ctx context.Context, flag, suffix, work string) error {
	name := "fairlead-runner-image" + suffix + "_" + r.version
	r.say("Building %s", name)
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, arch := range r.archs {
		img, err := r.imageFor(ctx, arch, flag, suffix, filepath.Join(work, arch))
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		if err := r.describeImage(img, name+"_linux_"+arch, arch, suffix != ""); err != nil {
			return err
		}
	}
	return r.packImage(ctx, index, name, suffix, filepath.Join(work, "all"+suffix))
}

// packImage writes an index of images, with its signature, as an OCI archive.
func (r release) packImage(ctx context.Context, index v1.ImageIndex, name, suffix, folder string) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	l, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: r.version + suffix}))
	}
	if err == nil && r.signer != nil {
		err = r.signImage(ctx, l, digest)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	r.say("%s is %s", name, digest)
	return packFolder(filepath.Join(r.folder, name+".oci.tar"), folder)
}

// imageFor builds the image for one architecture.
func (r release) imageFor(ctx context.Context, arch, flag, suffix, work string) (v1.Image, error) {
	args := []string{"run", "./infra/images/runner", "-arch", arch, "-version", r.version, "-out", work}
	if r.tofu != "" {
		args = append(args, "-tofu", filepath.Join(r.tofu, "tofu-"+arch))
	}
	if flag != "" {
		args = append(args, flag)
	}
	out, err := r.run(ctx, []string{"CGO_ENABLED=0", "GOWORK=off"}, "go", args...)
	if err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(strings.TrimSpace(out))
	if err != nil {
		return nil, fmt.Errorf("the build of the image for %s printed no digest: %w", arch, err)
	}
	l, err := layout.FromPath(filepath.Join(work, "layout"+suffix))
	if err != nil {
		return nil, err
	}
	return l.Image(digest)
}

// signImage adds cosign's signature of the image with the digest to the layout.
func (r release) signImage(ctx context.Context, l layout.Path, digest v1.Hash) error {
	text, err := json.Marshal(payload.SimpleContainerImage{Critical: payload.Critical{
		Type: payload.CosignSignatureType, Identity: payload.Identity{DockerReference: "fairlead-runner"}, Image: payload.Image{DockerManifestDigest: digest.String()},
	}})
	if err != nil {
		return err
	}
	signature, err := r.signer.sign(ctx, text)
	if err != nil {
		return err
	}
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(text, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": signature},
	})
	if err != nil {
		return err
	}
	return l.AppendImage(img, layout.WithAnnotations(map[string]string{refName: "sha256-" + digest.Hex + ".sig"}))
}

// describeImage writes the SBOM of an image.
func (r release) describeImage(img v1.Image, name, arch string, debian bool) error {
	s := newSBOM(name, r.version, "container")
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }() // read to its end
	if err := s.addTar(files); err != nil {
		return fmt.Errorf("list the parts of %s: %w", name, err)
	}
	if debian {
		if err := s.addDebian(packagesFile, arch); err != nil {
			return err
		}
	}
	return s.write(filepath.Join(r.folder, name+".cdx.json"))
}
