package tofu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"golang.org/x/time/rate"
)

// Registry is a registry of providers at a loopback address, which serves both tools' default
// hosts. It has one provider of hashicorp, with a signature.
type Registry struct {
	Config string // path of a CLI configuration that uses the registry
	Hash   string // zh hash of the provider's archive

	downloads atomic.Int32
	down      atomic.Bool  // it answers nothing but 503
	rate      atomic.Int64 // bytes a second of a download; 0: no limit
}

// Limit sets the rate of the next downloads in bytes a second; 0: no limit.
func (r *Registry) Limit(bytesPerSecond int64) { r.rate.Store(bytesPerSecond) }

// SetDown starts or ends an outage, in which each answer is 503.
func (r *Registry) SetDown(down bool) { r.down.Store(down) }

// Downloads returns how often the archive was downloaded.
func (r *Registry) Downloads() int { return int(r.downloads.Load()) }

// NewRegistry starts a registry with the archive of a provider. The archive's name tells the
// provider and its version, as in a packed Mirror.
func NewRegistry(t testing.TB, path string) *Registry {
	t.Helper()
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	r := &Registry{Config: filepath.Join(t.TempDir(), "registry.tfrc"), Hash: "zh:" + hex.EncodeToString(sum[:])}
	file := filepath.Base(path)
	parts := strings.Split(strings.TrimPrefix(file, "terraform-provider-"), "_")
	name, version := parts[0], parts[1]
	sums := fmt.Sprintf("%x  %s\n", sum, file)
	id, key, signature := sign(t, sums)

	mux := http.NewServeMux()
	at := func(path string, answer func(base string) any) {
		mux.HandleFunc("GET /v1/providers/hashicorp/"+name+"/"+path, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer("http://" + req.Host)) // the tool reports a lost connection
		})
	}
	type object = map[string]any
	at("versions", func(string) any {
		return object{"versions": []object{{"version": version, "protocols": []string{"5.0"}, "platforms": []object{{"os": runtime.GOOS, "arch": runtime.GOARCH}}}}}
	})
	at(version+"/download/"+runtime.GOOS+"/"+runtime.GOARCH, func(base string) any {
		return object{"protocols": []string{"5.0"}, "os": runtime.GOOS, "arch": runtime.GOARCH, "filename": file, "shasum": hex.EncodeToString(sum[:]),
			"download_url": base + "/archive", "shasums_url": base + "/sums", "shasums_signature_url": base + "/signature",
			"signing_keys": object{"gpg_public_keys": []object{{"key_id": id, "ascii_armor": key}}}}
	})
	mux.HandleFunc("GET /archive", func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet { // OpenTofu asks for the size first
			r.downloads.Add(1)
		}
		if n := r.rate.Load(); n > 0 && req.Method == http.MethodGet {
			const part = 64 << 10
			limit := rate.NewLimiter(rate.Limit(n), part)
			for b := range slices.Chunk(archive, part) {
				if limit.WaitN(req.Context(), len(b)) != nil {
					return
				}
				_, _ = w.Write(b)
			}
			return
		}
		_, _ = w.Write(archive)
	})
	mux.HandleFunc("GET /sums", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(sums)) })
	mux.HandleFunc("GET /signature", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(signature) })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, req)
	}))
	t.Cleanup(srv.Close)

	var config strings.Builder
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		fmt.Fprintf(&config, "host %q {\n  services = { \"providers.v1\" = \"%s/v1/providers/\" }\n}\n", host, srv.URL)
	}
	if err := os.WriteFile(r.Config, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// sign makes a key and signs the text. Terraform installs no provider without a signature.
func sign(t testing.TB, text string) (id, key string, signature []byte) {
	t.Helper()
	e, err := openpgp.NewEntity("registry", "", "registry@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var public, signed bytes.Buffer
	w, err := armor.Encode(&public, openpgp.PublicKeyType, nil)
	if err == nil {
		err = e.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = openpgp.DetachSign(&signed, e, strings.NewReader(text), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.PrimaryKey.KeyIdString(), public.String(), signed.Bytes()
}
