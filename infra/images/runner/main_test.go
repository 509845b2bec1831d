package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/infra/images/internal/image"
)

// imageEnv enables the test that builds OpenTofu for arm64. The first build takes
// minutes. `make test-aws` sets it.
const imageEnv = "FAIRLEAD_TEST_IMAGE"

// program builds a program for arch that does nothing.
func program(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-o", out, file)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

// The image build refuses a program for another processor, so no customer gets it.
func TestProgramsForOtherProcessorsAreRefused(t *testing.T) {
	arm64, amd64 := program(t, "arm64"), program(t, "amd64")
	script := filepath.Join(t.TempDir(), "tofu")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ program, arch, want string }{
		"arm64 in an arm64 image":     {arm64, "arm64", ""},
		"amd64 in an amd64 image":     {amd64, "amd64", ""},
		"amd64 in an arm64 image":     {amd64, "arm64", "is for EM_X86_64"},
		"arm64 in an amd64 image":     {arm64, "amd64", "is for EM_AARCH64"},
		"a script":                    {script, "arm64", "not a program"},
		"a program with libraries":    {"/bin/sh", elfArch(t, "/bin/sh"), "not static"},
		"an unsupported architecture": {arm64, "riscv64", "no image for riscv64"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := image.Check(tt.program, tt.arch); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := run(t.Context(), options{arch: "arm64", version: "v1.2.3", tofu: amd64, out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "EM_X86_64") {
		t.Errorf("an OpenTofu for amd64 is not refused in an image for arm64: %v", err)
	}
}

// elfArch returns the architecture of a program, as Go names it.
func elfArch(t *testing.T, file string) string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Skipf("there is no %s: %v", file, err)
	}
	defer func() { _ = f.Close() }()
	return map[elf.Machine]string{elf.EM_AARCH64: "arm64", elf.EM_X86_64: "amd64"}[f.Machine]
}

// The image for arm64 has the pinned OpenTofu for arm64. It is pushed with a tag,
// because ECR expires images without one.
func TestImageHasOpenTofuForItsProcessor(t *testing.T) {
	if os.Getenv(imageEnv) != "1" {
		t.Skipf("OPENTOFU FOR ARM64 IS NOT BUILT: it takes minutes; `make test-aws` sets %s=1", imageEnv)
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	repo := strings.TrimPrefix(srv.URL, "http://") + "/fairlead/runner"
	out := t.TempDir()
	if err := run(t.Context(), options{arch: "arm64", version: "v1.2.3", module: "../../../tools/opentofu", out: out, push: repo}); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout holds %+v, %v", manifest, err)
	}
	digest := manifest.Manifests[0].Digest
	tag, err := name.NewTag(repo + ":" + digest.Hex)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(tag, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := img.Digest(); err != nil || got != digest {
		t.Errorf("the tag is of %s, the layout's image is %s, %v", got, digest, err)
	}
	tofu, err := elf.NewFile(bytes.NewReader(find(t, img, strings.TrimPrefix(image.TofuPath, "/"))))
	if err != nil {
		t.Fatal(err)
	}
	if tofu.Machine != elf.EM_AARCH64 {
		t.Errorf("its OpenTofu is for %s", tofu.Machine)
	}
}

// find returns the content of a file of the image.
func find(t *testing.T, img v1.Image, path string) []byte {
	t.Helper()
	r := mutate.Extract(img)
	defer func() { _ = r.Close() }()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the image has no %s", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == path {
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}
