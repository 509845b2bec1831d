package image_test

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/infra/images/internal/image"
	"github.com/fairlead/fairlead/tools/kotool"
)

// The image with Go builds an image of a Go program for both processors, as its user and with only its files.
func TestImageWithGoBuildsAGoProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("THE IMAGE WITH GO IS NOT BUILT: it downloads and unpacks 300 MB; make test-all builds it")
	}
	files := programFiles(t)
	cache := filepath.Join(must(os.UserCacheDir())(t), "fairlead", "debian")
	shell := must(image.Shell(t.Context(), runtime.GOARCH, cache))(t)
	distribution := must(image.Go(t.Context(), runtime.GOARCH))(t)
	img := must(image.Build(image.WithGo(image.WithShell(image.Runner(runtime.GOARCH, files, "v1.2.3"), shell), distribution, filepath.Join(kotool.Bin(t), "ko"))))(t)
	size := must(must(img.Layers())(t)[2].Size())(t)
	if size > 110<<20 {
		t.Errorf("the compressed layer of Go has %d bytes", size)
	}
	root := extract(t, img)
	makeDevices(t, root)

	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64"} {
		base := must(mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"}}))(t)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: base, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	ref := must(name.NewDigest(strings.TrimPrefix(srv.URL, "http://") + "/base@" + must(index.Digest())(t).String()))(t)
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	out, err := inside(t, root, img, "/bin/sh", "-ec", `mkdir -p /tmp/web && cd /tmp/web
printf 'module example.com/web\n\ngo 1.26\n' > go.mod
printf 'package main\n\nimport "net/http"\n\nfunc main() { println(http.StatusOK) }\n' > main.go
export GOROOT=/usr/local/go # a container has /proc, by which go finds itself
go version && git --version
export CGO_ENABLED=0 GOTOOLCHAIN=local GOPROXY=off GOPATH=/tmp/go GOCACHE=/tmp/cache KO_DOCKER_REPO=image.invalid KO_DEFAULTBASEIMAGE=`+ref.String()+`
ko build --push=false --oci-layout-path=../layout --sbom=none --platform=linux/amd64,linux/arm64 . && cat /tmp/layout/index.json`)
	if err != nil || !strings.Contains(out, "go version go1.26") || !strings.Contains(out, "git version") || !strings.Contains(out, "manifests") {
		t.Errorf("the commands print %s, %v", out, err)
	}
}

// The image has the Go with which this repository is built.
func TestGoOfTheImageIsTheRepositorys(t *testing.T) {
	in := func(file, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(must(os.ReadFile(file))(t)))
		if m == nil {
			t.Fatalf("%s has nothing like %s", file, pattern)
		}
		return m[1]
	}
	if image, repository := in("golang.go", `goVersion = "(.*)"`), in("../../../../tools/ko/go.mod", `(?m)^go (.*)$`); image != repository {
		t.Errorf("the image has Go %s, the tools have %s", image, repository)
	}
}
