package artifact_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// source returns the files of a typical component.
func source() map[string]string {
	return map[string]string{
		"main.tf":                 "resource \"terraform_data\" \"it\" {}\n",
		"modules/net/main.tf":     "# net\n",
		"modules/net/outputs.tf":  "",
		"scripts/setup.sh":        "#!/bin/sh\n",
		".terraform.lock.hcl":     "# locked\n",
		"files/ünïcode name.json": "{}",
	}
}

func TestArtifactIsPackedPushedAndPulled(t *testing.T) {
	dir := writeTree(t, source())
	chmod(t, filepath.Join(dir, "scripts/setup.sh"), 0o700)
	write(t, filepath.Join(dir, "terraform.tfstate"), "secret")
	write(t, filepath.Join(dir, ".terraform/providers/x"), "cache")
	write(t, filepath.Join(dir, ".git/HEAD"), "ref")

	a, err := artifact.Pack(openRoot(t, dir), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Files() != len(source()) {
		t.Errorf("packed %d files, want %d: state, caches and history must be omitted", a.Files(), len(source()))
	}

	host, traffic := serveRegistry(t, t.TempDir())
	repository := host + "/components/shop-web"
	digest, err := artifact.Push(t.Context(), repository, artifact.Access{}, a)
	if err != nil {
		t.Fatal(err)
	}
	if digest != a.Digest() {
		t.Errorf("pushed %s, packed %s", digest, a.Digest())
	}

	traffic.reset()
	if _, err := artifact.Push(t.Context(), repository, artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	if writes := traffic.writes(); len(writes) != 0 {
		t.Errorf("a push of unchanged source sent %q", writes)
	}

	into := t.TempDir()
	if err := artifact.Pull(t.Context(), repository+"@"+digest, artifact.Access{}, openRoot(t, into), artifact.Limits{}); err != nil {
		t.Fatal(err)
	}
	got := readTree(t, into)
	for name, content := range source() {
		if got[name] != content {
			t.Errorf("%s: got %q, want %q", name, got[name], content)
		}
	}
	if len(got) != len(source()) {
		t.Errorf("unpacked %d files, want %d", len(got), len(source()))
	}
	if info, err := os.Stat(filepath.Join(into, "scripts/setup.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the script is no longer executable: %v %v", info, err)
	}
}

// The digest of a folder must never change, because it identifies an app version. If this
// test fails, the packing has changed and needs a new media type.
func TestDigestNeverChanges(t *testing.T) {
	a := pack(t, writeTree(t, source()))
	const want = "sha256:802f64258c55e9c773e5345b1ab316641045af73bb124defdc576c4fc8cca33c"
	if a.Digest() != want {
		t.Errorf("digest %s, want %s", a.Digest(), want)
	}
}

func serveRegistry(t *testing.T, dir string) (host string, log *traffic) {
	t.Helper()
	h, err := artifact.RegistryHandler(dir, artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log = &traffic{inner: h}
	server := httptest.NewServer(log)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), log
}

// traffic records the requests that a registry gets.
type traffic struct {
	inner http.Handler
	mu    sync.Mutex
	seen  []string
}

func (l *traffic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.seen = append(l.seen, r.Method+" "+r.URL.Path)
	l.mu.Unlock()
	l.inner.ServeHTTP(w, r)
}

func (l *traffic) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = nil
}

func (l *traffic) writes() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.seen {
		if !strings.HasPrefix(s, "GET ") && !strings.HasPrefix(s, "HEAD ") {
			found = append(found, s)
		}
	}
	return found
}

func pack(t *testing.T, dir string) *artifact.Artifact {
	t.Helper()
	a, err := artifact.Pack(openRoot(t, dir), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, name string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// readTree returns the content of every file below dir.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		found[filepath.ToSlash(rel)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantCode(t *testing.T, err error, kind fairlead.Kind, code fairlead.Code) {
	t.Helper()
	if fairlead.KindOf(err) != kind || fairlead.CodeOf(err) != code {
		t.Errorf("got error %v (kind %q, code %q), want kind %q, code %q",
			err, fairlead.KindOf(err), fairlead.CodeOf(err), kind, code)
	}
}

func tarOf(a *artifact.Artifact) []byte {
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(a.Tar()); err != nil {
		panic(err) // memory cannot fail
	}
	return buf.Bytes()
}
