package local

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/tools/program"
)

// A registry of images keeps what it has acknowledged, and gives no layer of one repository to another: not by its digest, and not by a
// mount.
func TestRepositoriesOfImagesShareNoLayer(t *testing.T) {
	data := t.TempDir()
	open := func() (*httptest.Server, *Server) {
		s := &Server{opts: Options{Data: data, Logger: slog.New(slog.DiscardHandler), RegistryProgram: program.Build(t, "cmd/fairlead-registry")}}
		return httptest.NewServer(imagesBelow(s.images(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" { // which a client asks first
				w.WriteHeader(http.StatusTeapot)
			}
		}))), s
	}
	web, s := open()
	do := func(method, path string) int {
		t.Helper()
		req, err := http.NewRequest(method, path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	const own, other = "/v2/images/default/ins_1/web", "/v2/images/other/ins_2/web"
	img, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(web.URL, "http://") + "/images/default/ins_1/web:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	hash, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	digest := hash.String()
	for _, query := range []string{"?mount=" + digest + "&from=images/default/ins_1/web", "?mount=" + digest} {
		if status := do("POST", web.URL+other+"/blobs/uploads/"+query); status != http.StatusAccepted {
			t.Errorf("a mount answers %d, want the begin of an upload", status)
		}
	}
	if status := do("GET", web.URL+other+"/blobs/"+digest); status != http.StatusNotFound {
		t.Errorf("another repository answers %d", status)
	}
	if status := do("GET", web.URL+"/v2/orgs/default/shop/web/blobs/"+digest); status != http.StatusTeapot {
		t.Errorf("a repository of artifacts answers %d", status)
	}
	web.Close()
	if err := s.closeParts(); err != nil {
		t.Fatal(err)
	}
	web, s = open()
	defer web.Close()
	if status := do("GET", web.URL+own+"/blobs/"+digest); status != http.StatusOK {
		t.Errorf("after a restart, the registry answers %d", status)
	}
	if err := s.closeParts(); err != nil {
		t.Fatal(err)
	}
}

// An org that has used its space gets 507, and others do not notice. Deleting makes space again, at the next count.
func TestImagesOfAnOrgAreBounded(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	space := &imageSpace{root: root, most: 1000, now: func() time.Time { return now }, used: map[string]counted{}}
	left := func(method, org string, length int64) int64 {
		t.Helper()
		req := httptest.NewRequest(method, "/v2/images/"+org+"/ins_1/web/blobs/uploads/x", http.NoBody)
		req.ContentLength = length
		n, err := space.take(req)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	folder := filepath.Join(root, "images", "full", "ins_1", "web", "blobs")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "layer"), make([]byte, 400), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := left("PATCH", "full", 600); n <= 0 {
		t.Errorf("a layer that just fits leaves %d", n)
	}
	if n := left("PATCH", "full", 1); n > 0 {
		t.Errorf("a layer beyond the limit leaves %d", n)
	}
	if n := left("PUT", "other", 1000); n <= 0 {
		t.Errorf("another org has %d", n)
	}
	if n := left("GET", "full", 0); n <= 0 {
		t.Errorf("a read leaves %d", n)
	}
	if err := os.Remove(filepath.Join(folder, "layer")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(countImagesFor)
	if n := left("PATCH", "full", 1000); n <= 0 {
		t.Errorf("after a removal, a layer leaves %d", n)
	}
}

func TestLayerBeyondTheLimitIsRefused(t *testing.T) {
	s := &Server{opts: Options{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler), MaxImages: 4000, RegistryProgram: program.Build(t, "cmd/fairlead-registry")}}
	web := httptest.NewServer(imagesBelow(s.images(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer web.Close()
	push := func(org string, bytes int64) error {
		t.Helper()
		img, err := random.Image(bytes, 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(strings.TrimPrefix(web.URL, "http://") + "/images/" + org + "/ins_1/web:1")
		if err != nil {
			t.Fatal(err)
		}
		return remote.Write(ref, img)
	}
	if err := push("default", 500); err != nil {
		t.Errorf("an image that fits: %v", err)
	}
	if err := push("default", 5000); err == nil || !strings.Contains(err.Error(), "507") {
		t.Errorf("an image that does not fit: %v", err)
	}
	if err := push("other", 500); err != nil {
		t.Errorf("an image of another org: %v", err)
	}
	if err := s.closeParts(); err != nil {
		t.Fatal(err)
	}
}

// The first request after the death of the registry's process starts it again.
func TestRegistryOfImagesStartsAgainAfterItsDeath(t *testing.T) {
	s := &Server{opts: Options{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler), RegistryProgram: program.Build(t, "cmd/fairlead-registry")}}
	h := s.images()
	get := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/images/default/ins_1/web/manifests/v1", http.NoBody))
		return w.Code
	}
	if status := get(); status != http.StatusNotFound {
		t.Fatalf("the registry answers %d", status)
	}
	r := s.registry.current
	r.kill()
	<-r.ended
	if status := get(); status != http.StatusNotFound {
		t.Errorf("after its death, the registry answers %d", status)
	}
	if err := s.closeParts(); err != nil {
		t.Fatal(err)
	}
	if status := get(); status != http.StatusServiceUnavailable {
		t.Errorf("after the end of the control plane, the registry answers %d", status)
	}
}

func TestMissingRegistryOfImagesIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "fairlead-registry")
	s := &Server{opts: Options{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler), RegistryProgram: missing}}
	w := httptest.NewRecorder()
	s.images().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/images/default/ins_1/web/manifests/v1", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), missing) || !strings.Contains(w.Body.String(), "FAIRLEAD_REGISTRY") {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}

// An image of a build stays while a version names it, with the images of its platforms, and for a day after its push.
func TestBuiltImageStaysWhileAVersionNamesIt(t *testing.T) {
	data := t.TempDir()
	s := &Server{opts: Options{Data: data, Logger: slog.New(slog.DiscardHandler), RegistryProgram: program.Build(t, "cmd/fairlead-registry")}}
	registry := s.images()
	web := httptest.NewServer(imagesBelow(registry, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer web.Close()
	host := strings.TrimPrefix(web.URL, "http://")
	push := func(repository string) (digest string) {
		t.Helper()
		index, err := random.Index(500, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewDigest(host + "/" + repository + "@" + hash.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	whole := func(repository, digest string) bool {
		t.Helper()
		ref, err := name.NewDigest(host + "/" + repository + "@" + digest)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			return false
		}
		return validate.Index(index) == nil
	}
	const built, copies = "images/default/app_1/web", "images/default/ins_1/web"
	named, unnamed, copied := push(built), push(built), push(copies)
	for _, digest := range []string{named, unnamed} {
		if err := artifact.Attach(t.Context(), host+"/"+built, artifact.Access{}, digest, artifact.SignedProvenance([]byte("{}"))); err != nil {
			t.Fatal(err)
		}
	}
	statements := func(digest string) int {
		t.Helper()
		ref, err := name.NewDigest(host + "/" + built + "@" + digest)
		if err != nil {
			t.Fatal(err)
		}
		found, err := remote.Referrers(ref)
		if err != nil {
			t.Fatal(err)
		}
		m, err := found.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range m.Manifests {
			img, err := remote.Image(ref.Context().Digest(d.Digest.String()))
			if err == nil {
				_, err = img.Layers()
			}
			if err != nil {
				t.Errorf("the registry lists a statement that it does not have: %v", err)
			}
		}
		return len(m.Manifests)
	}
	names := func(_ context.Context, repository, digest string) (bool, error) {
		return repository == copies || digest == named, nil
	}
	collect := func() {
		t.Helper()
		if err := s.builtImages.collect(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	if !whole(built, named) || !whole(built, unnamed) || !whole(copies, copied) {
		t.Error("an image went on the day of its push")
	}
	s.builtImages.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	collect()
	if !whole(built, named) || !whole(copies, copied) {
		t.Error("an image that is named went")
	}
	if whole(built, unnamed) {
		t.Error("an image that is not named is still there")
	}
	if n, other := statements(named), statements(unnamed); n != 1 || other != 0 {
		t.Errorf("%d statements about the image that is named, want 1; %d about the one that went, want 0", n, other)
	}
	// The registry's own collection runs at its end.
	if err := s.closeParts(); err != nil {
		t.Fatal(err)
	}
	again := &Server{opts: s.opts}
	reopened := httptest.NewServer(imagesBelow(again.images(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer reopened.Close()
	host = strings.TrimPrefix(reopened.URL, "http://")
	if !whole(built, named) || !whole(copies, copied) {
		t.Error("the registry's own collection deleted an image without a tag")
	}
	if err := again.closeParts(); err != nil {
		t.Fatal(err)
	}
}
