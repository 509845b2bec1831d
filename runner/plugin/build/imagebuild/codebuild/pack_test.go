package codebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
)

// layout returns a layout with these entries.
func layout(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = 1
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size == 1 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil && !errors.Is(err, tar.ErrWriteTooLong) && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	return &buf
}

// A Dockerfile can start programs beside the build, and so can write what it likes in place of the layout. Nothing comes
// out of the folder, and the disk stays below the limit.
func TestHostileLayoutIsRefused(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	for name, headers := range map[string][]tar.Header{
		"a path out of the folder": {file("../escaped")},
		"an absolute path":         {file("/escaped")},
		"a symbolic link":          {{Name: "blobs", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		"a hard link":              {file("a"), {Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}},
		"a device":                 {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"more bytes than allowed":  {{Name: "blob", Typeflag: tar.TypeReg, Size: maxLayout + 1}},
		"the same file twice":      {file("index.json"), file("index.json")},
		"a file as a folder":       {file("blobs"), file("blobs/a")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root, err := os.OpenRoot(filepath.Join(dir, mkdir(t, dir)))
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := unpack(layout(t, headers...), root); err == nil || plugin.ReasonOf(err) != fairlead.ReasonImageInvalid {
				t.Errorf("unpack returns %v (%s)", err, plugin.ReasonOf(err))
			}
			if _, err := os.Stat(filepath.Join(dir, "escaped")); err == nil {
				t.Error("a file is outside of the folder")
			}
		})
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	many := make([]tar.Header, maxEntries+1)
	for i := range many {
		many[i] = tar.Header{Name: "d/", Typeflag: tar.TypeDir}
	}
	if err := unpack(layout(t, many...), root); plugin.ReasonOf(err) != fairlead.ReasonImageInvalid {
		t.Errorf("too many entries: %v", err)
	}
	cut := layout(t, file("a"), tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: 5000})
	if err := unpack(cut, root); plugin.ReasonOf(err) != fairlead.ReasonBuilderUnavailable {
		t.Errorf("a layout that ends early: %v (%s)", err, plugin.ReasonOf(err))
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "layout"), 0o700); err != nil {
		t.Fatal(err)
	}
	return "layout"
}

// The archive has links as links, so that no link brings a file of the runner into an image. It has the modes of files, and
// no owner.
func TestContextHasLinksAndModes(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.WriteFile(filepath.Join(dir, "bin", "run"), []byte("#!"), 0o755),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")), os.WriteFile(filepath.Join(dir, "Dockerfile"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := pack(t.Context(), &buf, imagebuild.Request{Context: dir, Dockerfile: "Dockerfile", Target: "t", Platforms: []string{"linux/amd64", "linux/arm64"},
		Args: map[string]string{"B": "2\n", "A": "--output=x"}}); err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(unzip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s has the owner %d %s", h.Name, h.Uid, h.Uname)
		}
		got[h.Name] = h.FileInfo().Mode().String() + " " + h.Linkname + string(content)
	}
	arguments := got["arguments"]
	delete(got, "arguments")
	want := map[string]string{"context/": "drwxr-xr-x ", "context/Dockerfile": "-rw-r--r-- ", "context/bin/": "drwxr-xr-x ", "context/bin/run": "-rwxr-xr-x #!", "context/link": "Lrwxrwxrwx /etc/passwd"}
	if !maps.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
	if list := strings.Split(arguments, "\x00"); !slices.Equal(list, []string{"-rw-r--r-- --file", "context/Dockerfile", "--target", "t", "--platform", "linux/amd64,linux/arm64",
		"--build-arg", "A=--output=x", "--build-arg", "B=2\n", "context", ""}) {
		t.Errorf("the arguments are %q", list)
	}
}

// The base images follow the context, in a part of their own, and each name has its argument.
func TestArchiveHasBaseImages(t *testing.T) {
	context, bases := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(context, "Dockerfile"), nil, 0o644), os.MkdirAll(filepath.Join(bases, "blobs", "sha256"), 0o755),
		os.WriteFile(filepath.Join(bases, "blobs", "sha256", "00"), []byte("layer"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := pack(t.Context(), &buf, imagebuild.Request{Context: context, Dockerfile: "Dockerfile",
		Bases: imagebuild.Bases{Layout: bases, Digests: map[string]string{"r.example.com/b:1": "sha256:bb", "r.example.com/a": "sha256:aa"}}}); err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(unzip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if content, err := io.ReadAll(r); err != nil || h.Name == "arguments" && string(content) !=
			"--file\x00context/Dockerfile\x00--build-context\x00r.example.com/a=oci-layout://bases@sha256:aa\x00--build-context\x00r.example.com/b:1=oci-layout://bases@sha256:bb\x00context\x00" {
			t.Errorf("%s has %q, %v", h.Name, content, err)
		}
	}
	if want := []string{"arguments", "context/", "context/Dockerfile", "bases/", "bases/blobs/", "bases/blobs/sha256/", "bases/blobs/sha256/00"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}
