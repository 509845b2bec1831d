package build_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// artifacts is an OCI registry of others. change can answer a request in its place.
func artifacts(t *testing.T, change func(w http.ResponseWriter, r *http.Request) (done bool)) (host string) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change == nil || !change(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// titled is a layer with a file, as ORAS pushes it.
func titled(title, content string, more ...string) mutate.Addendum {
	a := mutate.Addendum{Layer: static.NewLayer([]byte(content), "application/vnd.example.plugin"), Annotations: map[string]string{"org.opencontainers.image.title": title}}
	for i := 0; i < len(more); i += 2 {
		a.Annotations[more[i]] = more[i+1]
	}
	return a
}

// archive is a layer with an archive.
func archiveLayer(kind types.MediaType, content []byte, annotations ...string) mutate.Addendum {
	a := mutate.Addendum{Layer: static.NewLayer(content, kind), Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		a.Annotations[annotations[i]] = annotations[i+1]
	}
	return a
}

// put pushes an artifact with the layers and returns its digest.
func put(t *testing.T, repository string, layers ...mutate.Addendum) string {
	t.Helper()
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	ref := referenceOf(t, repository, img)
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.DigestStr()
}

// referenceOf returns the reference of an image or an index in the repository, by its digest.
func referenceOf(t *testing.T, repository string, of interface{ Digest() (v1.Hash, error) }) name.Digest {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(repository + "@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// oci returns the spec of a build of the plugin in the artifact.
func (h *host) oci(repository, digest string) plugin.Spec {
	s := h.spec("", "")
	s.Build.Type, s.Build.From = "plugin", events.Origin{Kind: events.OriginOCI, URL: "oci://" + repository, Ref: digest}
	return s
}

const program = "#!/bin/sh\nexit 0\n"

// The forms in which tools push files: ORAS a file or a folder, Fairlead a folder, and Docker layers of a tar.
func TestPluginIsFetchedFromARegistryByDigest(t *testing.T) {
	h := newHost(t)
	repository := artifacts(t, nil) + "/acme/greeting"
	folder := t.TempDir()
	for file, mode := range map[string]os.FileMode{"plugin": 0o755, "README": 0o644} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(program), mode); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	packed, err := artifact.Pack(root, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := artifact.Push(t.Context(), repository, artifact.Access{}, packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := artifact.Tag(t.Context(), repository, artifact.Access{}, own, "v1"); err != nil {
		t.Fatal(err)
	}
	plain := tarOf(t, 0o755, "plugin", program)
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	zip.Write(tarOf(t, 0o755, "plugin", program, "README", program)) // the close reports an error
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for name, digest := range map[string]string{
		"files with titles":  put(t, repository, titled("plugin", program), titled("README", program)),
		"a folder":           own,
		"a tar and a file":   put(t, repository, archiveLayer(types.OCIUncompressedLayer, plain), titled("README", program)),
		"a compressed tar":   put(t, repository, archiveLayer(types.OCILayer, zipped.Bytes())),
		"an unpacked folder": put(t, repository, archiveLayer(types.OCILayer, zipped.Bytes(), "org.opencontainers.image.title", "greeting", "io.deis.oras.content.unpack", "true")),
	} {
		res, log, err := h.run(t, h.oci(repository, digest))
		if err != nil || res.Built.Revision != digest || !strings.Contains(log, digest) {
			t.Fatalf("%s: %+v, %v\n%s", name, res.Built, err, log)
		}
		made[res.Built.Artifact] = name
	}
	if len(made) != 1 || made[packed.Digest()] == "" {
		t.Errorf("the same files have the artifacts %v, want %s", made, packed.Digest())
	}
}

// tarOf returns a tar with the files, by path.
func tarOf(t *testing.T, mode int64, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		m := mode
		if files[i] != "plugin" {
			m = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: m, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWhatABuildRefusesOfArtifacts(t *testing.T) {
	h := newHost(t)
	lying := ""
	host := artifacts(t, func(w http.ResponseWriter, r *http.Request) bool {
		if lying == "" || !strings.HasSuffix(r.URL.Path, lying) {
			return false
		}
		io.WriteString(w, strings.Repeat("x", len(program))) // the test's own content
		return true
	})
	repository := host + "/acme/greeting"
	link := func() []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Name: "plugin", Linkname: "/bin/sh", Typeflag: tar.TypeSymlink}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}()
	index := func() string {
		idx := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
		ref := referenceOf(t, repository, idx)
		if err := remote.WriteIndex(ref, idx); err != nil {
			t.Fatal(err)
		}
		return ref.DigestStr()
	}()
	whole := put(t, repository, titled("plugin", program))
	layer, _, err := v1.SHA256(strings.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for consequence, c := range map[string]struct {
		digest, lies string
		reason       fairlead.Reason
		message      string
	}{
		"an artifact that is not there":             {digest: "sha256:" + strings.Repeat("0", 64), reason: fairlead.ReasonSourceUnavailable, message: "does not return"},
		"an index has no files":                     {digest: index, reason: fairlead.ReasonSourceInvalid, message: "index of several artifacts"},
		"a file leaves the folder":                  {digest: put(t, repository, titled("../plugin", program)), reason: fairlead.ReasonSourceInvalid, message: "not a clean path"},
		"a link leaves the folder":                  {digest: put(t, repository, archiveLayer(types.OCIUncompressedLayer, link)), reason: fairlead.ReasonSourceInvalid, message: "only files and folders"},
		"two layers have the same file":             {digest: put(t, repository, titled("plugin", program), titled("plugin", program+"#")), reason: fairlead.ReasonSourceInvalid, message: "plugin"},
		"a layer without a title is no archive":     {digest: put(t, repository, archiveLayer("application/json", []byte("{}"))), reason: fairlead.ReasonSourceInvalid, message: "layer of type application/json"},
		"an archive is not what its type claims":    {digest: put(t, repository, archiveLayer(types.OCILayer, []byte("plain"))), reason: fairlead.ReasonSourceInvalid, message: "not compressed"},
		"a folder without the program":              {digest: put(t, repository, titled("README", program)), reason: fairlead.ReasonSourceInvalid, message: `no executable file "plugin"`},
		"a registry returns another manifest":       {digest: whole, lies: whole, reason: fairlead.ReasonSourceUnavailable, message: "does not return"},
		"a registry returns another file's content": {digest: whole, lies: layer.String(), reason: fairlead.ReasonSourceUnavailable, message: "verif"},
	} {
		lying = c.lies
		_, log, err := h.run(t, h.oci(repository, c.digest))
		if e, ok := errors.AsType[*plugin.Error](err); !ok || e.Reason != c.reason || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s: %v, want %s: …%s…\n%s", consequence, err, c.reason, c.message, log)
		}
	}
}

func TestPrivateArtifactNeedsThePassword(t *testing.T) {
	h := newHost(t)
	asked := 0
	repository := artifacts(t, func(w http.ResponseWriter, r *http.Request) bool {
		if user, given, ok := r.BasicAuth(); r.Method == http.MethodGet && (!ok || user != "robot" || given != password) {
			asked++
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}) + "/acme/private"
	layer := titled("plugin", program)
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		t.Fatal(err)
	}
	ref := referenceOf(t, repository, img)
	if err := remote.Write(ref, img, remote.WithAuth(&authn.Basic{Username: "robot", Password: password})); err != nil {
		t.Fatal(err)
	}
	spec := h.oci(repository, ref.DigestStr())
	token("robot:" + password)(&spec)
	if _, log, err := h.run(t, spec); err != nil || strings.Contains(log, password) {
		t.Fatalf("%v\n%s", err, log)
	}
	if _, _, err := h.run(t, h.oci(repository, ref.DigestStr())); err == nil || asked == 0 {
		t.Error("the private artifact was fetched without a login")
	}
}
