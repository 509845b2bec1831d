package artifact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// layoutWithLayer writes the layout of an image with one layer of zeros, without using the disk for it, and returns the
// digest of the image.
func layoutWithLayer(t *testing.T, dir string, size int64) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	layer := hex.EncodeToString(sum.Sum(nil))
	f, err := os.Create(filepath.Join(dir, "blobs", "sha256", layer))
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) (digest string, n int) {
		sum := sha256.Sum256([]byte(text))
		digest = hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", digest), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "sha256:" + digest, len(text)
	}
	config, n := put(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["sha256:` + layer + `"]}}`)
	manifest, m := put(fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":%d}]}`, config, n, layer, size))
	for name, text := range map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"index.json": fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d}]}`, manifest, m)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return manifest
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// sink is a registry that keeps nothing but the sizes of what it gets, and measures this process's memory meanwhile.
type sink struct {
	mu       sync.Mutex
	bytes    int64
	manifest string
	most     uint64
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := s.discard(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += n
	switch {
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPost:
		w.Header().Set("Location", "/v2/x/blobs/uploads/1")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPatch:
		w.Header().Set("Location", "/v2/x/blobs/uploads/1")
		w.WriteHeader(http.StatusAccepted)
	case strings.Contains(r.URL.Path, "/manifests/"):
		s.manifest = r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut:
		w.WriteHeader(http.StatusCreated)
	}
}

// discard reads a body, and measures after each 32 MiB.
func (s *sink) discard(body io.Reader) (total int64) {
	for {
		n, err := io.CopyN(io.Discard, body, 32<<20)
		total += n
		if n == 32<<20 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			s.mu.Lock()
			s.most = max(s.most, m.HeapInuse+m.StackInuse)
			s.mu.Unlock()
		}
		if err != nil {
			return total
		}
	}
}

// An image can be much larger than the memory of a step. The process of the test is also the registry.
func TestImageIsPushedWithoutBeingInMemory(t *testing.T) {
	dir := t.TempDir()
	size := int64(1 << 30)
	if testing.Short() {
		size = 256 << 20
	}
	digest := layoutWithLayer(t, dir, size)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20)) // as a step does
	debug.FreeOSMemory()                                       // what other tests have left
	s := &sink{}
	web := httptest.NewServer(s)
	defer web.Close()
	if err := artifact.PushImage(t.Context(), strings.TrimPrefix(web.URL, "http://")+"/x", artifact.Access{}, dir, digest); err != nil {
		t.Fatal(err)
	}
	if s.bytes < size || s.manifest != digest {
		t.Errorf("the registry got %d bytes and the manifest %s, want %s", s.bytes, s.manifest, digest)
	}
	if s.most == 0 || s.most > 64<<20 {
		t.Errorf("the push of %d bytes took %d bytes of memory, at most 64 MiB are allowed", size, s.most)
	}
}

func TestPushedImageIsThatOfTheDigest(t *testing.T) {
	dir := t.TempDir()
	layoutWithLayer(t, dir, 100)
	web := httptest.NewServer(&sink{})
	defer web.Close()
	host := strings.TrimPrefix(web.URL, "http://")
	if err := artifact.PushImage(t.Context(), host+"/x", artifact.Access{}, dir, "sha256:"+strings.Repeat("0", 64)); err == nil {
		t.Error("an image that the layout does not have was pushed")
	}
	if err := artifact.PushImage(t.Context(), host+"//x", artifact.Access{}, dir, "sha256:"+strings.Repeat("0", 64)); fairlead.CodeOf(err) != fairlead.CodeInvalidRepository {
		t.Errorf("%v", err)
	}
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuses.Close()
	other := t.TempDir()
	if err := artifact.PushImage(t.Context(), strings.TrimPrefix(refuses.URL, "http://")+"/x", artifact.Access{}, other, layoutWithLayer(t, other, 100)); fairlead.KindOf(err) != fairlead.KindForbidden {
		t.Errorf("a registry that refuses: %v", err)
	}
}
