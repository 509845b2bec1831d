package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/artifact/fetch"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// published is an artifact in a registry.
type published struct {
	*artifact.Artifact
	ref string
}

func publish(t *testing.T, host string, files map[string]string) published {
	t.Helper()
	a := pack(t, writeTree(t, files))
	if _, err := artifact.Push(t.Context(), host+"/components/web", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	return published{a, host + "/components/web@" + a.Digest()}
}

// wantPull pulls the artifact, compares its files, and returns the requests.
func wantPull(t *testing.T, p fetch.Puller, ref string, seen *traffic, want map[string]string) []string {
	t.Helper()
	seen.reset()
	dir := t.TempDir()
	if _, err := p.Pull(t.Context(), ref, openRoot(t, dir), fetch.Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("unpacked %v, want %v", got, want)
	}
	return seen.all()
}

func (l *traffic) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// entryOf returns the folder of the artifact in a cache.
func entryOf(dir string, a published) string {
	return filepath.Join(dir, strings.TrimPrefix(a.Digest(), "sha256:"))
}

func TestSecondPullComesFromTheCache(t *testing.T) {
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := &traffic{inner: inner}
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(seen)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	a := publish(t, strings.TrimPrefix(server.URL, "http://"), source())

	dir := filepath.Join(t.TempDir(), "artifacts")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	connections.Store(0)
	requests := wantPull(t, fetch.Puller{Transport: transport, Cache: &fetch.Cache{Dir: dir}}, a.ref, seen, source())
	if len(requests) != 2 || connections.Load() != 1 {
		t.Errorf("the pull used %d connections and the requests %q", connections.Load(), requests)
	}
	if requests := wantPull(t, fetch.Puller{Cache: &fetch.Cache{Dir: dir}}, a.ref, seen, source()); len(requests) != 0 {
		t.Errorf("the second pull sent %q", requests)
	}
	if requests := wantPull(t, fetch.Puller{}, a.ref, seen, source()); len(requests) != 2 {
		t.Errorf("the pull without a cache sent %q", requests)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("other users can read the cache: %v %v", info.Mode(), err)
	}
}

func TestDamagedCacheEntryIsReplaced(t *testing.T) {
	host, seen := serveRegistry(t, t.TempDir())
	files, others := source(), map[string]string{"main.tf": "# theirs\n"}
	a, other := publish(t, host, files), publish(t, host, others)
	flip := func(t *testing.T, name string) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		write(t, name, string(b))
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, entry, other string) error
	}{
		{"flipped bit in the manifest", func(t *testing.T, e, _ string) error { flip(t, filepath.Join(e, "manifest")); return nil }},
		{"flipped bit in the layer", func(t *testing.T, e, _ string) error { flip(t, filepath.Join(e, "layer")); return nil }},
		{"truncated layer", func(_ *testing.T, e, _ string) error { return os.Truncate(filepath.Join(e, "layer"), 700) }},
		{"huge layer", func(_ *testing.T, e, _ string) error { return os.Truncate(filepath.Join(e, "layer"), 1<<40) }},
		{"missing layer", func(_ *testing.T, e, _ string) error { return os.Remove(filepath.Join(e, "layer")) }},
		{"missing manifest", func(_ *testing.T, e, _ string) error { return os.Remove(filepath.Join(e, "manifest")) }},
		{"empty entry", func(_ *testing.T, e, _ string) error { return errors.Join(os.RemoveAll(e), os.Mkdir(e, 0o700)) }},
		{"file in place of the entry", func(_ *testing.T, e, _ string) error {
			return errors.Join(os.RemoveAll(e), os.WriteFile(e, nil, 0o600))
		}},
		{"another artifact in its place", func(_ *testing.T, e, other string) error {
			return errors.Join(os.RemoveAll(e), os.Rename(other, e))
		}},
		{"layer of another artifact", func(_ *testing.T, e, other string) error {
			return os.Rename(filepath.Join(other, "layer"), filepath.Join(e, "layer"))
		}},
		{"link to the correct layer", func(t *testing.T, e, _ string) error {
			outside := filepath.Join(t.TempDir(), "layer")
			return errors.Join(os.Rename(filepath.Join(e, "layer"), outside), os.Symlink(outside, filepath.Join(e, "layer")))
		}},
		{"pipe without a writer", func(_ *testing.T, e, _ string) error {
			name := filepath.Join(e, "manifest")
			return errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			p := fetch.Puller{Cache: &fetch.Cache{Dir: dir}}
			wantPull(t, p, a.ref, seen, files)
			wantPull(t, p, other.ref, seen, others)
			if err := test.damage(t, entryOf(dir, a), entryOf(dir, other)); err != nil {
				t.Fatal(err)
			}
			if requests := wantPull(t, p, a.ref, seen, files); len(requests) != 2 {
				t.Errorf("the pull sent %q", requests)
			}
			if requests := wantPull(t, p, a.ref, seen, files); len(requests) != 0 {
				t.Errorf("the damage was not repaired: %q", requests)
			}
		})
	}
}

func TestPullWorksWithAnUnwritableCache(t *testing.T) {
	host, seen := serveRegistry(t, t.TempDir())
	a := publish(t, host, source())
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	p := fetch.Puller{Cache: &fetch.Cache{Dir: filepath.Join(file, "artifacts")}}
	for range 2 {
		if requests := wantPull(t, p, a.ref, seen, source()); len(requests) != 2 {
			t.Errorf("the pull sent %q", requests)
		}
	}
}

func TestCacheKeepsTheMostRecentlyUsedArtifacts(t *testing.T) {
	host, seen := serveRegistry(t, t.TempDir())
	tree := func(name string) map[string]string { return map[string]string{name: strings.Repeat(name, 30_000)} }
	a, b, c := publish(t, host, tree("a")), publish(t, host, tree("b")), publish(t, host, tree("c"))
	huge := map[string]string{"huge": strings.Repeat("x", 100_000)}
	d := publish(t, host, huge)
	for name, bound := range map[string]fetch.Cache{"by size": {Bytes: 80_000}, "by number": {Entries: 2, Bytes: 95_000}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			clock := time.Now()
			bound.Dir, bound.Now = dir, func() time.Time { clock = clock.Add(time.Second); return clock }
			p := fetch.Puller{Cache: &bound}
			for name, age := range map[string]time.Duration{".new-old": 2 * time.Hour, ".old-old": 2 * time.Hour, ".new-young": time.Minute} {
				path, then := filepath.Join(dir, name), clock.Add(-age)
				if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "layer"), nil, 0o600), os.Chtimes(path, then, then)); err != nil {
					t.Fatal(err)
				}
			}
			wantPull(t, p, a.ref, seen, tree("a"))
			wantPull(t, p, b.ref, seen, tree("b"))
			wantPull(t, p, a.ref, seen, tree("a"))
			wantPull(t, p, c.ref, seen, tree("c")) // removes b
			if requests := wantPull(t, p, a.ref, seen, tree("a")); len(requests) != 0 {
				t.Errorf("the most recently used artifact was removed: %q", requests)
			}
			if requests := wantPull(t, p, c.ref, seen, tree("c")); len(requests) != 0 {
				t.Errorf("the latest artifact was not stored: %q", requests)
			}
			wantPull(t, p, d.ref, seen, huge) // the artifact is larger than the cache, so it is not stored and removes no entry
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range left {
				names = append(names, e.Name())
			}
			want := []string{".new-young", filepath.Base(entryOf(dir, a)), filepath.Base(entryOf(dir, c))}
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("the cache has %q, want %q", names, want)
			}
			if requests := wantPull(t, p, b.ref, seen, tree("b")); len(requests) != 2 {
				t.Errorf("the pull of the removed artifact sent %q", requests)
			}
		})
	}
}

// Steps are processes that share only the folder of the cache. The caches in this test also
// share only their folder.
func TestConcurrentStepsShareASmallCache(t *testing.T) {
	host, _ := serveRegistry(t, t.TempDir())
	dir := t.TempDir()
	var all []published
	var trees []map[string]string
	for n := range 4 {
		files := map[string]string{"main.tf": strings.Repeat(fmt.Sprint(n), 20_000)}
		all, trees = append(all, publish(t, host, files)), append(trees, files)
	}
	var wg sync.WaitGroup
	for step := range 6 {
		wg.Go(func() {
			p := fetch.Puller{Cache: &fetch.Cache{Dir: dir, Bytes: 60_000}}
			for round := range 12 {
				n := (step + round) % len(all)
				into := t.TempDir()
				root, err := os.OpenRoot(into)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Pull(t.Context(), all[n].ref, root, fetch.Limits{}); err != nil {
					t.Error(err)
				}
				root.Close()
				if b, err := os.ReadFile(filepath.Join(into, "main.tf")); err != nil || string(b) != trees[n]["main.tf"] {
					t.Errorf("artifact %d has the files of another one: %v", n, err)
				}
				if round%5 == 0 { // another process damages the entry
					os.Truncate(filepath.Join(entryOf(dir, all[n]), "layer"), 10)
				}
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left in the cache", e.Name())
		}
	}
	if len(entries) > 2+6 { // two artifacts fit, and each of the 6 steps may have added one artifact
		t.Errorf("the cache has %d entries", len(entries))
	}
}

func componentManifest(layer []byte) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.fairlead.component.v1",`+
		`"layers":[{"mediaType":"application/vnd.fairlead.component.v1.tar","size":%d,"digest":%q}]}`, len(layer), sha256Digest(layer))
}

// The entry in the cache matches its digest but has hostile content. The writer of the entry
// chose the content and its digest.
func TestHostileCacheContentIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		archive []byte
		limits  fetch.Limits
		code    fairlead.Code
	}{
		"path outside the folder": {makeTar(t, file("../evil", "x")), fetch.Limits{}, "artifact-invalid"},
		"link":                    {makeTar(t, link('2', "modules", "/etc")), fetch.Limits{}, "artifact-invalid"},
		"not a tar":               {[]byte(strings.Repeat("x", 2000)), fetch.Limits{}, "artifact-invalid"},
		"file over the limit":     {makeTar(t, file("big", strings.Repeat("x", 9000))), fetch.Limits{FileBytes: 5000}, "artifact-file-too-large"},
		"archive over all limits": {makeTar(t, file("big", strings.Repeat("x", 9000))),
			fetch.Limits{Bytes: 1000, Entries: 1}, "artifact-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := componentManifest(test.archive)
			server := httptest.NewServer(hostile{manifest, test.archive})
			defer server.Close()
			digest := sha256Digest([]byte(manifest))
			ref := strings.TrimPrefix(server.URL, "http://") + "/app@" + digest
			cache := t.TempDir()
			entry := filepath.Join(cache, strings.TrimPrefix(digest, "sha256:"))
			p := fetch.Puller{Cache: &fetch.Cache{Dir: cache}}
			pull := func() {
				parent := t.TempDir()
				dst := filepath.Join(parent, "dst")
				if err := os.Mkdir(dst, 0o700); err != nil {
					t.Fatal(err)
				}
				_, err := p.Pull(t.Context(), ref, openRoot(t, dst), test.limits)
				wantCode(t, err, fairlead.KindInvalid, test.code)
				checkConfined(t, parent, dst)
			}
			pull()
			if left := filesBelow(t, cache); len(left) != 0 {
				t.Errorf("the cache stored it: %q", left)
			}
			write(t, filepath.Join(entry, "manifest"), manifest)
			write(t, filepath.Join(entry, "layer"), string(test.archive))
			pull()
		})
	}
}

func TestPullSendsTheTokenOnlyToTheRegistry(t *testing.T) {
	a := pack(t, writeTree(t, source()))
	var leaks atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaks.Add(1)
		}
		_, _ = w.Write(tarOf(a))
	}))
	defer elsewhere.Close()
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect) // another port of the same machine
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pushed := httptest.NewServer(inner)
	defer pushed.Close()
	if _, err := artifact.Push(t.Context(), strings.TrimPrefix(pushed.URL, "http://")+"/app", artifact.Access{}, a); err != nil {
		t.Fatal(err)
	}
	ref := host + "/app@" + a.Digest()
	for token, code := range map[string]fairlead.Code{"": "registry-unauthenticated", "bad": "registry-unauthenticated"} {
		_, err := fetch.Puller{Login: bearer(token)}.Pull(t.Context(), ref, openRoot(t, t.TempDir()), fetch.Limits{})
		wantCode(t, err, fairlead.KindUnauthenticated, code)
	}
	dir := t.TempDir()
	if _, err := (fetch.Puller{Login: bearer("good")}).Pull(t.Context(), ref, openRoot(t, dir), fetch.Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, dir); len(got) != len(source()) || leaks.Load() != 0 {
		t.Errorf("%d files; the token was sent to another host %d times", len(got), leaks.Load())
	}
}

func TestPullRetriesTemporaryErrors(t *testing.T) {
	archive := makeTar(t, file("main.tf", "x"))
	manifest := componentManifest(archive)
	inner := hostile{manifest, archive}
	synctest.Test(t, func(t *testing.T) {
		requests := map[string]int{}
		p := fetch.Puller{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			requests[r.URL.Path]++
			switch n := requests[r.URL.Path]; {
			case n == 1:
				return nil, errors.New("connection refused")
			case n <= 5:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				inner.ServeHTTP(w, r)
			}
			return w.Result(), nil
		})}
		if _, err := p.Pull(t.Context(), "registry.example/app@"+sha256Digest([]byte(manifest)), openRoot(t, t.TempDir()), fetch.Limits{}); err != nil {
			t.Error(err)
		}
	})
}

func TestPullWithoutTLSNeedsPermission(t *testing.T) {
	archive := makeTar(t, file("main.tf", "x"))
	manifest := componentManifest(archive)
	inner := hostile{manifest, archive}
	for _, host := range []string{"registry.local:5000", "10.1.2.3:5000", "192.168.1.1"} {
		synctest.Test(t, func(t *testing.T) {
			plain, secure := 0, 0
			p := fetch.Puller{Login: bearer("secret"), Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Scheme == "https" {
					secure++
					return nil, errors.New("tls: first record does not look like a TLS handshake")
				}
				plain++
				w := httptest.NewRecorder()
				inner.ServeHTTP(w, r)
				return w.Result(), nil
			})}
			ref := host + "/app@" + sha256Digest([]byte(manifest))
			if _, err := p.Pull(t.Context(), ref, openRoot(t, t.TempDir()), fetch.Limits{}); err == nil || plain != 0 {
				t.Errorf("%s: %d plain requests, error %v", host, plain, err)
			}
			secure, p.PlainHTTP = 0, true
			if _, err := p.Pull(t.Context(), ref, openRoot(t, t.TempDir()), fetch.Limits{}); err != nil || plain != 2 || secure != 1 {
				t.Errorf("%s, with PlainHTTP: %d requests without TLS, %d with TLS, error %v", host, plain, secure, err)
			}
		})
	}
}

func bearer(token string) func(context.Context) (fetch.Login, error) {
	return func(context.Context) (fetch.Login, error) { return fetch.Login{Token: token}, nil }
}

func TestLoginIsCalledOnlyIfNeeded(t *testing.T) {
	inner, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(inner)
	defer server.Close()
	a := publish(t, strings.TrimPrefix(server.URL, "http://"), source())
	asked := 0
	p := fetch.Puller{Cache: &fetch.Cache{Dir: t.TempDir()}, Login: func(context.Context) (fetch.Login, error) { asked++; return fetch.Login{}, nil }}
	for range 3 {
		if _, err := p.Pull(t.Context(), a.ref, openRoot(t, t.TempDir()), fetch.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("Login was called %d times, want once because the artifact was cached", asked)
	}
	broken := errors.New("login failed")
	p = fetch.Puller{Login: func(context.Context) (fetch.Login, error) { return fetch.Login{}, broken }}
	if _, err := p.Pull(t.Context(), a.ref, openRoot(t, t.TempDir()), fetch.Limits{}); !errors.Is(err, broken) {
		t.Errorf("pull without a login: %v", err)
	}
}
