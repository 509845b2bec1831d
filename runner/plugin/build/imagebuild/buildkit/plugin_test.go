package buildkit_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/tools/gitserver"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// host is the plugin of builds with a real BuildKit, a registry for images, and a git server.
type host struct {
	root      string         // of the repositories
	git       string         // URL
	registry  string         // host and port
	address   string         // of BuildKit; "": none is configured
	generator string         // image of the generator of SBOMs
	control   *client.Client // of a control plane that builds no images
	secrets   map[string]string
}

func newHost(t *testing.T) *host {
	t.Helper()
	address, bin := server.Host(t)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	h := &host{root: t.TempDir(), address: address}
	repositories, err := gitserver.Handler(h.root, "")
	if err != nil {
		t.Fatal(err)
	}
	git, images := httptest.NewServer(repositories), httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"type":"urn:fairlead:problem:no-image-builds","status":404}`)
	}))
	t.Cleanup(control.Close)
	if h.control, err = client.New(control.URL, "", client.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(git.Close)
	t.Cleanup(images.Close)
	h.git, h.registry = git.URL, strings.TrimPrefix(images.URL, "http://")
	h.generator = imagebuildtest.Generator(t, h.registry)
	return h
}

func (h *host) Operations() []string { return build.New(build.Config{}).Operations() }

func (h *host) Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error) {
	env.Push = func(context.Context, string, *artifact.Artifact) (string, error) {
		return "", plugin.Errorf(fairlead.ReasonInternal, "an image is no packed folder")
	}
	env.PushImage = func(ctx context.Context, repository, layout, digest string, statements []artifact.Statement) error {
		if err := artifact.PushImage(ctx, h.registry+"/"+repository, artifact.Access{}, layout, digest); err != nil {
			return err
		}
		return artifact.Attach(ctx, h.registry+"/"+repository, artifact.Access{}, digest, statements...)
	}
	env.Control, env.Environ = h.control, h.secrets
	spec.Env = map[string]string{"BUILDKIT_HOST": h.address, "SBOM_GENERATOR": h.generator}
	return build.New(build.Config{Environ: os.Environ()}).Run(ctx, spec, env)
}

// spec returns the spec of a build of the packed folder "sha256:folder".
func (h *host) spec(change ...func(*plugin.Spec)) plugin.Spec {
	s := plugin.Spec{Plugin: build.Name, Operation: "build", Job: "job_1", Epoch: 1, Grace: 1, Push: "images/o/app_1/web", Artifact: &events.ArtifactRef{Repository: "orgs/o/shop/web", Digest: "sha256:folder"},
		Vars: map[string]events.SpecVar{"TOKEN": {Value: json.RawMessage(`"planted-5ecret"`), Sensitive: true}},
		Build: &events.Build{App: "shop", Component: "web", Type: "docker-build", Source: ".", From: events.Origin{Kind: events.OriginFolder, Ref: "sha256:folder"},
			Image: &events.ImageBuild{Dockerfile: "Dockerfile"}}}
	for _, c := range change {
		c(&s)
	}
	return s
}

func (h *host) fromGit(repository string) func(*plugin.Spec) {
	return func(s *plugin.Spec) {
		s.Artifact, s.Build.From = nil, events.Origin{Kind: events.OriginGit, URL: h.git + "/" + repository, Ref: "main"}
	}
}

func (h *host) run(t *testing.T, files map[string]string, change ...func(*plugin.Spec)) (plugin.Result, string, error) {
	t.Helper()
	spec, log := h.spec(change...), plugintest.NewLog()
	res, err := h.Run(t.Context(), spec, plugintest.Env(t, t.TempDir(), "job_1-1", log, map[string]map[string]string{"sha256:folder": files}, spec))
	return res, log.String(), err
}

// pulled returns the pushed image, which has one platform.
func (h *host) pulled(t *testing.T, digest string) v1.Image {
	t.Helper()
	index, err := remote.Index(h.ref(t, "images/o/app_1/web@"+digest))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Fatalf("the index is %+v, %v; want an image and an attestation", m, err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func (h *host) ref(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(h.registry + "/" + text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func probe(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(program.Build(t, "runner/plugin/build/imagebuild/imagebuildtest/probe"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

const withProbe = "FROM scratch\nCOPY --chmod=0755 probe /probe\n"

func TestPluginOfBuildsWithAnImageBuilder(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	h := newHost(t)
	waits := func(d string) func(*plugin.Spec) {
		return func(s *plugin.Spec) { s.Artifact.Digest, s.Build.From.Ref = d, d }
	}
	plugintest.Run(t, plugintest.Subject{
		New:  func(string) plugin.Plugin { return h },
		Good: func(int) plugin.Spec { return h.spec() },
		Slow: func(*testing.T, string) plugin.Spec { return h.spec(waits("sha256:slow")) }, // probe ignores the interrupt
		Sources: map[string]map[string]string{
			"sha256:folder": {"Dockerfile": "FROM scratch\nCOPY Dockerfile /\n"},
			"sha256:slow":   {"Dockerfile": withProbe + "RUN [\"/probe\", \"wait\", \"for-the-cancel\"]\n", "probe": probe(t)},
		},
	})
}

func TestImageOfAFolderAndOfGit(t *testing.T) {
	h := newHost(t)
	files := map[string]string{"Dockerfile": "FROM scratch\nARG GREETING\nLABEL greeting=$GREETING\nCOPY . /\n", "page": "hello\n"}
	args := func(s *plugin.Spec) { s.Build.Image.Args = map[string]string{"GREETING": "hi"} }
	res, log, err := h.run(t, files, args)
	if err != nil || res.Built.Revision != "sha256:folder" {
		t.Fatalf("%+v, %v\n%s", res.Built, err, log)
	}
	config, err := h.pulled(t, res.Built.Artifact).ConfigFile()
	if err != nil || config.Config.Labels["greeting"] != "hi" {
		t.Errorf("%+v, %v", config, err)
	}

	r, err := gitserver.New(filepath.Join(h.root, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	commit, err := r.Commit(map[string]string{"web/Dockerfile": files["Dockerfile"], "web/page": files["page"], "other": "not in the build context"})
	if err != nil {
		t.Fatal(err)
	}
	res, log, err = h.run(t, nil, args, h.fromGit("shop"), func(s *plugin.Spec) { s.Build.Source = "web" })
	if err != nil || res.Built.Revision != commit {
		t.Fatalf("%+v, %v; want commit %s\n%s", res.Built, err, commit, log)
	}
	if got := contents(t, h.pulled(t, res.Built.Artifact)); len(got) != 2 || got["page"] != "hello\n" {
		t.Errorf("files of the image: %q", got)
	}
	// The whole repository is the build context, without git's own files.
	if _, err := r.Commit(map[string]string{"Dockerfile": files["Dockerfile"]}); err != nil {
		t.Fatal(err)
	}
	res, log, err = h.run(t, nil, args, h.fromGit("shop"))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for path := range contents(t, h.pulled(t, res.Built.Artifact)) {
		if strings.HasPrefix(path, ".git/") {
			t.Errorf("the image has git's own file %s", path)
		}
	}
}

// A link in a repository that leads to a file of the build runner gives that file to no image.
func TestLinkOfARepositoryReadsNoFileOfTheRunner(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	h := newHost(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("planted-5ecret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ link, to, dockerfile string }{
		"a file of the context":   {"web/secret", secret, "FROM scratch\nCOPY * /\n"},
		"a folder of the context": {"web/folder", filepath.Dir(secret), "FROM scratch\nCOPY folder/secret /\n"},
		"the Dockerfile":          {"web/Dockerfile", secret, ""},
		"the context":             {"web", filepath.Dir(secret), ""},
	} {
		t.Run(name, func(t *testing.T) {
			repository := strings.ReplaceAll(name, " ", "-")
			r, err := gitserver.New(filepath.Join(h.root, repository))
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"other": ""}
			if tc.dockerfile != "" {
				files["web/Dockerfile"] = tc.dockerfile
			}
			if _, err := r.Commit(files); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(h.root, repository, filepath.FromSlash(tc.link))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(tc.to, path); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Commit(nil); err != nil {
				t.Fatal(err)
			}
			res, log, err := h.run(t, nil, h.fromGit(repository), func(s *plugin.Spec) { s.Build.Source = "web" })
			if err != nil {
				if reason := plugin.ReasonOf(err); reason != fairlead.ReasonBuildFailed && reason != fairlead.ReasonSourceInvalid || strings.Contains(log+err.Error(), "planted") {
					t.Errorf("%v (%s)\n%s", err, reason, log)
				}
				return
			}
			for path, content := range contents(t, h.pulled(t, res.Built.Artifact)) {
				if strings.Contains(content, "planted") {
					t.Errorf("the image has the file of the runner as %s", path)
				}
			}
		})
	}
}

func TestWhatABuildOfAnImageRefuses(t *testing.T) {
	h := newHost(t)
	none, silent, gone := *h, *h, *h
	none.address, silent.generator, gone.generator = "", imagebuildtest.Silent(t, h.registry), "127.0.0.1:1/no/generator:1"
	good := map[string]string{"Dockerfile": "FROM scratch\nCOPY Dockerfile /\n"}
	for name, tc := range map[string]struct {
		h      *host
		files  map[string]string
		change func(*plugin.Spec)
		want   fairlead.Reason
		says   string
	}{
		"no image builder":           {&none, good, nil, fairlead.ReasonBuilderMissing, "set BUILDKIT_HOST"},
		"no Dockerfile":              {h, map[string]string{"page": ""}, nil, fairlead.ReasonSourceInvalid, `holds no file "Dockerfile"`},
		"another packed folder":      {h, good, func(s *plugin.Spec) { s.Artifact.Digest = "sha256:other" }, fairlead.ReasonSpecInvalid, "another one"},
		"no packed folder":           {h, good, func(s *plugin.Spec) { s.Artifact = nil }, fairlead.ReasonSpecInvalid, "names no packed folder"},
		"a source of another kind":   {h, good, func(s *plugin.Spec) { s.Build.From.Kind = events.OriginChart }, fairlead.ReasonSpecInvalid, "update it"},
		"an image of another server": {h, map[string]string{"Dockerfile": "FROM 127.0.0.1:1/no/image:1\n"}, nil, fairlead.ReasonBuildFailed, "127.0.0.1:1"},
		"a generator that is none":   {&silent, good, nil, fairlead.ReasonImageInvalid, "no SBOM for linux/"},
		"a generator that is gone":   {&gone, good, nil, fairlead.ReasonBuildFailed, "127.0.0.1:1"},
		"a stage that is not there":  {h, good, func(s *plugin.Spec) { s.Build.Image.Target = "small" }, fairlead.ReasonBuildFailed, "small"},
	} {
		t.Run(name, func(t *testing.T) {
			change := tc.change
			if change == nil {
				change = func(*plugin.Spec) {}
			}
			res, log, err := tc.h.run(t, tc.files, change)
			if plugin.ReasonOf(err) != tc.want || !strings.Contains(err.Error(), tc.says) || res.Built != nil {
				t.Errorf("%+v, %v (%s)\n%s", res.Built, err, plugin.ReasonOf(err), log)
			}
		})
	}
}

// A login to the registry of a base image is for this registry alone. The programs of the Dockerfile, the log and the image do
// not have it, and no file of it remains.
func TestPrivateBaseImageNeedsTheLogin(t *testing.T) {
	const password = "5ecret-of-the-registry"
	h := newHost(t)
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var mu sync.Mutex
	var headers []string // Authorization of the requests to the registry that the login is not for
	guard := func(accepts bool) string {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, given, _ := r.BasicAuth(); !accepts || given != password {
				if !accepts {
					mu.Lock()
					headers = append(headers, r.Header.Get("Authorization"))
					mu.Unlock()
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			behind.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		return strings.TrimPrefix(web.URL, "http://")
	}
	private, other := guard(true), guard(false)
	base := imagebuildtest.Base(t, private+"/base", &authn.Basic{Username: "reader", Password: password}, "linux/"+runtime.GOARCH)
	files := func(host string) map[string]string {
		return map[string]string{"Dockerfile": "FROM " + strings.Replace(base, private, host, 1) + "\nUSER 0\nCOPY --chmod=0755 probe /probe\nRUN [\"/probe\", \"look\", \"/found\"]\n", "probe": probe(t)}
	}
	h.secrets = map[string]string{"LOGIN": "reader:" + password}
	login := func(s *plugin.Spec) { s.Build.Logins = map[string]string{private: "LOGIN"} }
	// BuildKit keeps an image that it has fetched, and gives it to later builds also without a login.
	for name, run := range map[string]struct {
		host   string
		change func(*plugin.Spec)
	}{"no login": {private, func(*plugin.Spec) {}}, "the login of another registry": {other, login}} {
		if res, text, err := h.run(t, files(run.host), run.change); plugin.ReasonOf(err) != fairlead.ReasonBuildFailed || res.Built != nil || strings.Contains(err.Error()+text, password) {
			t.Errorf("%s: %+v, %v\n%s", name, res.Built, err, text)
		}
	}
	res, text, err := h.run(t, files(private), login)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	pulled := h.pulled(t, res.Built.Artifact)
	if config, err := pulled.ConfigFile(); err != nil || config.Config.Labels["base"] != "of-the-test" {
		t.Errorf("%+v, %v", config, err)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("reader:" + password))
	found := contents(t, pulled)["found"]
	if found == "" || strings.Contains(found, password) || strings.Contains(found, encoded) || strings.Contains(text, password) || strings.Contains(text, encoded) {
		t.Errorf("the program of the Dockerfile or the log has the login: %s\n%s", found, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(headers) == 0 || slices.ContainsFunc(headers, func(v string) bool { return v != "" }) {
		t.Errorf("the other registry got the headers %q", headers)
	}
}

// Each image has an SBOM, as an attestation in its index and as a referrer of the index. The content is the same.
func TestImageHasTheSBOMOfTheGenerator(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	h := newHost(t)
	res, log, err := h.run(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY page /srv/page\n", "page": "hello\n"},
		func(s *plugin.Spec) { s.Build.Image.Platforms = []string{"linux/amd64", "linux/arm64"} })
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	ref := h.ref(t, "images/o/app_1/web@"+res.Built.Artifact)
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 4 {
		t.Fatalf("the index is %+v, %v; want two images and two attestations", m, err)
	}
	inside := map[string]bool{} // digests of the statements in the index
	for _, d := range m.Manifests[2:] {
		sbom, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		text := statement(t, sbom)
		if !strings.Contains(text, "https://spdx.dev/Document") || !strings.Contains(text, "srv/page") {
			t.Errorf("the attestation is %s", text)
		}
		layers, err := sbom.Layers()
		if err != nil {
			t.Fatal(err)
		}
		hash, err := layers[0].Digest()
		if err != nil {
			t.Fatal(err)
		}
		inside[hash.String()] = true
	}
	found, err := remote.Referrers(ref.Context().Digest(res.Built.Artifact))
	if err != nil {
		t.Fatal(err)
	}
	list, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range list.Manifests {
		own, err := remote.Image(ref.Context().Digest(d.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := own.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.ArtifactType != artifact.StatementType || !inside[manifest.Layers[0].Digest.String()] || manifest.Annotations["in-toto.io/predicate-type"] != "https://spdx.dev/Document" {
			t.Errorf("the referrer is %+v", manifest)
		}
		platforms = append(platforms, manifest.Annotations["fairlead.platform"])
	}
	slices.Sort(platforms)
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("the image has SBOMs for %q as referrers", platforms)
	}
}

// statement returns the only layer.
func statement(t *testing.T, img v1.Image) string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func contents(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	return imagebuildtest.Files(t, img)
}
