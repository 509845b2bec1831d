package imagebuildtest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fairlead/fairlead/tools/program"
)

// Generator pushes the image of a small generator of SBOMs to the registry, "host:port", and returns its reference.
func Generator(t testing.TB, registry string) string {
	return push(t, registry+"/generator", "runner/plugin/build/imagebuild/imagebuildtest/generator")
}

// Silent is Generator for a program that succeeds and writes no SBOM.
func Silent(t testing.TB, registry string) string {
	return push(t, registry+"/silent", "runner/plugin/build/imagebuild/imagebuildtest/probe", "write", "/tmp-file")
}

// push pushes an image that runs the program of the package with the arguments.
func push(t testing.TB, repository, pkg string, args ...string) string {
	t.Helper()
	content, err := os.ReadFile(program.Build(t, pkg))
	if err != nil {
		t.Fatal(err)
	}
	layer := fileLayer(t, "program", content)
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Entrypoint = "linux", runtime.GOARCH, append([]string{"/program"}, args...)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(repository + "@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.String()
}

// fileLayer returns a layer with one program.
func fileLayer(t testing.TB, name string, content []byte) v1.Layer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// Base pushes an image without files for the platforms to the repository, and returns its reference by digest. Its label base is
// "of-the-test".
func Base(t testing.TB, repository string, login authn.Authenticator, platforms ...string) string {
	t.Helper()
	index := baseIndex(t, nil, platforms...)
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(repository + "@" + hash.String())
	if err != nil {
		t.Fatal(err)
	}
	if login == nil {
		login = authn.Anonymous
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuth(login)); err != nil {
		t.Fatal(err)
	}
	return ref.String()
}

// baseIndex returns an image for the platforms, with these layers.
func baseIndex(t testing.TB, layers []v1.Layer, platforms ...string) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, text := range platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			t.Fatal(err)
		}
		var img v1.Image
		img, err = mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, RootFS: v1.RootFS{Type: "layers"},
			Config: v1.Config{Labels: map[string]string{"base": "of-the-test"}, User: "65532"}})
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layers...); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	return index
}
