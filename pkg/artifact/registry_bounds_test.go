package artifact_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
)

var image = http.Header{"Content-Type": {"application/vnd.oci.image.manifest.v1+json"}}

// pushed is a registry that a test fills by HTTP requests.
type pushed struct {
	*artifact.Registry
	t   *testing.T
	url string
	dir string
}

func newRegistry(t *testing.T, dir string, o artifact.RegistryOptions) *pushed {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	r, err := artifact.RegistryHandler(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return &pushed{r, t, server.URL, dir}
}

func (p *pushed) blob(repository, content string, status int) string {
	p.t.Helper()
	digest := sha256Digest([]byte(content))
	if answer, body := send(p.t, "POST", p.url+"/v2/"+repository+"/blobs/uploads/?digest="+digest, nil, []byte(content)); answer.StatusCode != status {
		p.t.Errorf("push of a blob of %d bytes: %d %s, want %d", len(content), answer.StatusCode, body, status)
	}
	return digest
}

// manifestOf returns a manifest with the same blob as each of its layers. The parameter
// layers is the number of layers.
func manifestOf(note, config, blob string, size, layers int) []byte {
	layer := fmt.Sprintf(`{"mediaType":"a/c","size":%d,"digest":%q}`, size, blob)
	return fmt.Appendf(nil, `{"schemaVersion":2,"config":{"mediaType":"a/b","size":2,"digest":%q},"layers":[%s],"annotations":{"note":%q}}`,
		config, strings.TrimSuffix(strings.Repeat(layer+",", layers), ","), note)
}

// push pushes a manifest with one layer and returns its digest.
func (p *pushed) push(repository, content string, status int) string {
	p.t.Helper()
	m := manifestOf("", p.blob(repository, "{}", 201), p.blob(repository, content, 201), len(content), 1)
	if answer, body := send(p.t, "PUT", p.url+"/v2/"+repository+"/manifests/"+sha256Digest(m), image, m); answer.StatusCode != status {
		p.t.Errorf("push of the manifest: %d %s, want %d", answer.StatusCode, body, status)
	}
	return sha256Digest(m)
}

func (p *pushed) has(repository, noun, name string) bool {
	p.t.Helper()
	answer, _ := send(p.t, "HEAD", p.url+"/v2/"+repository+"/"+noun+"/"+name, nil, nil)
	return answer.StatusCode == http.StatusOK
}

// age makes all files older by d.
func (p *pushed) age(d time.Duration) {
	p.t.Helper()
	for _, f := range filesBelow(p.t, p.dir) {
		st, err := os.Stat(f)
		if err != nil {
			p.t.Fatal(err)
		}
		if at := st.ModTime().Add(-d); os.Chtimes(f, at, at) != nil {
			p.t.Fatal(f)
		}
	}
}

// Manifests on disk need no memory, and the start of the registry does not read them. In an
// earlier implementation, 40 manifests of 4 MiB needed 460 MB, and a restart took 13 seconds.
func TestManifestsNeedNoMemory(t *testing.T) {
	dir := t.TempDir()
	p := newRegistry(t, dir, artifact.RegistryOptions{})
	p.push("orgs/a/app/web", "source", 201)
	config, layer := sha256Digest([]byte("{}")), sha256Digest([]byte("source"))
	if answer, _ := send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/large", image, manifestOf(strings.Repeat("x", 64<<10), config, layer, 6, 1)); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a manifest of more than 64 KiB: %d", answer.StatusCode)
	}
	var before, after runtime.MemStats
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			m := manifestOf(fmt.Sprint(i)+strings.Repeat("x", 60<<10), config, layer, 6, 1)
			if answer, body := send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/"+sha256Digest(m), image, m); answer.StatusCode != 201 {
				t.Fatalf("manifest %d: %d %s", i, answer.StatusCode, body)
			}
		}
	}
	fill(0, 20)
	runtime.GC()
	runtime.ReadMemStats(&before)
	fill(20, 220) // 12 MB
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("200 manifests of 60 KiB need %d bytes of memory", grown)
	}
	runtime.ReadMemStats(&before)
	if _, err := artifact.RegistryHandler(dir, artifact.RegistryOptions{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if read := after.TotalAlloc - before.TotalAlloc; read > 1<<20 {
		t.Errorf("the start with 220 manifests needs %d bytes of memory", read)
	}
}

// A blob is hashed once, even if a manifest refers to it many times. In an earlier
// implementation, a request with 35,000 references to a blob took 2.5 s, and 400 references
// kept a core busy.
func TestBlobIsHashedOnce(t *testing.T) {
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	digest := p.push("orgs/a/app/web", "source", 201)
	config, layer := sha256Digest([]byte("{}")), sha256Digest([]byte("source"))
	for _, layers := range []int{2, 400} {
		if answer, body := send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/many", image, manifestOf("", config, layer, 6, layers)); answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "MANIFEST_INVALID") {
			t.Errorf("%d layers: %d %s", layers, answer.StatusCode, body)
		}
	}
	// The blob was hashed when it was pushed. It is hashed again only if the time or the size
	// of its file has changed.
	name := filepath.Join(p.dir, "blobs/sha256", strings.TrimPrefix(layer, "sha256:"))
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, "SOURCE")
	if err := os.Chtimes(name, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !p.has("orgs/a/app/web", "manifests", digest) {
			t.Error("a GET hashes the blob again")
		}
	}
	if err := os.Chtimes(name, st.ModTime().Add(time.Second), st.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if p.has("orgs/a/app/web", "manifests", digest) {
		t.Error("a blob whose file has changed was not verified")
	}
}

// The blob is a sparse file of a terabyte, which is too large to read in a test.
func TestHashingStopsWhenTheClientDisconnects(t *testing.T) {
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	p.push("orgs/a/app/web", "source", 201)
	huge := sha256Digest([]byte("huge"))
	f, err := os.Create(filepath.Join(p.dir, "blobs/sha256", strings.TrimPrefix(huge, "sha256:")))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	m := manifestOf("", sha256Digest([]byte("{}")), huge, 1<<40, 1)
	r := httptest.NewRequestWithContext(ctx, "PUT", "/v2/orgs/a/app/web/manifests/"+sha256Digest(m), bytes.NewReader(m))
	r.Header = image.Clone()
	p.ServeHTTP(httptest.NewRecorder(), r) // must return; otherwise the test times out
	if ctx.Err() == nil {
		t.Error("the registry read a terabyte")
	}
}

// One caller cannot use all uploads. In an earlier implementation, 64 unfinished
// uploads of one caller blocked all other callers for ten minutes.
func TestOneCallerCannotBlockAllUploads(t *testing.T) {
	clock := time.Now()
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{Now: func() time.Time { return clock }})
	as := func(token string) int {
		answer, body := send(t, "POST", p.url+"/v2/orgs/a/app/web/blobs/uploads/", http.Header{"Authorization": {"Bearer " + token}}, nil)
		if answer.StatusCode == http.StatusTooManyRequests && !strings.Contains(string(body), "TOOMANYREQUESTS") {
			t.Errorf("the refusal is not a registry's error: %s", body)
		}
		return answer.StatusCode
	}
	started := 0
	for as("one") == http.StatusAccepted {
		started++
	}
	if started != 16 {
		t.Errorf("one caller started %d uploads, want 16", started)
	}
	if got := as("another"); got != http.StatusAccepted {
		t.Errorf("another caller got the status %d", got)
	}
	if left := filesBelow(t, filepath.Join(p.dir, "uploads")); len(left) != 17 {
		t.Fatalf("uploads has %d files, want 17", len(left))
	}
	clock = clock.Add(11 * time.Minute)
	if err := p.Collect(t.Context(), unnamed); err != nil {
		t.Fatal(err)
	}
	if left := filesBelow(t, filepath.Join(p.dir, "uploads")); len(left) != 0 {
		t.Errorf("files of abandoned uploads: %q", left)
	}
}

func unnamed(context.Context, string, string) (bool, error) { return false, nil }

// The content of one account cannot exceed MaxBytes and MaxManifests.
func TestAccountCannotExceedItsLimits(t *testing.T) {
	account := func(repository string) string { return strings.Split(repository, "/")[1] }
	dir := t.TempDir()
	o := artifact.RegistryOptions{Account: account, MaxBytes: 10_000, MaxManifests: 3}
	p := newRegistry(t, dir, o)
	p.push("orgs/a/app/web", strings.Repeat("a", 5000), 201)
	p = newRegistry(t, dir, o) // counts the account's content on disk
	p.blob("orgs/a/app/web", strings.Repeat("b", 5000), 507)
	answer, body := send(t, "POST", p.url+"/v2/orgs/a/app/web/blobs/uploads/?digest="+sha256Digest([]byte("c")), nil, []byte("c"))
	if answer.StatusCode != 201 {
		t.Errorf("a blob within the limit: %d %s", answer.StatusCode, body)
	}
	p.push("orgs/b/app/web", strings.Repeat("a", 5000), 201) // another account has its own limit
	// Pushing the same content again needs no space.
	for range 5 {
		p.push("orgs/a/app/web", strings.Repeat("a", 5000), 201)
	}
	p.push("orgs/a/app/web", "1", 201)
	p.push("orgs/a/app/web", "2", 201)
	p.push("orgs/a/app/web", "3", 507)
	answer, body = send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/tag", image, manifestOf("", sha256Digest([]byte("{}")), sha256Digest([]byte("1")), 1, 1))
	var problem struct {
		Errors []struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &problem); err != nil || answer.StatusCode != 507 || len(problem.Errors) != 1 || !strings.Contains(problem.Errors[0].Message, "may have 3") {
		t.Errorf("a manifest over the limit: %d %s", answer.StatusCode, body)
	}
	if left := filesBelow(t, filepath.Join(dir, "uploads")); len(left) != 0 {
		t.Errorf("files left in uploads: %q", left)
	}
}

// Collect removes only unreferenced content that is old.
func TestCollectRemovesOldUnreferencedContent(t *testing.T) {
	const web = "orgs/a/app/web"
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	old, now, dropped, read := p.push(web, "an old version", 201), p.push(web, "the newest", 201), p.push(web, "of no version", 201), p.push(web, "read again", 201)
	orphan, young := p.blob(web, "orphan", 201), ""
	named := func(_ context.Context, repository, digest string) (bool, error) {
		return repository == web && (digest == old || digest == now), nil
	}
	collect := func() {
		t.Helper()
		if err := p.Collect(t.Context(), named); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	if !p.has(web, "manifests", dropped) || !p.has(web, "blobs", orphan) {
		t.Fatal("a new blob was removed before its client pushed the manifest")
	}
	p.age(25 * time.Hour)
	if !p.has(web, "manifests", read) { // a push reads the manifest to find out whether it exists
		t.Fatal("the manifest was removed")
	}
	young = p.push(web, "just pushed", 201)
	collect()
	for what, want := range map[string]bool{old: true, now: true, dropped: false, read: true, young: true} {
		if p.has(web, "manifests", what) != want {
			t.Errorf("manifest %s (old %s, now %s, dropped %s, read %s, young %s): exists is %v", what, old, now, dropped, read, young, !want)
		}
	}
	for content, want := range map[string]bool{"an old version": true, "the newest": true, "of no version": false, "read again": true, "just pushed": true, "orphan": false, "{}": true} {
		if p.has(web, "blobs", sha256Digest([]byte(content))) != want {
			t.Errorf("blob %q: exists is %v", content, !want)
		}
	}
	p.age(25 * time.Hour)
	failing := func(context.Context, string, string) (bool, error) { return false, os.ErrDeadlineExceeded }
	if err := p.Collect(t.Context(), failing); err == nil || !p.has(web, "manifests", old) {
		t.Errorf("Collect when the versions cannot be read: %v", err)
	}
	p.push(web, "of no version", 201) // this content may be pushed again
	pushAgain := newRegistry(t, p.dir, artifact.RegistryOptions{})
	if !pushAgain.has(web, "manifests", dropped) {
		t.Error("a manifest that was pushed again was removed")
	}
}

// In an earlier layout, records were stored without a folder for each account. The registry
// still serves these records, and Collect moves them to the folders.
func TestFormerRecordsAreServedAndMoved(t *testing.T) {
	const web = "orgs/a/app/web"
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	digest := p.push(web, "source", 201)
	found := filesBelow(t, filepath.Join(p.dir, "manifests"))
	if len(found) != 1 {
		t.Fatalf("records: %q, want one", found)
	}
	former := filepath.Join(p.dir, "manifests", strings.TrimPrefix(sha256Digest([]byte(web+"\x00"+digest)), "sha256:")+".json")
	if err := os.Rename(found[0], former); err != nil {
		t.Fatal(err)
	}
	p.age(48 * time.Hour)
	if err := p.Collect(t.Context(), func(context.Context, string, string) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	if got := filesBelow(t, filepath.Join(p.dir, "manifests")); len(got) != 1 || got[0] != found[0] || !p.has(web, "manifests", digest) {
		t.Errorf("the record is in %q, want %q", got, found)
	}
	if err := os.Rename(found[0], former); err != nil {
		t.Fatal(err)
	}
	if !p.has(web, "manifests", digest) {
		t.Error("a record in the former place is not served")
	}
}
