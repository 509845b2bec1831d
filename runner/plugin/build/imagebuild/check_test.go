package imagebuild_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// oneImage returns an image for a platform such as linux/amd64, with a layer of each further type.
func oneImage(t *testing.T, platform string, layers ...types.MediaType) v1.Image {
	t.Helper()
	p := must[*v1.Platform](t)(v1.ParsePlatform(platform))
	img := mutate.MediaType(must[v1.Image](t)(random.Image(1000, 2)), types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	for _, kind := range layers {
		img = must[v1.Image](t)(mutate.Append(img, mutate.Addendum{Layer: static.NewLayer([]byte("layer of "+kind), kind)}))
	}
	config := must[*v1.ConfigFile](t)(img.ConfigFile()).DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Architecture, p.Variant
	return must[v1.Image](t)(mutate.ConfigFile(img, config))
}

// indexOf returns an index of images for the platforms.
func indexOf(t *testing.T, platforms ...string) v1.ImageIndex {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range platforms {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: oneImage(t, text), Descriptor: v1.Descriptor{Platform: must[*v1.Platform](t)(v1.ParsePlatform(text))}})
	}
	return index
}

// attested returns the index with an attestation of its first image, as BuildKit makes it, changed by change.
func attested(t *testing.T, index v1.ImageIndex, kind types.MediaType, change func(*v1.Descriptor)) v1.ImageIndex {
	t.Helper()
	of := must[*v1.IndexManifest](t)(index.IndexManifest()).Manifests[0].Digest
	statements := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	statements = must[v1.Image](t)(mutate.Append(statements, mutate.Addendum{Layer: static.NewLayer([]byte(`{}`), kind)}))
	d := v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": of.String()}}
	if change != nil {
		change(&d)
	}
	return mutate.AppendManifests(index, mutate.IndexAddendum{Add: statements, Descriptor: d})
}

// layoutOf writes a layout with the entries, which are images and indexes.
func layoutOf(t *testing.T, entries ...mutate.Appendable) string {
	t.Helper()
	dir := t.TempDir()
	at := must[layout.Path](t)(layout.Write(dir, empty.Index))
	for _, e := range entries {
		var err error
		switch e := e.(type) {
		case v1.Image:
			err = at.AppendImage(e)
		case v1.ImageIndex:
			err = at.AppendIndex(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// blobs returns the paths of the blobs of a layout, with the text that they begin with.
func blobs(t *testing.T, dir, begin string) (paths []string) {
	t.Helper()
	all := must[[]string](t)(filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*")))
	for _, path := range all {
		if bytes.HasPrefix(must[[]byte](t)(os.ReadFile(path)), []byte(begin)) {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no blob begins with %q", begin)
	}
	return paths
}

const inToto = types.MediaType("application/vnd.in-toto+json")

func TestGoodLayoutIsAccepted(t *testing.T) {
	for name, tc := range map[string]struct {
		entry     mutate.Appendable
		asks      []string
		platforms string
	}{
		"an image":                          {oneImage(t, "linux/amd64"), nil, "linux/amd64"},
		"an image of a wanted platform":     {oneImage(t, "linux/arm64"), []string{"linux/arm64"}, "linux/arm64"},
		"the default variant is no variant": {oneImage(t, "linux/arm64/v8"), []string{"linux/arm64"}, "linux/arm64"},
		"a variant":                         {oneImage(t, "linux/arm/v7"), []string{"linux/arm/v7"}, "linux/arm/v7"},
		"layers of all types":               {oneImage(t, "linux/amd64", types.OCIUncompressedLayer, types.OCILayerZStd, types.DockerLayer), nil, "linux/amd64"},
		"two platforms":                     {indexOf(t, "linux/arm64", "linux/amd64"), []string{"linux/amd64", "linux/arm64"}, "linux/amd64 linux/arm64"},
		"an attestation":                    {attested(t, indexOf(t, "linux/amd64"), inToto, nil), []string{"linux/amd64"}, "linux/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := imagebuild.Check(t.Context(), layoutOf(t, tc.entry), tc.asks)
			if err != nil {
				t.Fatal(err)
			}
			var want v1.Hash
			switch e := tc.entry.(type) {
			case v1.Image:
				want = must[v1.Hash](t)(e.Digest())
			case v1.ImageIndex:
				want = must[v1.Hash](t)(e.Digest())
			}
			if got.Digest != want.String() || strings.Join(got.Platforms, " ") != tc.platforms || got.Bytes < 1000 {
				t.Errorf("%+v, want %s for %s", got, want, tc.platforms)
			}
		})
	}
}

// What an image builder writes is as hostile as the Dockerfile that it ran.
func TestBadLayoutIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		dir  func(t *testing.T) string
		asks []string
		says string
	}{
		"an empty folder":           {func(t *testing.T) string { return t.TempDir() }, nil, "no file index.json"},
		"no image":                  {func(t *testing.T) string { return layoutOf(t) }, nil, "has 0 images"},
		"two images":                {func(t *testing.T) string { return layoutOf(t, oneImage(t, "linux/amd64"), oneImage(t, "linux/amd64")) }, nil, "has 2 images"},
		"another platform":          {func(t *testing.T) string { return layoutOf(t, oneImage(t, "linux/amd64")) }, []string{"linux/arm64"}, "is for linux/amd64, and app.yaml asks for linux/arm64"},
		"a platform too many":       {func(t *testing.T) string { return layoutOf(t, indexOf(t, "linux/amd64", "linux/arm64")) }, []string{"linux/arm64"}, "app.yaml asks for linux/arm64"},
		"a platform twice":          {func(t *testing.T) string { return layoutOf(t, indexOf(t, "linux/amd64", "linux/amd64")) }, nil, "a platform twice"},
		"a layer of another type":   {func(t *testing.T) string { return layoutOf(t, oneImage(t, "linux/amd64", "application/x-tar")) }, nil, "which is none of an image"},
		"a layer of another server": {func(t *testing.T) string { return layoutOf(t, oneImage(t, "linux/amd64", types.DockerForeignLayer)) }, nil, "which is none of an image"},
		"statements as an image": {func(t *testing.T) string {
			return layoutOf(t, attested(t, indexOf(t, "linux/amd64"), inToto, func(d *v1.Descriptor) { d.Annotations = nil }))
		}, nil, "no platform, or another one"},
		"an attestation of no image": {func(t *testing.T) string {
			return layoutOf(t, attested(t, indexOf(t, "linux/amd64"), inToto, func(d *v1.Descriptor) {
				d.Annotations["vnd.docker.reference.digest"] = "sha256:" + strings.Repeat("0", 64)
			}))
		}, nil, "is no attestation of an image"},
		"an attestation with a layer": {func(t *testing.T) string {
			return layoutOf(t, attested(t, indexOf(t, "linux/amd64"), types.OCILayer, nil))
		}, nil, "has a part of the type"},
		"indexes in indexes": {func(t *testing.T) string {
			index := indexOf(t, "linux/amd64")
			for range 3 {
				index = mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: index})
			}
			return layoutOf(t, index)
		}, nil, "indexes more than 2 deep"},
		"many manifests": {func(t *testing.T) string {
			index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
			img := oneImage(t, "linux/amd64")
			for i := range 101 {
				index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Annotations: map[string]string{"n": fmt.Sprint(i)}}})
			}
			return layoutOf(t, index)
		}, nil, "more than 100 manifests"},
		"a blob that is missing": {changed(func(t *testing.T, dir string) error { return os.Remove(blobs(t, dir, "\x1f\x8b")[0]) }), nil, "no file blobs/sha256/"},
		"a blob that is cut":     {changed(func(t *testing.T, dir string) error { return os.Truncate(blobs(t, dir, "\x1f\x8b")[0], 10) }), nil, "another size or content"},
		"a blob that is longer": {changed(func(t *testing.T, dir string) error {
			path := blobs(t, dir, "\x1f\x8b")[0]
			return os.WriteFile(path, append(must[[]byte](t)(os.ReadFile(path)), 0), 0o600)
		}), nil, "another size or content"},
		"a manifest that is another": {changed(func(t *testing.T, dir string) error {
			path := blobs(t, dir, `{"schemaVersion"`)[0]
			return os.WriteFile(path, bytes.Replace(must[[]byte](t)(os.ReadFile(path)), []byte("2"), []byte("3"), 1), 0o600)
		}), nil, "another size or content"},
		"a blob that is a link": {changed(func(t *testing.T, dir string) error {
			path := blobs(t, dir, "\x1f\x8b")[0]
			return errors.Join(os.Rename(path, filepath.Join(dir, "moved")), os.Symlink("../../moved", path))
		}), nil, "is no regular file"},
		"a link to a file of the machine": {changed(func(_ *testing.T, dir string) error {
			return os.Symlink("/etc/passwd", filepath.Join(dir, "blobs", "sha256", "x"))
		}), nil, "is no regular file"},
		"index.json that is a link": {changed(func(_ *testing.T, dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "index.json"), filepath.Join(dir, "i")), os.Symlink("i", filepath.Join(dir, "index.json")))
		}), nil, "is no regular file"},
		"index.json that is no JSON": {changed(func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte("<"), 0o600)
		}), nil, "index.json is not JSON"},
		"a digest that is a path": {changed(func(t *testing.T, dir string) error {
			path := filepath.Join(dir, "index.json")
			text := must[[]byte](t)(os.ReadFile(path))
			at := bytes.Index(text, []byte("sha256:"))
			return os.WriteFile(path, append(append(text[:at:at], "sha256:../../index.json"...), text[at+len("sha256:")+64:]...), 0o600)
		}), nil, "is not one of a blob in the layout"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := imagebuild.Check(t.Context(), tc.dir(t), tc.asks)
			if plugin.ReasonOf(err) != fairlead.ReasonImageInvalid || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%+v, %v; want %s with %q", got, err, fairlead.ReasonImageInvalid, tc.says)
			}
		})
	}
}

// changed returns a function that makes the layout of an image and changes it.
func changed(change func(t *testing.T, dir string) error) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		dir := layoutOf(t, oneImage(t, "linux/amd64"))
		if err := change(t, dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
}

func TestCheckOfALayoutCanBeCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := imagebuild.Check(ctx, layoutOf(t, oneImage(t, "linux/amd64")), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
