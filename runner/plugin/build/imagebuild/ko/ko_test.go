package ko_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/tools/kotool"
	"github.com/fairlead/fairlead/tools/shortrun"
)

var cache string // of the go command, for all builds of the tests

func TestMain(m *testing.M) {
	var err error
	if cache, err = os.MkdirTemp("", "fairlead-ko-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(cache); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// bench is the plugin of builds with ko, a proxy of Go modules, and a registry that has a base image behind a login.
type bench struct {
	t       *testing.T
	base    string // reference by digest
	modules string // URL
	sums    string // go.sum of a program that uses the module example.com/greeting

	mu      sync.Mutex
	headers []string // Authorization of the requests to the other registry
}

const password = "5ecret-of-the-registry"

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Setenv("PATH", kotool.Bin(t)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	b := &bench{t: t}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	b.base = imagebuildtest.Base(t, strings.TrimPrefix(web.URL, "http://")+"/static", &authn.Basic{Username: "reader", Password: password}, "linux/amd64", "linux/arm64")
	b.serveModule()
	return b
}

// serveModule serves the module example.com/greeting by the protocol of module proxies.
func (b *bench) serveModule() {
	b.t.Helper()
	const mod = "module example.com/greeting\n\ngo 1.26\n"
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, f := range [][2]string{{"go.mod", mod}, {"greeting.go", "package greeting\n\nconst Text = \"hello from a module\"\n"}} {
		out, err := w.Create("example.com/greeting@v1.0.0/" + f[0])
		if err == nil {
			_, err = io.WriteString(out, f[1])
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.t.TempDir(), "greeting.zip")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
	whole, err := dirhash.HashZip(path, dirhash.Hash1)
	if err != nil {
		b.t.Fatal(err)
	}
	file, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(mod)), nil })
	if err != nil {
		b.t.Fatal(err)
	}
	b.sums = "example.com/greeting v1.0.0 " + whole + "\nexample.com/greeting v1.0.0/go.mod " + file + "\n"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/example.com/greeting/@v/v1.0.0.") {
		case "info":
			fmt.Fprint(w, `{"Version":"v1.0.0"}`)
		case "mod":
			fmt.Fprint(w, mod)
		case "zip":
			_, _ = w.Write(archive.Bytes()) // the client may be gone
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	b.t.Cleanup(proxy.Close)
	b.modules = proxy.URL
}

// program returns the files of a program that prints the text of the module.
func (b *bench) program() map[string]string {
	return map[string]string{"go.mod": "module example.com/web\n\ngo 1.26\n\nrequire example.com/greeting v1.0.0\n", "go.sum": b.sums,
		"cmd/web/main.go": "package main\n\nimport \"example.com/greeting\"\n\nfunc main() { println(greeting.Text) }\n"}
}

// spec returns the spec of a build of the packed folder "sha256:folder".
func (b *bench) spec(change ...func(*plugin.Spec)) plugin.Spec {
	host, _, _ := strings.Cut(b.base, "/")
	s := plugin.Spec{Plugin: build.Name, Operation: "build", Job: "job_1", Epoch: 1, Grace: 1, Push: "images/o/app_1/web", Artifact: &events.ArtifactRef{Repository: "orgs/o/shop/web", Digest: "sha256:folder"},
		Env: map[string]string{"GOPROXY": b.modules, "GOSUMDB": "off", "GOCACHE": cache},
		Build: &events.Build{App: "shop", Component: "web", Type: "docker-build", Source: ".", From: events.Origin{Kind: events.OriginFolder, Ref: "sha256:folder"},
			Logins: map[string]string{host: "REGISTRY_LOGIN"}, Image: &events.ImageBuild{Go: &events.GoProgram{Package: "cmd/web", Base: b.base}}}}
	for _, c := range change {
		c(&s)
	}
	return s
}

// run builds, and returns the layout that was pushed.
func (b *bench) run(ctx context.Context, files map[string]string, change ...func(*plugin.Spec)) (digest, layout, text string, err error) {
	b.t.Helper()
	spec, out, workspace := b.spec(change...), plugintest.NewLog(), b.t.TempDir()
	env := plugintest.Env(b.t, workspace, "job_1-1", out, map[string]map[string]string{"sha256:folder": files}, spec)
	env.Environ = map[string]string{"REGISTRY_LOGIN": "reader:" + password}
	env.Push = func(context.Context, string, *artifact.Artifact) (string, error) {
		return "", errors.New("an image is no packed folder")
	}
	env.PushImage = func(_ context.Context, _, dir, digest string, statements []artifact.Statement) error {
		if layout = dir; len(statements) == 0 {
			b.t.Error("the image is pushed without an SBOM")
		}
		return nil
	}
	res, err := build.New(build.Config{Environ: os.Environ()}).Run(ctx, spec, env)
	if res.Built != nil {
		digest = res.Built.Artifact
	}
	if strings.Contains(out.String(), password) || err != nil && strings.Contains(err.Error(), password) {
		b.t.Errorf("the log or the error has the login: %v\n%s", err, out)
	}
	if _, serr := os.Stat(filepath.Join(workspace, "logins")); !os.IsNotExist(serr) {
		b.t.Errorf("the logins are still in the workspace: %v", serr)
	}
	return digest, layout, out.String(), err
}

func (b *bench) ok(files map[string]string, change ...func(*plugin.Spec)) (digest, layout string) {
	b.t.Helper()
	digest, layout, text, err := b.run(b.t.Context(), files, change...)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, text)
	}
	return digest, layout
}

func both(s *plugin.Spec) { s.Build.Image.Platforms = []string{"linux/amd64", "linux/arm64"} }

// A Go program becomes an image on a private base image, with an SBOM for each platform. The same files give the same digest in
// another folder and at another time.
func TestGoProgramBecomesAnImage(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	b := newBench(t)
	digest, layout := b.ok(b.program(), both)
	again, _ := b.ok(b.program(), both)
	if digest != again || digest == "" {
		t.Errorf("the digests are %s and %s", digest, again)
	}
	for _, img := range imagebuildtest.Images(t, layout) {
		config, err := img.ConfigFile()
		if err != nil || config.Config.Labels["base"] != "of-the-test" || config.Config.User != "65532" || !slices.Equal(config.Config.Entrypoint, []string{"/ko-app/web"}) {
			t.Errorf("%+v, %v", config, err)
		}
		if config.Architecture != runtime.GOARCH {
			continue
		}
		path := filepath.Join(t.TempDir(), "web")
		if err := os.WriteFile(path, []byte(imagebuildtest.Files(t, img)["ko-app/web"]), 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path).CombinedOutput(); err != nil || string(out) != "hello from a module\n" {
			t.Errorf("the program of the image writes %q, %v", out, err)
		}
	}
	checked, err := imagebuild.Check(t.Context(), layout, []string{"linux/amd64", "linux/arm64"})
	if err != nil || checked.Digest != digest || len(checked.SBOMs) != 2 {
		t.Fatalf("%+v, %v", checked, err)
	}
	for _, s := range checked.SBOMs {
		var statement struct {
			PredicateType string
			Subject       []struct{ Digest map[string]string }
			Predicate     struct {
				SPDXVersion string `json:"spdxVersion"`
				Packages    []struct{ Name string }
			}
		}
		text, err := os.ReadFile(filepath.Join(layout, "blobs", "sha256", strings.TrimPrefix(s.Digest, "sha256:")))
		if err == nil {
			err = json.Unmarshal(text, &statement)
		}
		if err != nil || statement.PredicateType != "https://spdx.dev/Document" || len(statement.Subject) != 1 || statement.Predicate.SPDXVersion == "" ||
			!strings.Contains(string(text), "example.com/greeting") {
			t.Errorf("the SBOM of %s is %s, %v", s.Platform, text, err)
		}
	}
}

// Another file, package, base image or platform is another image.
func TestOtherInputsAreAnotherImage(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	b := newBench(t)
	first, _ := b.ok(b.program())
	files := b.program()
	files["cmd/web/main.go"] = strings.Replace(files["cmd/web/main.go"], "greeting.Text", `greeting.Text, "!"`, 1)
	if other, _ := b.ok(files); other == first {
		t.Error("another file gives the same image")
	}
	if other, layout := b.ok(b.program(), func(s *plugin.Spec) { s.Build.Image.Platforms = []string{"linux/arm64"} }); other == first || len(imagebuildtest.Images(t, layout)) != 1 {
		t.Error("another platform gives the same image")
	}
}

// The source cannot make the go command run a program: not by ko's settings, not by a toolchain, and not by cgo.
func TestSourceRunsNoProgramOnTheRunner(t *testing.T) {
	shortrun.OneDayIn(t, 3, 2)
	b := newBench(t)
	marker := filepath.Join(t.TempDir(), "ran")
	files := b.program()
	files["evil.sh"] = "#!/bin/sh\ntouch " + marker + "\nexec \"$@\"\n"
	files[".ko.yaml"] = "defaultFlags: [-toolexec=sh evil.sh]\nbuilds:\n- id: web\n  main: ./cmd/web\n  flags: [-toolexec=sh evil.sh]\n  env: [CGO_ENABLED=1, CC=sh evil.sh, GOFLAGS=-toolexec=sh evil.sh]\n"
	files["cmd/web/.ko.yaml"] = files[".ko.yaml"]
	files["cmd/web/c.go"] = "package main\n\n// #include <stdlib.h>\nimport \"C\"\n"
	plain, _ := b.ok(b.program())
	if digest, _ := b.ok(files); digest != plain {
		t.Errorf("files that count for nothing change the image")
	}
	if _, err := os.Stat(marker); !os.IsNotExist(err) {
		t.Errorf("the source ran a program: %v", err)
	}
	files["go.mod"] = strings.Replace(files["go.mod"], "go 1.26", "go 1.26\n\ntoolchain go1.99.0", 1)
	if _, _, text, err := b.run(t.Context(), files); err != nil && plugin.ReasonOf(err) != fairlead.ReasonBuildFailed {
		t.Errorf("a toolchain: %v\n%s", err, text)
	}
}

func TestFailuresOfAGoBuildHaveAReason(t *testing.T) {
	b := newBench(t)
	change := func(f func(files map[string]string)) map[string]string {
		files := b.program()
		f(files)
		return files
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.headers = append(b.headers, r.Header.Get("Authorization"))
		b.mu.Unlock()
		w.Header().Set("WWW-Authenticate", `Basic realm="other"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	base := func(ref string) func(*plugin.Spec) {
		return func(s *plugin.Spec) { s.Build.Image.Go.Base = ref }
	}
	none := "@sha256:" + strings.Repeat("0", 64)
	host, _, _ := strings.Cut(b.base, "/")
	for name, tt := range map[string]struct {
		files  map[string]string
		change func(*plugin.Spec)
		want   fairlead.Reason
		says   string
	}{
		"the program does not compile": {change(func(f map[string]string) { f["cmd/web/main.go"] = "package main\n\nfunc main() { undefinedName() }\n" }), nil, fairlead.ReasonBuildFailed, "go build"},
		"no main package":              {change(func(f map[string]string) { f["cmd/web/main.go"] = "package web\n" }), nil, fairlead.ReasonBuildFailed, "cmd/web"},
		"another sum of a module":      {change(func(f map[string]string) { f["go.sum"] = strings.Replace(f["go.sum"], "h1:", "h1:A", 1) }), nil, fairlead.ReasonBuildFailed, ""},
		"no go.mod":                    {change(func(f map[string]string) { delete(f, "go.mod") }), nil, fairlead.ReasonSourceInvalid, `no file "go.mod"`},
		"no folder of the package":     {b.program(), func(s *plugin.Spec) { s.Build.Image.Go.Package = "cmd/api" }, fairlead.ReasonSourceInvalid, `no folder "cmd/api"`},
		"no such base image":           {b.program(), base(host + "/static" + none), fairlead.ReasonBuildFailed, "MANIFEST_UNKNOWN"},
		"no login":                     {b.program(), func(s *plugin.Spec) { s.Build.Logins = nil }, fairlead.ReasonBuildFailed, "401"},
		"the login of another host":    {b.program(), base(strings.TrimPrefix(other.URL, "http://") + "/static" + none), fairlead.ReasonBuildFailed, "401"},
		"a platform without a base":    {b.program(), func(s *plugin.Spec) { s.Build.Image.Platforms = []string{"linux/riscv64"} }, fairlead.ReasonBuildFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []func(*plugin.Spec){}
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			digest, _, text, err := b.run(t.Context(), tt.files, changes...)
			if plugin.ReasonOf(err) != tt.want || !strings.Contains(err.Error(), tt.says) || digest != "" {
				t.Errorf("%s, %v (%s), want %s with %q\n%s", digest, err, plugin.ReasonOf(err), tt.want, tt.says, text)
			}
		})
	}
	for _, h := range b.headers {
		if h != "" {
			t.Errorf("the other registry got the header %q", h)
		}
	}
	if len(b.headers) == 0 {
		t.Error("the other registry got no request")
	}
}

func TestMissingToolsAreNamed(t *testing.T) {
	b := newBench(t)
	bin := kotool.Bin(t)
	t.Setenv("PATH", bin)
	if _, _, _, err := b.run(t.Context(), b.program()); plugin.ReasonOf(err) != fairlead.ReasonToolMissing || !strings.Contains(err.Error(), "go is not on this runner") {
		t.Errorf("without Go: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, _, _, err := b.run(t.Context(), b.program()); plugin.ReasonOf(err) != fairlead.ReasonToolMissing || !strings.Contains(err.Error(), "ko is not on this runner") {
		t.Errorf("without ko: %v", err)
	}
}

// A cancelation ends the tool and the compiler.
func TestCancelationEndsTheTool(t *testing.T) {
	b := newBench(t)
	asked := make(chan struct{})
	var once sync.Once
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	}))
	defer slow.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		<-asked
		cancel()
	}()
	if _, _, text, err := b.run(ctx, b.program(), func(s *plugin.Spec) { s.Env["GOPROXY"] = slow.URL }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v\n%s", err, text)
	}
}
