package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ProtonMail/gopenpgp/v2/crypto"
	"github.com/opentofu/tofudl"
	"golang.org/x/mod/modfile"
)

// tool returns a script that replaces the tool. To every command it prints the answer to
// `version -json`.
func tool(version string) string {
	return fmt.Sprintf("#!/bin/sh\necho '{\"terraform_version\": %q}'\n", version)
}

// setup returns a finder with an empty cache and an unreachable release site, and its log.
// PATH contains only go and the tools of onPath.
func setup(t *testing.T, onPath map[string]string) (f finder, log *bytes.Buffer) {
	t.Helper()
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(goTool, filepath.Join(bin, "go")); err != nil {
		t.Fatal(err)
	}
	for name, script := range onPath {
		writeFile(t, filepath.Join(bin, name), script, 0o755)
	}
	t.Setenv("PATH", bin)
	t.Setenv(overrideEnv, "")
	log = &bytes.Buffer{}
	return finder{cache: t.TempDir(), release: unreachable(t), module: moduleOf(t, pinnedVersion), log: log}, log
}

// unreachable returns a release site whose port is closed.
func unreachable(t *testing.T) release {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/api.json"
	l.Close()
	return release{apiURL: url, mirrorURLTemplate: url, gpgKey: publicKey(t, newKey(t)), client: http.DefaultClient}
}

// moduleOf creates a module with a small program that replaces OpenTofu.
func moduleOf(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module github.com/opentofu/opentofu\n\ngo 1.26\n", 0o644)
	main := fmt.Sprintf("package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(`{\"terraform_version\": %q}`) }\n", version)
	writeFile(t, filepath.Join(dir, "cmd/tofu/main.go"), main, 0o644)
	return dir
}

func writeFile(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func cached(f finder) string {
	return filepath.Join(f.cache, "fairlead", "opentofu-"+pinnedVersion, "tofu")
}

func TestMissingToolIsBuiltOnce(t *testing.T) {
	f, log := setup(t, nil)
	path, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if path != cached(f) {
		t.Errorf("found %s, want %s", path, cached(f))
	}
	for _, message := range []string{"cannot be downloaded", "building OpenTofu", "built OpenTofu"} {
		if !strings.Contains(log.String(), message) {
			t.Errorf("the log does not contain %q:\n%s", message, log)
		}
	}
	log.Reset()
	f.module = "/nowhere"
	if again, err := f.find(t.Context()); err != nil || again != path {
		t.Errorf("the second call found %s, error %v; want %s", again, err, path)
	}
	if log.Len() != 0 {
		t.Errorf("the second call logged %q, want nothing", log)
	}
}

func TestOrder(t *testing.T) {
	const broken = "#!/bin/sh\necho 'no such library' >&2\nexit 1\n"
	warns := "#!/bin/sh\n" + `echo '{"terraform_version": "1.9.0"}'` + "\n" + `[ -z "$TF_CLI_CONFIG_FILE" ] || echo Warning` + "\n"
	tests := []struct {
		name     string
		onPath   map[string]string
		override string // script of the override
		pinned   bool
		cache    string // script in the cache
		want     string // name of the found tool, or "cache"
		log      string // part of the log; "": the log must be empty
	}{
		{name: "tofu precedes terraform", onPath: map[string]string{"tofu": tool("1.9.0"), "terraform": tool("1.11.4")}, want: "tofu"},
		{name: "terraform without tofu", onPath: map[string]string{"terraform": tool("1.11.4")}, want: "terraform"},
		{name: "PATH precedes the cache", onPath: map[string]string{"tofu": tool("1.9.0")}, cache: tool(pinnedVersion), want: "tofu"},
		{name: "pinned ignores PATH", onPath: map[string]string{"tofu": tool("1.9.0")}, pinned: true, cache: tool(pinnedVersion), want: "cache"},
		{name: "pinned ignores even the same version on PATH", onPath: map[string]string{"tofu": tool(pinnedVersion)}, pinned: true, cache: tool(pinnedVersion), want: "cache"},
		{name: "the override precedes all", onPath: map[string]string{"tofu": tool("1.9.0")}, override: tool("1.7.0"), cache: tool(pinnedVersion), want: "override"},
		{name: "the override precedes the pinned version", override: tool("1.7.0"), pinned: true, cache: tool(pinnedVersion), want: "override"},
		{name: "a broken tofu is logged and ignored", onPath: map[string]string{"tofu": broken, "terraform": tool("1.11.4")}, want: "terraform", log: "no such library"},
		{name: "an old tool is ignored", onPath: map[string]string{"terraform": tool("1.5.7")}, cache: tool(pinnedVersion), want: "cache", log: "older than 1.6.0"},
		{name: "a program with another answer is ignored", onPath: map[string]string{"tofu": "#!/bin/sh\necho hello\n"}, cache: tool(pinnedVersion), want: "cache", log: "not using tofu"},
		{name: "a missing configuration file does no harm", onPath: map[string]string{"tofu": warns}, cache: tool(pinnedVersion), want: "tofu"},
		{name: "another version in the cache is replaced", cache: tool("1.0.0"), want: "cache", log: "building"},
		{name: "a damaged file in the cache is replaced", cache: "\x7fELF", want: "cache", log: "building"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, log := setup(t, test.onPath)
			f.pinned = test.pinned
			t.Setenv("TF_CLI_CONFIG_FILE", filepath.Join(t.TempDir(), "absent"))
			want := filepath.Join(os.Getenv("PATH"), test.want)
			if test.cache != "" {
				writeFile(t, cached(f), test.cache, 0o755)
			}
			if test.want == "cache" {
				want = cached(f)
			}
			if test.override != "" {
				want = filepath.Join(t.TempDir(), "mine")
				writeFile(t, want, test.override, 0o755)
				t.Setenv(overrideEnv, want)
			}
			got, err := f.find(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("found %s, want %s", got, want)
			}
			if !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() != 0 {
				t.Errorf("the log is %q, want %q", log, test.log)
			}
			if test.want == "cache" && isPinned(t.Context(), got) != nil {
				t.Errorf("the found tool does not have the pinned version")
			}
		})
	}
}

func TestBrokenOverrideIsAnError(t *testing.T) {
	f, _ := setup(t, map[string]string{"tofu": tool("1.9.0")})
	for _, override := range []string{"/nowhere/tofu", "no-such-tool"} {
		t.Setenv(overrideEnv, override)
		if path, err := f.find(t.Context()); err == nil || !strings.Contains(err.Error(), override) {
			t.Errorf("%s: found %s, error %v; want an error that names the override", override, path, err)
		}
	}
}

func TestRelativeOverrideIsMadeAbsolute(t *testing.T) {
	f, _ := setup(t, nil)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "tofu"), tool("1.9.0"), 0o755)
	t.Chdir(dir)
	t.Setenv(overrideEnv, "./tofu")
	path, err := f.find(t.Context())
	if err != nil || !filepath.IsAbs(path) {
		t.Errorf("found %s, error %v; want an absolute path", path, err)
	}
}

func newKey(t *testing.T) *crypto.Key {
	t.Helper()
	key, err := crypto.GenerateKey("Test", "test@example.org", "x25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicKey(t *testing.T, key *crypto.Key) string {
	t.Helper()
	armored, err := key.GetArmoredPublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return armored
}

// releaseSite serves a release that is signed with key.
func releaseSite(t *testing.T, key *crypto.Key, version tofudl.Version, binary string) release {
	t.Helper()
	builder, err := tofudl.NewReleaseBuilder(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := builder.PackageBinary(tofudl.PlatformAuto, tofudl.ArchitectureAuto, []byte(binary), nil); err != nil {
		t.Fatal(err)
	}
	storage, err := tofudl.NewFilesystemStorage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := tofudl.NewMirror(tofudl.MirrorConfig{}, storage, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := builder.Build(t.Context(), version, mirror); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mirror)
	t.Cleanup(server.Close)
	return release{
		apiURL:            server.URL + "/api.json",
		mirrorURLTemplate: server.URL + "/v{{ .Version }}/{{ .Artifact }}",
		gpgKey:            publicKey(t, key),
		client:            server.Client(),
	}
}

func TestReleaseIsDownloaded(t *testing.T) {
	f, log := setup(t, nil)
	f.release = releaseSite(t, newKey(t), pinnedVersion, tool(pinnedVersion))
	f.module = "/nowhere"
	path, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if path != cached(f) || !strings.Contains(log.String(), "downloading OpenTofu") {
		t.Errorf("found %s, want %s; the log is %q", path, cached(f), log)
	}
}

func TestUntrustedReleaseIsNotUsed(t *testing.T) {
	key := newKey(t)
	tests := map[string]func(t *testing.T) release{
		"signed with another key": func(t *testing.T) release {
			r := releaseSite(t, key, pinnedVersion, tool(pinnedVersion))
			r.gpgKey = publicKey(t, newKey(t))
			return r
		},
		"without the pinned version": func(t *testing.T) release { return releaseSite(t, key, "1.0.0", tool(pinnedVersion)) },
		"error from the site": func(t *testing.T) release {
			r := releaseSite(t, key, pinnedVersion, "")
			r.apiURL += "/absent"
			return r
		},
	}
	for name, site := range tests {
		t.Run(name, func(t *testing.T) {
			f, log := setup(t, nil)
			f.release = site(t)
			if _, err := f.find(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "built OpenTofu") {
				t.Errorf("the log is %q, want the tool built", log)
			}
		})
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	t.Run("the error has the compiler's output", func(t *testing.T) {
		f, _ := setup(t, nil)
		writeFile(t, filepath.Join(f.module, "cmd/tofu/main.go"), "package main\n\nfunc main() { undefinedName() }\n", 0o644)
		_, err := f.find(t.Context())
		if err == nil || !strings.Contains(err.Error(), "undefinedName") {
			t.Errorf("got %v", err)
		}
		checkNothingLeft(t, f)
	})
	t.Run("a build of another version is refused", func(t *testing.T) {
		f, _ := setup(t, nil)
		f.module = moduleOf(t, "1.0.0")
		_, err := f.find(t.Context())
		if err == nil || !strings.Contains(err.Error(), "1.0.0") {
			t.Errorf("got %v", err)
		}
		checkNothingLeft(t, f)
	})
	t.Run("an interrupt ends the build", func(t *testing.T) {
		f, _ := setup(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.find(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		checkNothingLeft(t, f)
	})
}

func checkNothingLeft(t *testing.T, f finder) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(cached(f)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			t.Errorf("the cache folder still has %s", e.Name())
		}
	}
}

func TestConcurrentCallsBuildOnce(t *testing.T) {
	f, _ := setup(t, nil)
	var group sync.WaitGroup
	logs := make([]bytes.Buffer, 3)
	for i := range logs {
		group.Go(func() {
			mine := f
			mine.log = &logs[i]
			if path, err := mine.find(t.Context()); err != nil || path != cached(f) {
				t.Errorf("found %s, error %v", path, err)
			}
		})
	}
	group.Wait()
	built := 0
	for i := range logs {
		built += strings.Count(logs[i].String(), "built OpenTofu")
	}
	if built != 1 {
		t.Errorf("built %d times, want once", built)
	}
}

// A build and a download must give the same version.
func TestPinnedVersionMatchesTheModule(t *testing.T) {
	content, err := os.ReadFile("../opentofu/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "github.com/opentofu/opentofu" {
			if r.Mod.Version != "v"+pinnedVersion {
				t.Errorf("the module pins %s, but pinnedVersion is %s", r.Mod.Version, pinnedVersion)
			}
			return
		}
	}
	t.Error("the module does not require OpenTofu")
}
