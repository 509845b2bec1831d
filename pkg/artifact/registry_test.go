package artifact_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// registryDirEnv names the environment variable that makes the test binary run a registry,
// so that a test can kill the registry.
const registryDirEnv = "FAIRLEAD_TEST_REGISTRY_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(registryDirEnv); dir != "" {
		if err := serveForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func serveForever(dir string) error {
	h, err := artifact.RegistryHandler(dir, artifact.RegistryOptions{})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, h)
}

func TestRegistryKeepsArtifactsAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	a := pack(t, writeTree(t, source()))
	host, _ := serveRegistry(t, dir)
	if _, err := artifact.Push(t.Context(), host+"/components/web", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}

	host, traffic := serveRegistry(t, dir)
	pullInto(t, host+"/components/web@"+a.Digest())
	traffic.reset()
	if _, err := artifact.Push(t.Context(), host+"/components/web", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	if w := traffic.writes(); len(w) != 0 {
		t.Errorf("the push after the restart sent %q", w)
	}
}

func TestKilledRegistryStoresNoPartialBlob(t *testing.T) {
	dir := t.TempDir()
	blob := []byte(strings.Repeat("a source file\n", 10_000))
	digest := sha256Digest(blob)

	kill, host := startRegistry(t, dir)
	location := begin(t, "http://"+host, "app")
	answer, body := send(t, http.MethodPatch, location, nil, blob[:5000])
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("first part: %d %s", answer.StatusCode, body)
	}
	// The server has read a part of the last request.
	r, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.NewRequest(http.MethodPut, location+"?digest="+digest, r)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("the killed registry answered %d", resp.StatusCode)
		}
	})
	if _, err := w.Write(blob[5000:6000]); err != nil {
		t.Fatal(err)
	}
	kill()
	w.CloseWithError(io.ErrUnexpectedEOF)
	wg.Wait()

	_, host = startRegistry(t, dir)
	if answer, _ := send(t, http.MethodGet, "http://"+host+"/v2/app/blobs/"+digest, nil, nil); answer.StatusCode != http.StatusNotFound {
		t.Errorf("a part of a blob is stored: %d", answer.StatusCode)
	}
	if left := filesBelow(t, filepath.Join(dir, "uploads")); len(left) != 0 {
		t.Errorf("files after the restart: %q", left)
	}
	a := pack(t, writeTree(t, source()))
	if _, err := artifact.Push(t.Context(), host+"/app", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	pullInto(t, host+"/app@"+a.Digest())
}

func TestDamagedContentIsNotServed(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string, a *artifact.Artifact){
		"blob with a flipped bit": func(t *testing.T, dir string, a *artifact.Artifact) {
			name := largest(t, filepath.Join(dir, "blobs"))
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			content[600] ^= 1
			write(t, name, string(content))
		},
		"truncated blob": func(t *testing.T, dir string, a *artifact.Artifact) {
			if err := os.Truncate(largest(t, filepath.Join(dir, "blobs")), 100); err != nil {
				t.Fatal(err)
			}
		},
		"missing blob": func(t *testing.T, dir string, a *artifact.Artifact) {
			if err := os.Remove(largest(t, filepath.Join(dir, "blobs"))); err != nil {
				t.Fatal(err)
			}
		},
		"truncated manifest": func(t *testing.T, dir string, a *artifact.Artifact) {
			if err := os.Truncate(largest(t, filepath.Join(dir, "manifests")), 100); err != nil {
				t.Fatal(err)
			}
		},
		"manifest with another digest": func(t *testing.T, dir string, a *artifact.Artifact) {
			name := largest(t, filepath.Join(dir, "manifests"))
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			write(t, name, strings.Replace(string(content), a.Digest(), "sha256:"+strings.Repeat("0", 64), 2))
		},
		"empty manifest file, as after a power failure": func(t *testing.T, dir string, a *artifact.Artifact) {
			write(t, largest(t, filepath.Join(dir, "manifests")), "")
		},
	}
	for name, harm := range tests {
		t.Run(name+" is not served, and the next push restores it", func(t *testing.T) {
			dir := t.TempDir()
			a := pack(t, writeTree(t, source()))
			other := pack(t, writeTree(t, map[string]string{"x.tf": ""}))
			host, _ := serveRegistry(t, dir)
			if _, err := artifact.Push(t.Context(), host+"/app", artifact.Access{}, a); err != nil {
				t.Fatal(err)
			}
			harm(t, dir, a)
			if _, err := artifact.Push(t.Context(), host+"/other", artifact.Access{}, other); err != nil {
				t.Fatal(err)
			}

			var log bytes.Buffer
			h, err := artifact.RegistryHandler(dir, artifact.RegistryOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(h)
			defer server.Close()
			host = strings.TrimPrefix(server.URL, "http://")
			into := t.TempDir()
			err = artifact.Pull(t.Context(), host+"/app@"+a.Digest(), artifact.Access{}, openRoot(t, into), artifact.Limits{})
			wantCode(t, err, fairlead.KindNotFound, "artifact-not-found")
			if found := readTree(t, into); len(found) != 0 {
				t.Errorf("unpacked %v", found)
			}
			pullInto(t, host+"/other@"+other.Digest())

			if _, err := artifact.Push(t.Context(), host+"/app", artifact.Access{}, a); err != nil {
				t.Fatal(err)
			}
			pullInto(t, host+"/app@"+a.Digest())
			server.Close()
			if name != "missing blob" && !strings.Contains(log.String(), "damaged") {
				t.Errorf("the log does not report the damage: %q", log.String())
			}
		})
	}
}

func TestRegistryRefusesInvalidRequests(t *testing.T) {
	blob := []byte("content")
	digest := sha256Digest(blob)
	zero := "sha256:" + strings.Repeat("0", 64)
	manifest := []byte(`{"schemaVersion":2,"config":{"mediaType":"a/b","size":7,"digest":"` + zero + `"},"layers":[]}`)
	image := http.Header{"Content-Type": {"application/vnd.oci.image.manifest.v1+json"}}
	index := http.Header{"Content-Type": {"application/vnd.oci.image.index.v1+json"}}

	tests := []struct {
		name, method, path string
		header             http.Header
		body               []byte
		status             int
	}{
		{"content with another digest", "POST", "/v2/app/blobs/uploads/?digest=" + zero, nil, blob, 400},
		{"digest of another algorithm", "POST", "/v2/app/blobs/uploads/?digest=md5:00", nil, blob, 400},
		{"digest that is a path", "POST", "/v2/app/blobs/uploads/?digest=sha256:../../../x", nil, blob, 400},
		{"blob that is too large", "POST", "/v2/app/blobs/uploads/?digest=" + digest, nil, make([]byte, 1001), 413},
		{"manifest before its blobs", "PUT", "/v2/app/manifests/latest", image, manifest, 400},
		{"manifest with another digest", "PUT", "/v2/app/manifests/" + zero, image, manifest, 400},
		{"index", "PUT", "/v2/app/manifests/latest", index, []byte(`{"schemaVersion":2,"manifests":[]}`), 400},
		{"manifest that is not JSON", "PUT", "/v2/app/manifests/latest", image, []byte("{"), 400},
		{"manifest that is too large", "PUT", "/v2/app/manifests/latest", image, make([]byte, 4<<20+1), 413},
		{"invalid tag", "PUT", "/v2/app/manifests/-x", image, manifest, 405},
		{"unknown upload", "PATCH", "/v2/app/blobs/uploads/nothing", nil, blob, 404},
		{"unknown blob", "GET", "/v2/app/blobs/" + zero, nil, nil, 404},
		{"unknown manifest", "GET", "/v2/app/manifests/" + zero, nil, nil, 404},
		{"blob name that is a path", "GET", "/v2/app/blobs/sha256:..%2f..%2fmanifests", nil, nil, 404},
		{"delete of a blob", "DELETE", "/v2/app/blobs/" + digest, nil, nil, 405},
		{"delete of a manifest", "DELETE", "/v2/app/manifests/latest", nil, nil, 405},
		{"list of repositories", "GET", "/v2/_catalog", nil, nil, 404},
		{"repository name in upper case", "GET", "/v2/APP/manifests/latest", nil, nil, 404},
		{"repository name with ..", "POST", "/v2/a/%2e%2e/b/blobs/uploads/", nil, nil, 404},
		{"repository name that is too long", "POST", "/v2/" + strings.Repeat("a", 300) + "/blobs/uploads/", nil, nil, 404},
		{"another path", "GET", "/v1/", nil, nil, 404},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			url := serveOptions(t, dir, artifact.RegistryOptions{MaxBlob: 1000})
			answer, body := send(t, test.method, url+test.path, test.header, test.body)
			if answer.StatusCode != test.status {
				t.Errorf("got %d %s, want %d", answer.StatusCode, body, test.status)
			}
			if left := filesBelow(t, dir); len(left) != 0 {
				t.Errorf("files after the refusal: %q", left)
			}
		})
	}
}

func TestUploadContinuesAfterEachPart(t *testing.T) {
	url := serveOptions(t, t.TempDir(), artifact.RegistryOptions{MaxBlob: 10})
	location := begin(t, url, "team/app")
	steps := []struct {
		name, method, rng, body string
		status                  int
		after                   string // the Range of the response
	}{
		{"first part", "PATCH", "0-3", "abcd", 202, "0-3"},
		{"repeated part at a wrong offset", "PATCH", "0-3", "abcd", 416, "0-3"},
		{"part over the limit", "PATCH", "4-12", "123456789", 413, ""},
		{"unchanged progress", "GET", "", "", 204, "0-3"},
		{"next part", "PATCH", "4-5", "ef", 202, "0-5"},
	}
	for _, step := range steps {
		header := http.Header{}
		if step.rng != "" {
			header.Set("Content-Range", step.rng)
		}
		answer, body := send(t, step.method, location, header, []byte(step.body))
		if answer.StatusCode != step.status || answer.Header.Get("Range") != step.after {
			t.Fatalf("%s: %d %q %s", step.name, answer.StatusCode, answer.Header.Get("Range"), body)
		}
	}
	if answer, _ := send(t, "PATCH", strings.Replace(location, "team/app", "other/app", 1), nil, nil); answer.StatusCode != 404 {
		t.Errorf("the upload was accepted in another repository: %d", answer.StatusCode)
	}
	digest := sha256Digest([]byte("abcdefgh"))
	if answer, body := send(t, "PUT", location+"?digest="+digest, nil, []byte("gh")); answer.StatusCode != 201 {
		t.Fatalf("finish: %d %s", answer.StatusCode, body)
	}
	if answer, body := send(t, "GET", url+"/v2/team/app/blobs/"+digest, nil, nil); answer.StatusCode != 200 || string(body) != "abcdefgh" {
		t.Errorf("got %d %q", answer.StatusCode, body)
	}
}

func TestAbandonedUploadsAreRemoved(t *testing.T) {
	var mu sync.Mutex
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	dir := t.TempDir()
	url := serveOptions(t, dir, artifact.RegistryOptions{MaxUploads: 2, IdleUpload: time.Minute, Now: clock})
	begin(t, url, "app")
	begin(t, url, "app")
	if answer, _ := send(t, "POST", url+"/v2/app/blobs/uploads/", nil, nil); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("third upload: %d", answer.StatusCode)
	}
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	location := begin(t, url, "app")
	if left := filesBelow(t, filepath.Join(dir, "uploads")); len(left) != 1 {
		t.Errorf("files in uploads: %q, want only the one of the new upload", left)
	}
	if answer, _ := send(t, "DELETE", location, nil, nil); answer.StatusCode != http.StatusNoContent {
		t.Errorf("cancel: %d", answer.StatusCode)
	}
	if left := filesBelow(t, dir); len(left) != 0 {
		t.Errorf("files after the cancel: %q", left)
	}
}

func TestRegistryReportsAFullOrBrokenDisk(t *testing.T) {
	a := pack(t, writeTree(t, source()))
	dir := t.TempDir()
	url := serveOptions(t, dir, artifact.RegistryOptions{})
	repository := strings.TrimPrefix(url, "http://") + "/app"

	write(t, filepath.Join(dir, "blobs"), "a file where a folder must be")
	answer, body := send(t, "POST", url+"/v2/app/blobs/uploads/?digest="+sha256Digest([]byte("x")), nil, []byte("x"))
	if answer.StatusCode != http.StatusInsufficientStorage || !strings.Contains(string(body), "cannot be stored") {
		t.Errorf("push of a blob: %d %s", answer.StatusCode, body)
	}
	if err := os.Remove(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(dir, "manifests"), "a file where a folder must be")
	_, err := artifact.Push(t.Context(), repository, artifact.Access{}, a)
	wantCode(t, err, fairlead.KindUnavailable, "registry-unavailable")
	if err != nil && !strings.Contains(err.Error(), "the manifest cannot be stored") {
		t.Errorf("the error does not contain the reason: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "manifests")); err != nil {
		t.Fatal(err)
	}

	if left := filesBelow(t, filepath.Join(dir, "uploads")); len(left) != 0 {
		t.Errorf("files left in uploads: %q", left)
	}
	if _, err := artifact.Push(t.Context(), repository, artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	pullInto(t, repository+"@"+a.Digest())

	if _, err := artifact.RegistryHandler(filepath.Join(writeTree(t, map[string]string{"f": ""}), "f"), artifact.RegistryOptions{}); err == nil {
		t.Error("no error for a folder that is a file")
	}
}

func TestMovedTagKeepsTheOldManifest(t *testing.T) {
	dir := t.TempDir()
	url := serveOptions(t, dir, artifact.RegistryOptions{})
	empty := sha256Digest([]byte("{}"))
	if answer, body := send(t, "POST", url+"/v2/app/blobs/uploads/?digest="+empty, nil, []byte("{}")); answer.StatusCode != 201 {
		t.Fatalf("blob: %d %s", answer.StatusCode, body)
	}
	image := http.Header{"Content-Type": {"application/vnd.oci.image.manifest.v1+json"}}
	manifest := func(note string) []byte {
		return fmt.Appendf(nil, `{"schemaVersion":2,"config":{"mediaType":"a/b","size":2,"digest":"%s"},"layers":[],"annotations":{"note":%q}}`, empty, note)
	}
	for _, note := range []string{"one", "two"} {
		if answer, body := send(t, "PUT", url+"/v2/app/manifests/latest", image, manifest(note)); answer.StatusCode != 201 {
			t.Fatalf("manifest %s: %d %s", note, answer.StatusCode, body)
		}
	}
	url = serveOptions(t, dir, artifact.RegistryOptions{})
	for ref, want := range map[string][]byte{"latest": manifest("two"), sha256Digest(manifest("one")): manifest("one")} {
		if answer, body := send(t, "GET", url+"/v2/app/manifests/"+ref, nil, nil); answer.StatusCode != 200 || !bytes.Equal(body, want) {
			t.Errorf("%s: %d %s", ref, answer.StatusCode, body)
		}
	}
}

func serveOptions(t *testing.T, dir string, o artifact.RegistryOptions) (url string) {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	h, err := artifact.RegistryHandler(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// startRegistry runs the registry in a separate process.
func startRegistry(t *testing.T, dir string) (kill func(), host string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), exe)
	cmd.Env = append(os.Environ(), registryDirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // SIGKILL; Kill cannot fail before Wait was called
		_ = cmd.Wait()         // returns the error "signal: killed"
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return kill, strings.TrimSpace(line)
}

func begin(t *testing.T, url, repository string) (location string) {
	t.Helper()
	answer, body := send(t, "POST", url+"/v2/"+repository+"/blobs/uploads/", nil, nil)
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("begin upload: %d %s", answer.StatusCode, body)
	}
	return url + answer.Header.Get("Location")
}

func send(t *testing.T, method, url string, header http.Header, body []byte) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, got
}

func pullInto(t *testing.T, ref string) string {
	t.Helper()
	dir := t.TempDir()
	if err := artifact.Pull(t.Context(), ref, artifact.Access{}, openRoot(t, dir), artifact.Limits{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func sha256Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func filesBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func largest(t *testing.T, dir string) (name string) {
	t.Helper()
	var most int64 = -1
	for _, f := range filesBelow(t, dir) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			name, most = f, info.Size()
		}
	}
	return name
}
