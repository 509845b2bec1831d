package provider_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/runner/images/provider"
	"github.com/fairlead/fairlead/test/hosts"
)

// registry serves the archive of one provider for linux/amd64 from another host, as registries do.
type registry struct {
	archive []byte
	mu      sync.Mutex
	tokens  map[string]string // by host
	busy    int               // answers with 429 of the registry that limits requests, before it answers
	asked   map[string]int    // by host
}

func (r *registry) handler(host string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.tokens[host] = req.Header.Get("Authorization")
		r.asked[host]++
		busy := host == "registry" && r.busy > 0
		if busy {
			r.busy--
		}
		r.mu.Unlock()
		if busy {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		h(w, req)
	})
}

func (r *registry) client(t *testing.T) *http.Client {
	return hosts.Client(t, map[string]http.Handler{
		"registry.example.com": r.handler("registry", func(w http.ResponseWriter, req *http.Request) {
			switch req.URL.Path {
			case "/.well-known/terraform.json":
				_ = json.NewEncoder(w).Encode(map[string]string{"providers.v1": "/v1/providers/"})
			case "/v1/providers/acme/shop/1.2.3/download/linux/amd64":
				_ = json.NewEncoder(w).Encode(map[string]string{"download_url": "https://files.example.com/shop.zip?signature=secret"})
			default:
				http.NotFound(w, req)
			}
		}),
		"files.example.com": r.handler("files", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(r.archive) }),
		"empty.example.com": r.handler("empty", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }),
		"down.example.com":  r.handler("down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }),
	})
}

func zipped(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("terraform-provider-shop_v1.2.3")
	if err == nil {
		_, err = w.Write([]byte("program"))
	}
	if err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const address = "registry.example.com/acme/shop"

// The registry of a provider's address is asked by its protocol. Only an archive with a locked hash is used, and the token goes to the
// registry alone.
func TestArchiveIsTheLockedOne(t *testing.T) {
	r := &registry{archive: zipped(t), tokens: map[string]string{}, asked: map[string]int{}, busy: 4}
	sum := sha256.Sum256(r.archive)
	file := filepath.Join(t.TempDir(), "shop.zip")
	if err := os.WriteFile(file, r.archive, 0o600); err != nil {
		t.Fatal(err)
	}
	h1, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	zh := "zh:" + hex.EncodeToString(sum[:])
	f := &provider.Finder{Client: r.client(t), Token: func(host string) string { return "token-of-" + host }, Temporary: t.TempDir(), Platforms: []string{"linux/amd64", "linux/arm64"}, Pause: time.Microsecond}
	for name, tc := range map[string]struct {
		item bundle.Item
		want string // part of the error; "": the archive is found
	}{
		"the hash of the archive is locked": {bundle.Item{Name: address, Version: "1.2.3", Hashes: []string{zh}}, ""},
		"the hash of the content is locked": {bundle.Item{Name: address, Version: "1.2.3", Hashes: []string{"zh:00", h1}}, ""},
		"another hash is locked":            {bundle.Item{Name: address, Version: "1.2.3", Hashes: []string{"zh:00", "h1:AAAA"}}, "providers lock -platform"},
		"no hash is locked":                 {bundle.Item{Name: address, Version: "1.2.3"}, "with a hash in the lock file"},
		"another version":                   {bundle.Item{Name: address, Version: "1.2.4", Hashes: []string{zh}}, "404"},
		"a host without providers":          {bundle.Item{Name: "empty.example.com/acme/shop", Version: "1.2.3", Hashes: []string{zh}}, "is not a registry of providers"},
		"a registry that fails":             {bundle.Item{Name: "down.example.com/acme/shop", Version: "1.2.3", Hashes: []string{zh}}, "502"},
		"no address":                        {bundle.Item{Name: "../../etc", Version: "1.2.3"}, "is not the address of a provider"},
		"a version that leaves its folder":  {bundle.Item{Name: address, Version: "../1"}, "is not the address of a provider"},
	} {
		found, absent, err := f.Archives(t.Context(), tc.item)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || len(found) != 1 || found[0].Platform != "linux/amd64" || found[0].Digest != "sha256:"+hex.EncodeToString(sum[:]) || found[0].Size != int64(len(r.archive)) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
		if len(absent) != 1 || !strings.Contains(absent[0], "linux/arm64") {
			t.Errorf("%s: absent are %v", name, absent)
		}
	}
	if r.busy > 0 || r.asked["down"] != 5 {
		t.Errorf("%d answers with 429 are left, and the registry that fails was asked %d times, want 5", r.busy, r.asked["down"])
	}
	if r.tokens["registry"] != "Bearer token-of-registry.example.com" || r.tokens["files"] != "" {
		t.Errorf("the tokens are %v", r.tokens)
	}
}

// A folder that `tofu providers mirror` has written comes before the registries. A wrong archive there is not used.
func TestFolderComesBeforeTheRegistry(t *testing.T) {
	archive := zipped(t)
	sum := sha256.Sum256(archive)
	folder := t.TempDir()
	at := filepath.Join(folder, address, "terraform-provider-shop_1.2.3_linux_amd64.zip")
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	none := &http.Client{Transport: noNetwork{t}}
	f := &provider.Finder{Client: none, Folder: folder, Temporary: t.TempDir(), Platforms: []string{"linux/amd64"}}
	item := bundle.Item{Name: address, Version: "1.2.3", Hashes: []string{"zh:" + hex.EncodeToString(sum[:])}}
	if found, _, err := f.Archives(context.Background(), item); err != nil || len(found) != 1 || found[0].File != at {
		t.Errorf("found %+v, %v", found, err)
	}
	item.Hashes = []string{"zh:00"}
	if found, _, err := f.Archives(context.Background(), item); err == nil {
		t.Errorf("found %+v", found)
	}
}

type noNetwork struct{ t *testing.T }

func (n noNetwork) RoundTrip(req *http.Request) (*http.Response, error) {
	n.t.Errorf("%s is asked", req.URL)
	return nil, http.ErrHandlerTimeout
}
