package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestTokenIsSentWhenAsked(t *testing.T) {
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			inner.ServeHTTP(w, r)
		case "Bearer reader":
			if r.Method == http.MethodGet || r.Method == http.MethodHead {
				inner.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("WWW-Authenticate", `Basic realm="fairlead"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/app"
	a := pack(t, writeTree(t, source()))

	_, err = artifact.Push(t.Context(), repository, artifact.Access{}, a)
	wantCode(t, err, fairlead.KindUnauthenticated, "registry-unauthenticated")
	_, err = artifact.Push(t.Context(), repository, artifact.Access{Token: "old"}, a)
	wantCode(t, err, fairlead.KindUnauthenticated, "registry-unauthenticated")
	_, err = artifact.Push(t.Context(), repository, artifact.Access{Token: "reader"}, a)
	wantCode(t, err, fairlead.KindForbidden, "registry-forbidden")
	if _, err := artifact.Push(t.Context(), repository, artifact.Access{Token: "good"}, a); err != nil {
		t.Error(err)
	}
}

func TestPushOutlivesAPassingFault(t *testing.T) {
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && failed.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/app"
	a := pack(t, writeTree(t, source()))
	if _, err := artifact.Push(t.Context(), repository, artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	if !failed.Load() {
		t.Error("the fault was not met")
	}
	pullInto(t, repository+"@"+a.Digest())
}

// hostile is a registry that answers one manifest and one blob, whatever their
// digests.
type hostile struct {
	manifest string
	blob     []byte
}

func (h hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.Contains(r.URL.Path, "/manifests/"):
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		fmt.Fprint(w, h.manifest)
	case strings.Contains(r.URL.Path, "/blobs/"):
		_, _ = w.Write(h.blob)
	}
}

func TestPullFromAHostileRegistry(t *testing.T) {
	good := makeTar(t, file("main.tf", "good"))
	evil := makeTar(t, file("main.tf", "evil"))
	manifest := func(artifactType, layerType, digest string, size int) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":%q,`+
			`"config":{"mediaType":"application/vnd.oci.empty.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},`+
			`"layers":[{"mediaType":%q,"size":%d,"digest":%q}]}`, artifactType, layerType, size, digest)
	}
	const component, layer = "application/vnd.fairlead.component.v1", "application/vnd.fairlead.component.v1.tar"
	right := manifest(component, layer, sha256Digest(good), len(good))

	tests := []struct {
		name   string
		server hostile
		digest string // "" is the manifest's own
		kind   fairlead.Kind
		code   fairlead.Code
	}{
		{"another manifest than asked for", hostile{right, good}, sha256Digest([]byte("x")), fairlead.KindUnavailable, "registry-unavailable"},
		{"another layer than the manifest says", hostile{right, evil}, "", fairlead.KindUnavailable, "registry-unavailable"},
		{"a layer cut short", hostile{right, good[:100]}, "", fairlead.KindUnavailable, "registry-unavailable"},
		{"a layer larger than said", hostile{right, append(good, make([]byte, 512)...)}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"a layer without end", hostile{manifest(component, layer, sha256Digest(good), 1<<50), good}, "", fairlead.KindInvalid, "artifact-too-large"},
		{"a layer of a negative size", hostile{manifest(component, layer, sha256Digest(good), -1), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"an image", hostile{manifest("", "application/vnd.oci.image.layer.v1.tar", sha256Digest(good), len(good)), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"a component of another packing", hostile{manifest(component, layer+"+gzip", sha256Digest(good), len(good)), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"a manifest that is no JSON", hostile{"{", nil}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"a good manifest of a bad archive", hostile{manifest(component, layer, sha256Digest(good[:600]), 600), good[:600]}, "", fairlead.KindInvalid, "artifact-invalid"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.server)
			defer server.Close()
			digest := test.digest
			if digest == "" {
				digest = sha256Digest([]byte(test.server.manifest))
			}
			dir := t.TempDir()
			ref := strings.TrimPrefix(server.URL, "http://") + "/app@" + digest
			err := artifact.Pull(t.Context(), ref, artifact.Access{}, openRoot(t, dir), artifact.Limits{})
			wantCode(t, err, test.kind, test.code)
			for name, content := range readTree(t, dir) {
				if content == "evil" {
					t.Errorf("%s was written before it was verified", name)
				}
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNoPlainHTTPToAnotherMachine(t *testing.T) {
	refused := errors.New("tls: first record does not look like a TLS handshake")
	a := pack(t, writeTree(t, source()))
	for _, host := range []string{"registry.local:5000", "10.1.2.3:5000", "192.168.1.1"} {
		var plain atomic.Int32
		access := artifact.Access{Token: "secret", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Scheme == "http" {
				plain.Add(1)
			}
			return nil, refused
		})}
		_, err := artifact.Push(t.Context(), host+"/app", access, a)
		if err == nil || plain.Load() != 0 {
			t.Errorf("%s: %d plain requests, error %v", host, plain.Load(), err)
		}
		access.PlainHTTP = true
		if _, err = artifact.Push(t.Context(), host+"/app", access, a); err == nil || plain.Load() == 0 {
			t.Errorf("%s, allowed: %d plain requests, error %v", host, plain.Load(), err)
		}
	}
}

func TestReferencesAreChecked(t *testing.T) {
	a := pack(t, writeTree(t, source()))
	for _, repository := range []string{"", "app", "host:port/app", "127.0.0.1:1/UPPER", "127.0.0.1:1/app@sha256:00", "http://127.0.0.1/app"} {
		_, err := artifact.Push(t.Context(), repository, artifact.Access{}, a)
		wantCode(t, err, fairlead.KindInvalid, "invalid-repository")
	}
	for _, ref := range []string{"127.0.0.1:1/app", "127.0.0.1:1/app:latest", "127.0.0.1:1/app@sha256:00", "app@" + a.Digest()} {
		err := artifact.Pull(t.Context(), ref, artifact.Access{}, openRoot(t, t.TempDir()), artifact.Limits{})
		wantCode(t, err, fairlead.KindInvalid, "invalid-reference")
	}
}

func TestRegistryThatIsNotThere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	a := pack(t, writeTree(t, source()))
	_, err := artifact.Push(t.Context(), host+"/app", artifact.Access{}, a)
	wantCode(t, err, fairlead.KindUnavailable, "registry-unavailable")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := artifact.Push(ctx, host+"/app", artifact.Access{}, a); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled push: %v", err)
	}
}
