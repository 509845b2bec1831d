// Package bundle has what a closed app is made of: the lock of its images, which maps each reference to a digest, and the
// index of OCI that names them all. It also has the requests with which the CLI asks the programs of plugins for the images of a
// component, for their digests, and for copies of them.
//
// The package is pure.
package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The place of the lock in an app's folder.
const (
	Folder = "bundle"
	File   = "images.lock"
)

// The limits of a lock.
const (
	MaxImages = 200
	MaxFile   = 1 << 20 // bytes
	version   = "v1"
)

// Lock maps the images of an app to their digests.
type Lock struct {
	Version string  `json:"lock" must:"true" check:"version" doc:"The version of this format."`
	Images  []Image `json:"images" must:"there" check:"images" doc:"The images, by reference."`
	// Named are the references of the images that app.yaml names itself, by their names there.
	Named map[string]string `json:"named,omitempty" check:"reference" doc:"References of the images that app.yaml names, by name."`
	// Sources are the digests of what was rendered to find the images, by component.
	Sources map[string]string `json:"sources,omitempty" check:"digest" doc:"Digests of the charts and manifests that were rendered, by component."`
}

// Image is an image by its digest.
type Image struct {
	Reference string   `json:"reference" key:"image"` // in the spelling of Normalize
	Digest    string   `json:"digest" must:"true" check:"digest" doc:"The digest of the image."`
	MediaType string   `json:"media_type" must:"true" check:"mediatype" doc:"The media type of the image's manifest."`
	Manifest  int      `json:"manifest_bytes" must:"true" doc:"The size of the image's manifest."`
	Bytes     int      `json:"bytes" must:"true" doc:"The size of all layers and configurations."`
	Platforms []string `json:"platforms,omitempty" doc:"The platforms of the image."`
	UsedBy    []string `json:"used_by,omitempty" doc:"The components whose objects have the image, and the names of app.yaml."`
}

// Image returns the image with the reference.
func (l Lock) Image(reference string) (Image, bool) {
	for _, i := range l.Images {
		if i.Reference == reference {
			return i, true
		}
	}
	return Image{}, false
}

// Read reads a lock. name is the name of the file in problems. Each problem has a line.
func Read(name string, text []byte) (Lock, []yamlnode.Problem) {
	const rewrite = "Write the lock again, and do not edit it."
	r := yamlnode.NewReader(name, yamlnode.Rules{Checks: map[string]yamlnode.Check{
		"version":   {Pattern: `^` + version + `$`, Wants: `"` + version + `", the version that this program reads`},
		"images":    {},
		"reference": {Pattern: `.`, Wants: "the reference of an image"},
		"digest":    {Pattern: digestForm.String(), Wants: "a digest such as sha256:…"},
		"mediatype": {Pattern: `^application/[a-zA-Z0-9.+-]+$`, Wants: "a media type", Max: 200},
	}})
	var l Lock
	root := r.Source(yamlnode.Read, text, MaxFile, rewrite)
	if len(r.Problems) == 0 {
		r.Struct(root, &l, "")
		r.Controls(root)
	}
	if len(l.Images) > MaxImages {
		r.Report("images", "too-many-images", fmt.Sprintf("the lock has %d images, %d are allowed", len(l.Images), MaxImages), "Split the app.")
	}
	for _, i := range l.Images {
		where := yamlnode.Join("images", i.Reference)
		if normal, err := Normalize(i.Reference); err != nil {
			r.Report(where, "invalid-image", fmt.Sprintf("%s is not the reference of an image: %v", yamlnode.Quote(i.Reference), err), rewrite)
		} else if pinned := DigestOf(normal); normal != i.Reference || pinned != "" && pinned != i.Digest {
			r.Report(where, "invalid-image", fmt.Sprintf("%s is not as this program writes it", yamlnode.Quote(i.Reference)), rewrite)
		}
		if i.Manifest <= 0 || i.Bytes < 0 {
			r.Report(where+".bytes", "invalid-value", "a size must be a positive number", rewrite)
		}
	}
	for _, named := range slices.Sorted(maps.Keys(l.Named)) {
		if _, ok := l.Image(l.Named[named]); !ok {
			r.Report("named."+named, "unknown-reference", fmt.Sprintf("the lock has no image %s", yamlnode.Quote(l.Named[named])), rewrite)
		}
	}
	return l, yamlnode.Finish(r.Problems)
}

// Encode returns the file of the lock: the same bytes for the same lock.
func (l Lock) Encode() []byte {
	var b strings.Builder
	b.WriteString("# `fairlead app lock` writes this file. Review its changes, and commit it with app.yaml.\nlock: " + version + "\n")
	images := slices.SortedFunc(slices.Values(l.Images), func(a, b Image) int { return cmp.Compare(a.Reference, b.Reference) })
	if len(images) == 0 {
		b.WriteString("images: {}\n")
	} else {
		b.WriteString("images:\n")
	}
	for _, i := range images {
		fmt.Fprintf(&b, "  %s:\n    digest: %s\n    media_type: %s\n    manifest_bytes: %d\n    bytes: %d\n", quoted(i.Reference), i.Digest, i.MediaType, i.Manifest, i.Bytes)
		writeList(&b, "platforms", i.Platforms)
		writeList(&b, "used_by", i.UsedBy)
	}
	writeMap(&b, "named", l.Named)
	writeMap(&b, "sources", l.Sources)
	return []byte(b.String())
}

// quoted returns a text as YAML reads it back.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil { // a text has an encoding
		return `""`
	}
	return string(out)
}

func writeList(b *strings.Builder, name string, items []string) {
	if len(items) == 0 {
		return
	}
	sorted := slices.Clone(items)
	slices.Sort(sorted)
	for i, item := range slices.Compact(sorted) {
		sorted[i] = quoted(item)
	}
	fmt.Fprintf(b, "    %s: [%s]\n", name, strings.Join(slices.Compact(sorted), ", "))
}

func writeMap(b *strings.Builder, name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n", name)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(b, "  %s: %s\n", quoted(key), quoted(values[key]))
	}
}

// The media types of an index.
const (
	IndexType      = "application/vnd.oci.image.index.v1+json"
	annotationName = "org.opencontainers.image.ref.name"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Index returns an index of OCI that names all images of the lock, and its digest. An image with several references is in it once.
// So the digest of the index names all that the lock names.
func (l Lock) Index() (text []byte, digest string) {
	byDigest := map[string]descriptor{}
	for _, i := range slices.SortedFunc(slices.Values(l.Images), func(a, b Image) int { return cmp.Compare(a.Reference, b.Reference) }) {
		if _, ok := byDigest[i.Digest]; !ok {
			byDigest[i.Digest] = descriptor{MediaType: i.MediaType, Digest: i.Digest, Size: i.Manifest, Annotations: map[string]string{annotationName: i.Reference}}
		}
	}
	manifests := make([]descriptor, 0, len(byDigest))
	for _, digest := range slices.Sorted(maps.Keys(byDigest)) {
		manifests = append(manifests, byDigest[digest])
	}
	text, err := json.Marshal(struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}{2, IndexType, manifests})
	if err != nil {
		panic(err) // encoding texts and numbers cannot fail
	}
	return text, digestOf(text)
}
