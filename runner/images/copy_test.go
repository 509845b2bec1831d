package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// secured serves a registry over TLS with a certificate of its own, and for one login.
func secured(t *testing.T, inner, user, password string) (address, authority string) {
	t.Helper()
	to, err := url.Parse(inner)
	if err != nil {
		t.Fatal(err)
	}
	next := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
		r.SetXForwarded()
	}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// run sends a request to the program, writes its answer to w, and returns the most memory that the program had, in bytes.
func run(t *testing.T, w io.Writer, environ []string, name string, req any) (peak int64) {
	t.Helper()
	in, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder(t), "images"), name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = bytes.NewReader(in), w, &log, append(append(os.Environ(), "DOCKER_CONFIG="+t.TempDir()), environ...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, log.String())
			}
			return peak
		case <-time.After(20 * time.Millisecond): // the kernel counts the peak, so a late look is enough
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)) // it may have ended
		for _, line := range strings.Split(string(status), "\n") {
			if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				kib, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64) // the kernel writes a number
				peak = max(peak, kib<<10)
			}
		}
	}
}

// The program copies a bundle through a layout to a registry with a private CA and a login, and a job reads an archive there. Whatever
// the size is, it needs little memory.
func TestLargeBundleNeedsLittleMemory(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	size := int64(1 << 30)
	if testing.Short() {
		size = 96 << 20 // more than the limit
	}
	const address, limit = "registry.example.com/acme/large", 64 << 20
	registry := imagetest.Start(t)
	at, authority := secured(t, registry.URL(), "acme", "password")
	folder, layout := t.TempDir(), t.TempDir()
	file := filepath.Join(folder, address, "terraform-provider-large_1.0.0_linux_amd64.zip")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil { // sparse
		t.Fatal(err)
	}
	sum := sha256.New()
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	item := bundle.Item{Kind: bundle.Provider, Name: address, Version: "1.0.0", Hashes: []string{"zh:" + digest}, UsedBy: []string{"cluster"}}

	copied := func(req bundle.CopyRequest) bundle.CopyAnswer {
		t.Helper()
		var text bytes.Buffer
		peak := run(t, &text, nil, bundle.Copied, req)
		var answer bundle.CopyAnswer
		if err := json.Unmarshal(text.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		if peak == 0 || peak > limit {
			t.Errorf("the program needs %d bytes of memory for %d bytes of content, at most %d are allowed", peak, size, limit)
		}
		return answer
	}
	exported := copied(bundle.CopyRequest{Bundle: bundle.Bundle{App: "shop", Version: "ver_1", Items: []bundle.Item{item}}, Layout: layout, Providers: folder, Platforms: []string{"linux/amd64"}})
	if exported.Error != "" || len(exported.Entries) != 1 {
		t.Fatalf("exported %+v", exported)
	}
	to := bundle.CopyRequest{From: layout, Registry: at, Repository: "acme/mirror", CA: authority, Login: "acme:password"}
	if loaded := copied(to); loaded.Error != "" || loaded.Digest != exported.Digest {
		t.Fatalf("loaded %+v, exported %+v", loaded, exported)
	}
	job := bundle.ArchiveRequest{Kind: "oci", URL: at, Repository: "acme/ins_1/cluster", Login: "LOGIN", CA: "AUTHORITY", Address: address, Version: "1.0.0", Platform: "linux/amd64"}
	got := sha256.New()
	if peak := run(t, got, []string{"LOGIN=acme:password", "AUTHORITY=" + authority}, bundle.Archived, job); peak > limit || hex.EncodeToString(got.Sum(nil)) != digest {
		t.Errorf("the job's archive has another digest, or the program needs %d bytes of memory", peak)
	}

	var answer bundle.CopyAnswer
	to.Login = "acme:wrong"
	if ask(t, bundle.Copied, to, &answer); !strings.Contains(answer.Error, "failed at the registry") || strings.Contains(answer.Error, "wrong") {
		t.Errorf("with a wrong password: %q", answer.Error)
	}
}
