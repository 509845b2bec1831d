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

// pushed is a registry that a test fills by its wire.
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
		p.t.Errorf("a blob of %d bytes: %d %s, want %d", len(content), answer.StatusCode, body, status)
	}
	return digest
}

// manifestOf names one blob in so many layers.
func manifestOf(note, config, blob string, size, layers int) []byte {
	layer := fmt.Sprintf(`{"mediaType":"a/c","size":%d,"digest":%q}`, size, blob)
	return fmt.Appendf(nil, `{"schemaVersion":2,"config":{"mediaType":"a/b","size":2,"digest":%q},"layers":[%s],"annotations":{"note":%q}}`,
		config, strings.TrimSuffix(strings.Repeat(layer+",", layers), ","), note)
}

// push pushes a manifest of one layer and returns its digest.
func (p *pushed) push(repository, content string, status int) string {
	p.t.Helper()
	m := manifestOf("", p.blob(repository, "{}", 201), p.blob(repository, content, 201), len(content), 1)
	if answer, body := send(p.t, "PUT", p.url+"/v2/"+repository+"/manifests/"+sha256Digest(m), image, m); answer.StatusCode != status {
		p.t.Errorf("the manifest: %d %s, want %d", answer.StatusCode, body, status)
	}
	return sha256Digest(m)
}

func (p *pushed) has(repository, noun, name string) bool {
	p.t.Helper()
	answer, _ := send(p.t, "HEAD", p.url+"/v2/"+repository+"/"+noun+"/"+name, nil, nil)
	return answer.StatusCode == http.StatusOK
}

// age makes everything as old as if it had not been touched for d.
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

// TestManifestsTakeMemoryAndTheStartReadsThem: 40 manifests of 4 MiB took 460 MB,
// and a restart took 13 seconds.
func TestManifestsTakeMemoryAndTheStartReadsThem(t *testing.T) {
	dir := t.TempDir()
	p := newRegistry(t, dir, artifact.RegistryOptions{})
	p.push("orgs/a/app/web", "source", 201)
	config, layer := sha256Digest([]byte("{}")), sha256Digest([]byte("source"))
	if answer, _ := send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/large", image, manifestOf(strings.Repeat("x", 64<<10), config, layer, 6, 1)); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a manifest of 64 KiB and more: %d", answer.StatusCode)
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
		t.Errorf("200 manifests of 60 KiB are held in %d bytes of memory", grown)
	}
	runtime.ReadMemStats(&before)
	if _, err := artifact.RegistryHandler(dir, artifact.RegistryOptions{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if read := after.TotalAlloc - before.TotalAlloc; read > 1<<20 {
		t.Errorf("the start takes %d bytes of memory with 220 manifests", read)
	}
}

// TestABlobIsHashedForEachMention: 35,000 mentions of a blob took 2.5 s a request,
// and one blob that was named 400 times kept a core busy.
func TestABlobIsHashedForEachMention(t *testing.T) {
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	digest := p.push("orgs/a/app/web", "source", 201)
	config, layer := sha256Digest([]byte("{}")), sha256Digest([]byte("source"))
	for _, layers := range []int{2, 400} {
		if answer, body := send(t, "PUT", p.url+"/v2/orgs/a/app/web/manifests/many", image, manifestOf("", config, layer, 6, layers)); answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "MANIFEST_INVALID") {
			t.Errorf("%d layers: %d %s", layers, answer.StatusCode, body)
		}
	}
	// It was read when it was pushed. A change that its file does not show is not
	// seen, so it is not read again; one that it shows is.
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
			t.Error("a GET reads the blob through again")
		}
	}
	if err := os.Chtimes(name, st.ModTime().Add(time.Second), st.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if p.has("orgs/a/app/web", "manifests", digest) {
		t.Error("a blob that was written since is not verified")
	}
}

// TestAClientThatIsGoneKeepsACoreBusy: the blob is a terabyte of nothing, which no
// test reads to its end.
func TestAClientThatIsGoneKeepsACoreBusy(t *testing.T) {
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
	p.ServeHTTP(httptest.NewRecorder(), r) // returns, or the test runs out of time
	if ctx.Err() == nil {
		t.Error("a terabyte was read")
	}
}

// TestUploadsOfOneBlockEverybody: 64 unfinished uploads of one caller made all others
// wait for ten minutes.
func TestUploadsOfOneBlockEverybody(t *testing.T) {
	clock := time.Now()
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{Now: func() time.Time { return clock }})
	as := func(token string) int {
		answer, body := send(t, "POST", p.url+"/v2/orgs/a/app/web/blobs/uploads/", http.Header{"Authorization": {"Bearer " + token}}, nil)
		if answer.StatusCode == http.StatusTooManyRequests && !strings.Contains(string(body), "TOOMANYREQUESTS") {
			t.Errorf("the refusal is no error of a registry: %s", body)
		}
		return answer.StatusCode
	}
	begun := 0
	for as("one") == http.StatusAccepted {
		begun++
	}
	if begun != 16 {
		t.Errorf("one caller began %d uploads, want 16", begun)
	}
	if got := as("another"); got != http.StatusAccepted {
		t.Errorf("another caller is answered with %d", got)
	}
	if left := filesBelow(t, filepath.Join(p.dir, "uploads")); len(left) != 17 {
		t.Fatalf("%d files of uploads", len(left))
	}
	clock = clock.Add(11 * time.Minute)
	if err := p.Collect(t.Context(), nobody); err != nil {
		t.Fatal(err)
	}
	if left := filesBelow(t, filepath.Join(p.dir, "uploads")); len(left) != 0 {
		t.Errorf("left of what was given up: %q", left)
	}
}

func nobody(context.Context, string, string) (bool, error) { return false, nil }

// TestOneAccountFillsTheDisk: what an API token stores had no bound.
func TestOneAccountFillsTheDisk(t *testing.T) {
	account := func(repository string) string { return strings.Split(repository, "/")[1] }
	dir := t.TempDir()
	o := artifact.RegistryOptions{Account: account, MaxBytes: 10_000, MaxManifests: 3}
	p := newRegistry(t, dir, o)
	p.push("orgs/a/app/web", strings.Repeat("a", 5000), 201)
	p = newRegistry(t, dir, o) // what it has is counted from the disk
	p.blob("orgs/a/app/web", strings.Repeat("b", 5000), 507)
	answer, body := send(t, "POST", p.url+"/v2/orgs/a/app/web/blobs/uploads/?digest="+sha256Digest([]byte("c")), nil, []byte("c"))
	if answer.StatusCode != 201 {
		t.Errorf("what has room: %d %s", answer.StatusCode, body)
	}
	p.push("orgs/b/app/web", strings.Repeat("a", 5000), 201) // another's room is another's
	// The same again takes none.
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
		t.Errorf("one too many: %d %s", answer.StatusCode, body)
	}
	if left := filesBelow(t, filepath.Join(dir, "uploads")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestOrphansAreNeverCollected tells what goes and what stays.
func TestOrphansAreNeverCollected(t *testing.T) {
	const web = "orgs/a/app/web"
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	old, now, dropped, asked := p.push(web, "an old version", 201), p.push(web, "the newest", 201), p.push(web, "of no version", 201), p.push(web, "asked for", 201)
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
		t.Fatal("a blob that was just pushed is gone: a client pushes the manifest that names it afterwards")
	}
	p.age(25 * time.Hour)
	if !p.has(web, "manifests", asked) { // a push looks whether it is there, and names it
		t.Fatal("it is gone")
	}
	young = p.push(web, "just pushed", 201)
	collect()
	for what, want := range map[string]bool{old: true, now: true, dropped: false, asked: true, young: true} {
		if p.has(web, "manifests", what) != want {
			t.Errorf("manifest %s (old %s, now %s, dropped %s, asked for %s, young %s): there is %v", what, old, now, dropped, asked, young, !want)
		}
	}
	for content, want := range map[string]bool{"an old version": true, "the newest": true, "of no version": false, "asked for": true, "just pushed": true, "orphan": false, "{}": true} {
		if p.has(web, "blobs", sha256Digest([]byte(content))) != want {
			t.Errorf("the blob %q: there is %v", content, !want)
		}
	}
	p.age(25 * time.Hour)
	failing := func(context.Context, string, string) (bool, error) { return false, os.ErrDeadlineExceeded }
	if err := p.Collect(t.Context(), failing); err == nil || !p.has(web, "manifests", old) {
		t.Errorf("where the versions cannot be read: %v", err)
	}
	p.push(web, "of no version", 201) // it may come back
	pushAgain := newRegistry(t, p.dir, artifact.RegistryOptions{})
	if !pushAgain.has(web, "manifests", dropped) {
		t.Error("what was pushed again is gone")
	}
}

// TestRecordsOfBeforeAreServedAndMoved: records had no folders once.
func TestRecordsOfBeforeAreServedAndMoved(t *testing.T) {
	const web = "orgs/a/app/web"
	p := newRegistry(t, t.TempDir(), artifact.RegistryOptions{})
	digest := p.push(web, "source", 201)
	found := filesBelow(t, filepath.Join(p.dir, "manifests"))
	if len(found) != 1 {
		t.Fatalf("records: %q", found)
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
		t.Error("a record of before is not served")
	}
}
