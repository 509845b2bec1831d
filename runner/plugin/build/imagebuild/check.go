package imagebuild

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
	"os"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The limits of a layout. They bound what a hostile builder can make a registry keep.
const (
	maxManifest  = 4 << 20  // bytes of a manifest, an index or a configuration
	maxManifests = 100      // of an image: platforms and attestations
	maxDepth     = 2        // of indexes in indexes
	maxBlobs     = 2000     // of an image
	maxBytes     = 20 << 30 // of all blobs of an image
)

// The media types of an image's parts.
const (
	indexType       = "application/vnd.oci.image.index.v1+json"
	dockerIndexType = "application/vnd.docker.distribution.manifest.list.v2+json"
	imageType       = "application/vnd.oci.image.manifest.v1+json"
	dockerImageType = "application/vnd.docker.distribution.manifest.v2+json"
	emptyType       = "application/vnd.oci.empty.v1+json"
)

var (
	configTypes = []string{"application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"}
	layerTypes  = []string{"application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+zstd",
		"application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip"}
	digestPattern = pattern.New(`^sha256:[0-9a-f]{64}$`)
)

// The annotations by which BuildKit marks the attestations of an image.
const (
	referenceType   = "vnd.docker.reference.type"
	referenceDigest = "vnd.docker.reference.digest"
	attestation     = "attestation-manifest"
)

// Image is a checked image of a layout.
type Image struct {
	Digest    string   // of its manifest or index
	Platforms []string // sorted
	Bytes     int64    // of all blobs
	SBOMs     []SBOM   // in the order of their platforms
}

// SBOM is an in-toto statement with the software bill of materials of one platform, in the format SPDX.
type SBOM struct {
	Platform string
	Digest   string // of the statement, a blob of the layout
	Size     int64
}

// WithoutSBOM returns the platforms of the image that have no SBOM.
func (i Image) WithoutSBOM() (out []string) {
	for _, p := range i.Platforms {
		if !slices.ContainsFunc(i.SBOMs, func(s SBOM) bool { return s.Platform == p }) {
			out = append(out, p)
		}
	}
	return out
}

// Check returns the only image of the layout in the folder dir. It reads each blob. It refuses a layout with a blob that is
// missing, larger or other than its digest, with another kind of content than images and attestations, with links or other
// files, beyond the limits, or without exactly the wanted platforms; without any, all are accepted. The error is a
// *plugin.Error with fairlead.ReasonImageInvalid, or wraps ctx's error.
func Check(ctx context.Context, dir string, platforms []string) (Image, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Image{}, fmt.Errorf("open the layout: %w", err)
	}
	defer root.Close()
	c := check{ctx: ctx, root: root, seen: map[string]int64{}, of: map[string]string{}}
	img, err := c.image(platforms)
	if err != nil && ctx.Err() != nil {
		return Image{}, fmt.Errorf("check the layout: %w", ctx.Err())
	}
	if err != nil {
		return Image{}, &plugin.Error{Reason: fairlead.ReasonImageInvalid, Err: err, Message: "the image builder made no valid image: " + err.Error()}
	}
	return img, nil
}

// descriptor is a descriptor of OCI.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	URLs        []string          `json:"urls"`
	Annotations map[string]string `json:"annotations"`
	Platform    *platform         `json:"platform"`
}

type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
}

// String returns the platform as OS/ARCHITECTURE/VARIANT, without a variant that the architecture has by default.
func (p platform) String() string {
	out := p.OS + "/" + p.Architecture
	if p.Variant != "" && !(p.Architecture == "arm64" && p.Variant == "v8") && !(p.Architecture == "amd64" && p.Variant == "v1") {
		out += "/" + p.Variant
	}
	return out
}

// check is one check of a layout.
type check struct {
	ctx       context.Context
	root      *os.Root
	seen      map[string]int64 // size of each blob by digest
	bytes     int64
	manifests int
	platforms []string
	of        map[string]string // platform by the digest of the image's manifest
	sboms     []subjectSBOM
}

// subjectSBOM is an SBOM whose platform is not known yet: an index may list an attestation before its image.
type subjectSBOM struct {
	subject string // digest of the image's manifest
	SBOM
}

func (c *check) image(wanted []string) (Image, error) {
	if err := c.files(); err != nil {
		return Image{}, err
	}
	text, err := c.read("index.json", maxManifest)
	if err != nil {
		return Image{}, err
	}
	var top struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return Image{}, errors.New("index.json is not JSON")
	}
	if len(top.Manifests) != 1 {
		return Image{}, fmt.Errorf("index.json has %d images, want 1", len(top.Manifests))
	}
	of := top.Manifests[0]
	if err := c.entry(of, 0); err != nil {
		return Image{}, err
	}
	slices.Sort(c.platforms)
	if len(c.platforms) == 0 {
		return Image{}, errors.New("it has attestations only")
	}
	if len(slices.Compact(slices.Clone(c.platforms))) != len(c.platforms) {
		return Image{}, fmt.Errorf("it has a platform twice: %s", strings.Join(c.platforms, ", "))
	}
	if want := normal(wanted); len(want) > 0 && !slices.Equal(want, c.platforms) {
		return Image{}, fmt.Errorf("it is for %s, and app.yaml asks for %s", strings.Join(c.platforms, ", "), strings.Join(want, ", "))
	}
	img := Image{Digest: of.Digest, Platforms: c.platforms, Bytes: c.bytes}
	for _, s := range c.sboms {
		s.Platform = c.of[s.subject]
		img.SBOMs = append(img.SBOMs, s.SBOM)
	}
	slices.SortStableFunc(img.SBOMs, func(a, b SBOM) int { return strings.Compare(a.Platform, b.Platform) })
	return img, nil
}

// normal returns platforms as platform.String writes them, sorted.
func normal(texts []string) []string {
	var out []string
	for _, text := range texts {
		parts := append(strings.SplitN(text, "/", 3), "", "")
		out = append(out, platform{OS: parts[0], Architecture: parts[1], Variant: parts[2]}.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// files refuses a layout with other files than those of an image.
func (c *check) files() error {
	n := 0
	return fs.WalkDir(c.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		n++
		switch {
		case err != nil:
			return err
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case n > 2*maxBlobs:
			return fmt.Errorf("it has more than %d files", 2*maxBlobs)
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%q is no regular file", name)
		}
		return nil
	})
}

// entry checks what a descriptor of an index names.
func (c *check) entry(d descriptor, depth int) error {
	if c.manifests++; c.manifests > maxManifests {
		return fmt.Errorf("it has more than %d manifests", maxManifests)
	}
	switch d.MediaType {
	case indexType, dockerIndexType:
		if depth >= maxDepth {
			return fmt.Errorf("it has indexes more than %d deep", maxDepth)
		}
		var index struct {
			MediaType string       `json:"mediaType"`
			Manifests []descriptor `json:"manifests"`
			Subject   *descriptor  `json:"subject"`
		}
		if err := c.manifest(d, &index); err != nil {
			return err
		}
		if index.MediaType != "" && index.MediaType != d.MediaType || index.Subject != nil {
			return fmt.Errorf("the index %s has another type than its descriptor, or a subject", d.Digest)
		}
		for _, child := range index.Manifests {
			if err := c.child(child, index.Manifests, depth+1); err != nil {
				return err
			}
		}
		return nil
	case imageType, dockerImageType:
		return c.oneImage(d)
	}
	return fmt.Errorf("%s has the type %.100q, which is none of an image", d.Digest, d.MediaType)
}

// child checks an entry of an index.
func (c *check) child(d descriptor, in []descriptor, depth int) error {
	if d.Annotations[referenceType] == "" {
		return c.entry(d, depth)
	}
	if d.Annotations[referenceType] != attestation || !slices.ContainsFunc(in, func(o descriptor) bool {
		return o.Digest == d.Annotations[referenceDigest] && o.Annotations[referenceType] == ""
	}) {
		return fmt.Errorf("%s is no attestation of an image of its index", d.Digest)
	}
	if c.manifests++; c.manifests > maxManifests {
		return fmt.Errorf("it has more than %d manifests", maxManifests)
	}
	return c.attestation(d)
}

type imageManifest struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// oneImage checks the image of one platform.
func (c *check) oneImage(d descriptor) error {
	var m imageManifest
	if err := c.manifest(d, &m); err != nil {
		return err
	}
	if !slices.Contains(configTypes, m.Config.MediaType) {
		return fmt.Errorf("%s has a configuration of the type %.100q, which is none of an image", d.Digest, m.Config.MediaType)
	}
	var p platform
	if err := c.manifest(m.Config, &p); err != nil {
		return err
	}
	if p.OS == "" || p.Architecture == "" || d.Platform != nil && d.Platform.String() != p.String() {
		return fmt.Errorf("%s has no platform, or another one than its index names", d.Digest)
	}
	c.platforms, c.of[d.Digest] = append(c.platforms, p.String()), p.String()
	for _, l := range m.Layers {
		if !slices.Contains(layerTypes, l.MediaType) {
			return fmt.Errorf("%s has a layer of the type %.100q, which is none of an image", d.Digest, l.MediaType)
		}
		if err := c.blob(l, io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// attestation checks a manifest with statements about an image.
func (c *check) attestation(d descriptor) error {
	if d.MediaType != imageType {
		return fmt.Errorf("the attestation %s has the type %.100q", d.Digest, d.MediaType)
	}
	var m imageManifest
	if err := c.manifest(d, &m); err != nil {
		return err
	}
	if m.Config.MediaType != emptyType && !slices.Contains(configTypes, m.Config.MediaType) {
		return fmt.Errorf("the attestation %s has a configuration of the type %.100q", d.Digest, m.Config.MediaType)
	}
	for _, part := range append(m.Layers, m.Config) {
		if part.Digest != m.Config.Digest && part.MediaType != artifact.StatementType {
			return fmt.Errorf("the attestation %s has a part of the type %.100q", d.Digest, part.MediaType)
		}
		if err := c.blob(part, io.Discard); err != nil {
			return err
		}
		if part.Annotations[artifact.PredicateAnnotation] == artifact.SPDXDocument {
			c.sboms = append(c.sboms, subjectSBOM{d.Annotations[referenceDigest], SBOM{Digest: part.Digest, Size: part.Size}})
		}
	}
	return nil
}

// manifest reads a blob of JSON.
func (c *check) manifest(d descriptor, into any) error {
	if d.Size > maxManifest {
		return fmt.Errorf("%s is larger than %d bytes", d.Digest, maxManifest)
	}
	var text bytes.Buffer
	if err := c.blob(d, &text); err != nil {
		return err
	}
	if err := json.Unmarshal(text.Bytes(), into); err != nil {
		return fmt.Errorf("%s is not JSON of its type", d.Digest)
	}
	return nil
}

// blob copies a blob and verifies its size and digest. Of a blob that was verified before, it copies nothing to io.Discard.
func (c *check) blob(d descriptor, to io.Writer) error {
	if !digestPattern.MatchString(d.Digest) || d.Size < 0 || len(d.URLs) > 0 {
		return fmt.Errorf("the descriptor of %.100q is not one of a blob in the layout", d.Digest)
	}
	size, seen := c.seen[d.Digest]
	if seen && size != d.Size {
		return fmt.Errorf("%s has two sizes", d.Digest)
	}
	if seen && to == io.Discard {
		return nil
	}
	if !seen {
		c.seen[d.Digest] = d.Size
		if c.bytes += d.Size; c.bytes > maxBytes || len(c.seen) > maxBlobs {
			return fmt.Errorf("it has more than %d bytes or more than %d blobs", int64(maxBytes), maxBlobs)
		}
	}
	f, err := c.open(path.Join("blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
	if err != nil {
		return err
	}
	defer f.Close() // an error of Close has no effect on a file that was only read
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, to), io.LimitReader(interruptible{c.ctx, f}, d.Size+1))
	if err != nil {
		return err
	}
	if n != d.Size || "sha256:"+hex.EncodeToString(sum.Sum(nil)) != d.Digest {
		return fmt.Errorf("the blob %s has another size or content than its name states", d.Digest)
	}
	return nil
}

// read returns the content of a file.
func (c *check) read(name string, limit int64) ([]byte, error) {
	f, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // an error of Close has no effect on a file that was only read
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return text, err
}

// open opens a regular file. It follows no link.
func (c *check) open(name string) (*os.File, error) {
	info, err := c.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has no file %s", name)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		return nil, err
	}
	return c.root.Open(name)
}

// interruptible ends reading when the context ends.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
