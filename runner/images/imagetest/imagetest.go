// Package imagetest starts registries for tests, and makes, pushes and signs images as vendors do. Package memorytest has registries that
// start faster.
package imagetest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/program"
)

// Registry is a registry, behind a proxy that can inject faults.
type Registry struct {
	Proxy *proxy.Proxy
	Host  string // such as 127.0.0.1:1234
}

// Start starts a registry with deletion and the referrers API, which ends with the test.
func Start(t testing.TB) *Registry {
	t.Helper()
	return Serve(t, process(t))
}

// process starts the registry of a control plane, which ends with the test, and returns a handler that passes requests to it. A test
// binary does not link it, because its library computes a password hash when a program starts, and some test binaries are started a
// thousand times.
func process(t testing.TB) http.Handler {
	t.Helper()
	folder := t.TempDir()
	sockets, err := os.MkdirTemp("", "registry-") // short, because the path of a socket has about a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(sockets, "s")
	cmd := exec.Command(program.Build(t, "cmd/fairlead-registry"), "--folder", folder, "--socket", socket)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close() // it ends
		_ = cmd.Wait()
		os.RemoveAll(sockets)
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the registry writes %q: %v", line, err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "registry", r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
		ErrorLog: log.New(io.Discard, "", 0), // a client that went away
	}
}

// Serve serves a registry until the test ends.
func Serve(t testing.TB, h http.Handler) *Registry {
	p := proxy.New(h)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return &Registry{Proxy: p, Host: strings.TrimPrefix(s.URL, "http://")}
}

// StartPrivate starts a registry whose certificate is of a private CA, which no machine trusts, and returns the CA's certificate in
// PEM. It ends with the test. Push and Pull do not reach it.
func StartPrivate(t testing.TB) (host, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(process(t))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// URL returns the URL of the registry.
func (r *Registry) URL() string { return "http://" + r.Host }

// Push pushes a new image with two layers for each platform under a reference such as vendor/web:1, and returns its digest.
func (r *Registry) Push(t testing.TB, reference string, platforms ...string) string {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, text := range platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil {
			t.Fatal(err)
		}
		img, err := random.Image(20_000, 2)
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant, RootFS: rootFS(t, img)}); err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	if err := remote.WriteIndex(r.reference(t, reference), index); err != nil {
		t.Fatal(err)
	}
	return digestOf(t, index)
}

// PushFirst pushes an image that has the first platform of another one only, and returns its digest.
func (r *Registry) PushFirst(t testing.TB, reference, of string) string {
	t.Helper()
	index, err := remote.Index(r.reference(t, of))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	made := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: m.Manifests[0].Platform}})
	if err := remote.WriteIndex(r.reference(t, reference), made); err != nil {
		t.Fatal(err)
	}
	return digestOf(t, made)
}

func rootFS(t testing.TB, img v1.Image) v1.RootFS {
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS
}

func digestOf(t testing.TB, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func (r *Registry) reference(t testing.TB, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// Pull returns the digest of a reference, after it has read each platform and layer; "": the registry does not have it.
func (r *Registry) Pull(t testing.TB, reference string) string {
	t.Helper()
	d, err := remote.Get(r.reference(t, reference))
	if err != nil {
		return ""
	}
	index, err := d.ImageIndex()
	if err != nil { // a signature
		return d.Digest.String()
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range m.Manifests {
		img, err := index.Image(child.Digest)
		if err != nil {
			t.Fatalf("%s lacks %s: %v", reference, child.Platform, err)
		}
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			body, err := l.Compressed()
			if err == nil {
				_, err = io.Copy(io.Discard, body) // the reader verifies the digest
			}
			if err != nil {
				t.Fatalf("a layer of %s: %v", reference, err)
			}
		}
	}
	return d.Digest.String()
}

// Tags lists the tags of a repository.
func (r *Registry) Tags(t testing.TB, repository string) []string {
	t.Helper()
	tags, err := remote.List(r.reference(t, repository).Context())
	if err != nil {
		return nil
	}
	return tags
}

// Referrers lists the digests of the manifests that refer to a digest in a repository.
func (r *Registry) Referrers(t testing.TB, repository, digest string) []string {
	t.Helper()
	index, err := remote.Referrers(r.reference(t, repository).Context().Digest(digest))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range m.Manifests {
		all = append(all, d.Digest.String())
	}
	return all
}

// Signer signs images.
type Signer struct {
	PEM  string // the public key
	pair *sign.EphemeralKeypair
}

// NewSigner returns a signer with a new key.
func NewSigner(t testing.TB) *Signer {
	t.Helper()
	pair, err := sign.NewEphemeralKeypair(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pair.GetPublicKeyPem()
	if err != nil {
		t.Fatal(err)
	}
	return &Signer{PEM: text, pair: pair}
}

// Payload signs a digest in the form before cosign 3: it pushes the tag sha256-….sig. The payload names the digest claimed.
func (s *Signer) Payload(t testing.TB, r *Registry, repository, digest, claimed string) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, repository, claimed)
	signature, _, err := s.pair.SignData(context.Background(), payload)
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r.reference(t, repository+":"+strings.Replace(digest, ":", "-", 1)+".sig"), mutate.MediaType(img, types.OCIManifestSchema1)); err != nil {
		t.Fatal(err)
	}
}

// Predicate is the type of a statement that is a signature.
const Predicate = "https://sigstore.dev/cosign/sign/v1"

// Bundle returns a bundle of Sigstore with a signed statement about a digest.
func (s *Signer) Bundle(t testing.TB, digest, predicate string) []byte {
	t.Helper()
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"","digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, strings.TrimPrefix(digest, "sha256:"), predicate)
	b, err := sign.Bundle(&sign.DSSEData{Data: statement, PayloadType: "application/vnd.in-toto+json"}, s.pair, sign.BundleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Attach pushes a bundle as a manifest that refers to a digest, in the form of cosign 3, and returns the manifest's digest.
func (r *Registry) Attach(t testing.TB, repository, digest string, bundle []byte) string {
	t.Helper()
	const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	ref := r.reference(t, repository+"@"+digest)
	subject, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(bundle, bundleType)})
	if err != nil {
		t.Fatal(err)
	}
	img = mutate.Annotations(mutate.ConfigMediaType(img, bundleType), map[string]string{"dev.sigstore.bundle.content": "dsse-envelope"}).(v1.Image)
	img = mutate.Subject(img, v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}).(v1.Image) // the last: a later change loses it
	made := digestOf(t, img)
	if err := remote.Write(r.reference(t, repository+"@"+made), img); err != nil {
		t.Fatal(err)
	}
	return made
}
