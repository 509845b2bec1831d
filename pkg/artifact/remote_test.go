package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestPushSendsTheTokenAfterA401(t *testing.T) {
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

func TestPushRetriesTemporaryErrors(t *testing.T) {
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
		t.Error("the test caused no error")
	}
	pullInto(t, repository+"@"+a.Digest())
}

// hostile is a registry that returns the same manifest and blob for every digest.
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

func TestPullRefusesHostileContent(t *testing.T) {
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
		digest string // "": the digest of the manifest
		kind   fairlead.Kind
		code   fairlead.Code
	}{
		{"manifest that differs from its digest", hostile{right, good}, sha256Digest([]byte("x")), fairlead.KindUnavailable, "registry-unavailable"},
		{"layer that differs from its digest", hostile{right, evil}, "", fairlead.KindUnavailable, "registry-unavailable"},
		{"truncated layer", hostile{right, good[:100]}, "", fairlead.KindUnavailable, "registry-unavailable"},
		{"layer larger than its size in the manifest", hostile{right, append(good, make([]byte, 512)...)}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"huge layer", hostile{manifest(component, layer, sha256Digest(good), 1<<50), good}, "", fairlead.KindInvalid, "artifact-too-large"},
		{"layer with a negative size", hostile{manifest(component, layer, sha256Digest(good), -1), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"image", hostile{manifest("", "application/vnd.oci.image.layer.v1.tar", sha256Digest(good), len(good)), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"component with another layer type", hostile{manifest(component, layer+"+gzip", sha256Digest(good), len(good)), good}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"manifest that is not JSON", hostile{"{", nil}, "", fairlead.KindInvalid, "artifact-invalid"},
		{"valid manifest of a truncated archive", hostile{manifest(component, layer, sha256Digest(good[:600]), 600), good[:600]}, "", fairlead.KindInvalid, "artifact-invalid"},
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

func TestPushWithoutTLSNeedsPermission(t *testing.T) {
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
			t.Errorf("%s, with PlainHTTP: %d plain requests, error %v", host, plain.Load(), err)
		}
	}
}

// A push to a control plane on 127.0.0.2 had "no usable response", because the library knows only 127.0.0.1 as this machine.
func TestPushWithoutTLSToEachLoopbackAddress(t *testing.T) {
	a := pack(t, writeTree(t, source()))
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1:0", "127.9.8.7:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("this machine has no %s: %v", address, err)
			continue
		}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: inner}}
		server.Start()
		if _, err := artifact.Push(t.Context(), l.Addr().String()+"/app", artifact.Access{}, a); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		server.Close()
	}
}

func TestInvalidReferencesAreRefused(t *testing.T) {
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

func TestUnreachableRegistryIsUnavailable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	a := pack(t, writeTree(t, source()))
	_, err := artifact.Push(t.Context(), host+"/app", artifact.Access{}, a)
	wantCode(t, err, fairlead.KindUnavailable, "registry-unavailable")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := artifact.Push(ctx, host+"/app", artifact.Access{}, a); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled push: %v", err)
	}
}
