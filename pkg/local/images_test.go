package local

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registry of images keeps what it has acknowledged, and gives no layer of one repository to another: not by its digest, and not by a
// mount.
func TestRepositoriesOfImagesShareNoLayer(t *testing.T) {
	data := t.TempDir()
	open := func() (*httptest.Server, *Server) {
		s := &Server{opts: Options{Data: data, Logger: slog.New(slog.DiscardHandler)}}
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
