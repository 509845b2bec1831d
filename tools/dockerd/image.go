package dockerd

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// Image creates an image that contains only static programs, and returns its name. files
// maps paths in the image to paths on this machine. Image needs no registry. It removes
// the image when the test ends.
func Image(t testing.TB, host, name string, files map[string]string, entrypoint string) string {
	t.Helper()
	return ImageWith(t, host, name, files, `ENTRYPOINT ["`+entrypoint+`"]`)
}

// ImageWith is Image for an image with further settings: each is a line of a Dockerfile,
// such as ENV A=b.
func ImageWith(t testing.TB, host, name string, files map[string]string, settings ...string) string {
	t.Helper()
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	layer, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, files)) }()
	ref := "fairlead-test-" + name + ":" + strings.ToLower(strings.Map(func(r rune) rune {
		if r == '/' || r == '#' {
			return '-'
		}
		return r
	}, t.Name()))
	r, err := c.ImageImport(t.Context(), client.ImageImportSource{Source: layer, SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: settings})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var output bytes.Buffer
	if _, err := output.ReadFrom(r); err != nil || strings.Contains(output.String(), `"error"`) {
		t.Fatalf("create an image: %v: %s", err, output.String())
	}
	t.Cleanup(func() {
		if _, err := c.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return ref
}

// Pushed pushes an image of the engine to a repository of a registry, HOST/NAME, and returns
// its reference by digest. The engine has no copy under that reference, until it pulls one.
func Pushed(t testing.TB, host, ref, repository string) string {
	t.Helper()
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	tag := repository + ":1"
	if _, err := c.ImageTag(t.Context(), client.ImageTagOptions{Source: ref, Target: tag}); err != nil {
		t.Fatal(err)
	}
	push, err := c.ImagePush(t.Context(), tag, client.ImagePushOptions{RegistryAuth: "e30="})
	if err != nil {
		t.Fatal(err)
	}
	if err := push.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed, err := c.ImageInspect(t.Context(), tag)
	if err != nil || len(pushed.RepoDigests) == 0 {
		t.Fatalf("%v: %+v", err, pushed.RepoDigests)
	}
	digest := pushed.RepoDigests[0]
	for _, d := range pushed.RepoDigests {
		if strings.HasPrefix(d, repository+"@") {
			digest = d
		}
	}
	if _, err := c.ImageRemove(t.Context(), tag, client.ImageRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.ImageRemove(context.Background(), digest, client.ImageRemoveOptions{Force: true}) // missing if the test did not pull it
	})
	return digest
}

// pack writes the files of an image, and /tmp, as a tar archive.
func pack(to io.Writer, files map[string]string) error {
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}); err != nil {
		return err
	}
	for in, file := range files {
		if err := packFile(w, strings.TrimPrefix(path.Clean(in), "/"), file); err != nil {
			return err
		}
	}
	return w.Close()
}

func packFile(w *tar.Writer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
