// Package imagebuildtest is the conformance suite of image builders.
package imagebuildtest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// Subject is an image builder under test. It runs the programs of a Dockerfile on this machine, without a network.
type Subject struct {
	// New returns the builder of a job whose step's environment has these variables, besides those that the builder itself
	// needs. Builders of several jobs exist at the same time.
	New func(t *testing.T, environ []string) imagebuild.Builder

	// Platforms are two platforms for which the builder makes images without running a program.
	Platforms [2]string

	// Unreachable returns a builder whose server or service does not answer. nil: it has none.
	Unreachable func(t *testing.T) imagebuild.Builder
}

// limit bounds each build of a test. Only a failing test reaches it.
const limit = 2 * time.Minute

// Run runs the suite.
func (s Subject) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a layout comes out":                       s.layout,
		"args, target and Dockerfile arrive":       s.settings, // its name is in the paths: a comma in them does no harm
		"platforms arrive":                         s.platforms,
		"base images of the request are used":      s.bases,
		"each platform has an SBOM":                s.sboms,
		"a failing program gives reason and log":   s.fails,
		"a damaged Dockerfile gives reason, log":   s.damaged,
		"a cancel kills the build":                 s.cancel,
		"a build that is canceled does not begin":  s.canceledBefore,
		"no secret or login is in the build":       s.secrets,
		"builds at the same time do not mix":       s.together,
		"the context is as it was":                 s.context,
		"a server that does not answer has reason": s.unreachable,
	} {
		t.Run(name, test)
	}
}

// bench is the environment of one test.
type bench struct {
	t       *testing.T
	builder imagebuild.Builder
	log     *log
}

func (s Subject) bench(t *testing.T, environ ...string) *bench {
	t.Helper()
	return &bench{t: t, builder: s.New(t, environ), log: &log{}}
}

// Context returns a folder with the files, and with the static program probe. It is a context for a Request.
func Context(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(program.Build(t, "runner/plugin/build/imagebuild/imagebuildtest/probe"))
	if err != nil {
		t.Fatal(err)
	}
	program.Write(t, filepath.Join(dir, "probe"), content)
	return dir
}

// build builds an image with the log and the limit of the bench. It returns the layout.
func (b *bench) build(ctx context.Context, r imagebuild.Request) (string, error) {
	b.t.Helper()
	dir := b.t.TempDir()
	if r.Log == nil {
		r.Log = b.log
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := b.builder.Build(bounded, r, dir)
	if e, ok := errors.AsType[*plugin.Error](err); err != nil && ctx.Err() == nil && (!ok || e.Message == "") {
		b.t.Errorf("the error is no *plugin.Error with a message: %v", err)
	}
	return dir, err
}

// image builds an image of one platform.
func (b *bench) image(r imagebuild.Request) v1.Image {
	b.t.Helper()
	images := b.images(r)
	if len(images) != 1 {
		b.t.Fatalf("the layout has %d images, want 1", len(images))
	}
	return images[0]
}

// images builds an image and returns those of its platforms, in the order of the platforms' names.
func (b *bench) images(r imagebuild.Request) []v1.Image {
	b.t.Helper()
	dir, err := b.build(b.t.Context(), r)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.log)
	}
	return Images(b.t, dir)
}

// Images returns the images of the platforms in a layout, in the order of the platforms' names, without attestations. The
// layout must have one entry in index.json.
func Images(t *testing.T, dir string) (images []v1.Image) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index.json of the layout: %+v, %v; want one entry", m, err)
	}
	collect(t, top, m.Manifests[0], &images)
	slices.SortFunc(images, func(a, b v1.Image) int { return strings.Compare(platform(t, a), platform(t, b)) })
	return images
}

func collect(t *testing.T, in v1.ImageIndex, d v1.Descriptor, images *[]v1.Image) {
	t.Helper()
	if d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" {
		return
	}
	if !d.MediaType.IsIndex() {
		img, err := in.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		*images = append(*images, img)
		return
	}
	idx, err := in.ImageIndex(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		collect(t, idx, d, images)
	}
}

func config(t *testing.T, img v1.Image) *v1.ConfigFile {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func platform(t *testing.T, img v1.Image) string {
	t.Helper()
	return config(t, img).Platform().String()
}

// Files returns the contents of the image's files by path. A later layer wins; it ignores deletions.
func Files(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(content)
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeDir {
				continue
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out[strings.TrimPrefix(filepath.ToSlash(filepath.Clean(h.Name)), "/")] = string(text)
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

const copied = "FROM scratch\nCOPY probe /probe\n"

func (s Subject) layout(t *testing.T) {
	b := s.bench(t)
	img := b.image(imagebuild.Request{Context: Context(t, map[string]string{
		"Dockerfile":  copied + "COPY etc /etc\nRUN [\"/probe\", \"write\", \"/made\"]\nENTRYPOINT [\"/probe\"]\n",
		"etc/app.cfg": "content of the context\n",
	}), Dockerfile: "Dockerfile"})
	got := Files(t, img)
	if got["etc/app.cfg"] != "content of the context\n" || got["made"] != "written by the build" {
		t.Errorf("files of the image: %v", slices.Sorted(maps.Keys(got)))
	}
	if e := config(t, img).Config.Entrypoint; !slices.Equal(e, []string{"/probe"}) {
		t.Errorf("entrypoint %q", e)
	}
	if b.log.String() == "" {
		t.Error("the log of the build is empty")
	}
}

func (s Subject) settings(t *testing.T) {
	b := s.bench(t)
	text := "v1 = \"2\", 'x' $HOME"
	img := b.image(imagebuild.Request{Context: Context(t, map[string]string{
		"Dockerfile":             "FROM scratch\nLABEL stage=wrong-file\n",
		"deploy/Containerfile.x": copied + "FROM scratch AS first\nARG TEXT=default\nARG OTHER=default\nCOPY --from=0 /probe /p\nLABEL text=$TEXT other=$OTHER stage=first\nFROM first AS second\nLABEL stage=second\n",
	}), Dockerfile: "deploy/Containerfile.x", Target: "first", Args: map[string]string{"TEXT": text}})
	got := config(t, img).Config.Labels
	if got["text"] != text || got["other"] != "default" || got["stage"] != "first" {
		t.Errorf("labels %q", got)
	}
}

func (s Subject) platforms(t *testing.T) {
	b := s.bench(t)
	want := slices.Sorted(slices.Values(s.Platforms[:]))
	images := b.images(imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY Dockerfile /Dockerfile\n"}),
		Dockerfile: "Dockerfile", Platforms: want})
	var got []string
	for _, img := range images {
		got = append(got, platform(t, img))
	}
	if !slices.Equal(got, want) {
		t.Errorf("platforms %v, want %v", got, want)
	}
	images = b.images(imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY Dockerfile /Dockerfile\n"}),
		Dockerfile: "Dockerfile", Platforms: want[:1]})
	if len(images) != 1 || platform(t, images[0]) != want[0] {
		t.Errorf("%d images, want one for %s", len(images), want[0])
	}
}

// bases builds on images that no registry has. Their layout has the blobs of one of the two platforms.
func (s Subject) bases(t *testing.T) {
	b := s.bench(t)
	want := s.Platforms[0]
	index := baseIndex(t, []v1.Layer{fileLayer(t, "of-the-base", []byte("content of the base"))}, s.Platforms[:]...)
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	path, err := layout.Write(t.TempDir(), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(m.Manifests[slices.IndexFunc(m.Manifests, func(d v1.Descriptor) bool { return d.Platform.String() == want })].Digest)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := index.RawManifest()
	if err = errors.Join(err, path.WriteImage(img), path.WriteBlob(hash, io.NopCloser(bytes.NewReader(raw)))); err != nil {
		t.Fatal(err)
	}
	const host = "registry.invalid"
	byDigest := host + "/by-digest@" + hash.String()
	built := b.image(imagebuild.Request{Platforms: []string{want}, Dockerfile: "Dockerfile",
		Context: Context(t, map[string]string{"Dockerfile": "ARG TAG=1\nFROM " + host + "/base:$TAG\nCOPY --from=" + byDigest + " /of-the-base /first\nCOPY --from=" + host + "/latest /of-the-base /second\n"}),
		Bases:   imagebuild.Bases{Layout: string(path), Digests: map[string]string{host + "/base:1": hash.String(), byDigest: hash.String(), host + "/latest": hash.String()}}})
	if got := config(t, built).Config.Labels["base"]; got != "of-the-test" {
		t.Errorf("the image has the label %q of its base", got)
	}
	if files := Files(t, built); files["first"] != "content of the base" || files["second"] != "content of the base" || files["of-the-base"] == "" {
		t.Errorf("files of the image: %q", files)
	}
}

// sboms lets a generator in a registry of this machine write the SBOMs.
func (s Subject) sboms(t *testing.T) {
	web := httptest.NewServer(registry.New())
	t.Cleanup(web.Close)
	b := s.bench(t)
	want := slices.Sorted(slices.Values(s.Platforms[:]))
	dir, err := b.build(t.Context(), imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY page /srv/page\n", "page": "hello\n"}),
		Dockerfile: "Dockerfile", Platforms: want, Generator: Generator(t, strings.TrimPrefix(web.URL, "http://"))})
	if err != nil {
		t.Fatalf("%v\n%s", err, b.log)
	}
	img, err := imagebuild.Check(t.Context(), dir, want)
	if err != nil || len(img.SBOMs) != len(want) || len(img.WithoutSBOM()) > 0 {
		t.Fatalf("%+v, %v; want an SBOM for each platform", img, err)
	}
	for _, sbom := range img.SBOMs {
		text, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(sbom.Digest, "sha256:")))
		if err != nil || !bytes.Contains(text, []byte("https://spdx.dev/Document")) || !bytes.Contains(text, []byte("srv/page")) || int64(len(text)) != sbom.Size {
			t.Errorf("the SBOM of %s is %s, %v", sbom.Platform, text, err)
		}
	}
}

func (s Subject) fails(t *testing.T) {
	b := s.bench(t)
	_, err := b.build(t.Context(), imagebuild.Request{Context: Context(t, map[string]string{
		"Dockerfile": copied + "RUN [\"/probe\", \"fail\", \"the reason of the failure\"]\n",
	}), Dockerfile: "Dockerfile"})
	if plugin.ReasonOf(err) != fairlead.ReasonBuildFailed {
		t.Errorf("%v (%s)", err, plugin.ReasonOf(err))
	}
	if !strings.Contains(b.log.String(), "the reason of the failure") {
		t.Errorf("the log lacks the program's output:\n%s", b.log)
	}
}

func (s Subject) damaged(t *testing.T) {
	for _, text := range []string{"FROM scratch\nNO SUCH INSTRUCTION\n", copied + "COPY missing /missing\n", ""} {
		b := s.bench(t)
		_, err := b.build(t.Context(), imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": text}), Dockerfile: "Dockerfile"})
		if plugin.ReasonOf(err) != fairlead.ReasonBuildFailed || b.log.String() == "" {
			t.Errorf("Dockerfile %q: %v (%s)\n%s", text, err, plugin.ReasonOf(err), b.log)
		}
	}
}

func (s Subject) cancel(t *testing.T) {
	b := s.bench(t)
	token := fmt.Sprintf("waiting-%d-%d", os.Getpid(), time.Now().UnixNano())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	r := imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": copied + "RUN [\"/probe\", \"wait\", \"" + token + "\"]\n"}), Dockerfile: "Dockerfile", Log: b.log}
	dir := t.TempDir()
	go func() { done <- b.builder.Build(ctx, r, dir) }()
	testserver.Until(t, "the program of the build runs", func() bool { return runs(t, token) || len(done) > 0 })
	if len(done) > 0 {
		t.Fatalf("the build ended: %v\n%s", <-done, b.log)
	}
	cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled build returns %v", err)
		}
	case <-timer.C:
		t.Fatalf("the canceled build does not return\n%s", b.log)
	}
	size := len(b.log.String())
	testserver.Until(t, "the program of the build is gone", func() bool { return !runs(t, token) })
	if len(b.log.String()) != size {
		t.Error("the builder wrote to the log after Build had returned")
	}
}

// runs reports whether the program probe of a build runs on this machine, with the token as its last argument.
func runs(t *testing.T, token string) bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.HasPrefix(text, []byte("/probe\x00")) && bytes.Contains(text, []byte(token)) // an error: it is gone
	})
}

func (s Subject) canceledBefore(t *testing.T) {
	b := s.bench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.build(ctx, imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": copied}), Dockerfile: "Dockerfile"}); !errors.Is(err, context.Canceled) {
		t.Errorf("it returns %v", err)
	}
}

// secrets builds with a step that has logins and secrets in its environment and in its home, and looks for them from a
// program of the build.
func (s Subject) secrets(t *testing.T) {
	const planted = "planted-5ecret"
	home := t.TempDir()
	login := `{"auths":{"registry.example.com":{"auth":"` + planted + `"}}}`
	for _, path := range []string{".docker/config.json", ".config/containers/auth.json", ".aws/credentials", ".netrc"} {
		path = filepath.Join(home, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(login), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	b := s.bench(t, "HOME="+home, "DOCKER_CONFIG="+filepath.Join(home, ".docker"), "DOCKER_AUTH_CONFIG="+login,
		"REGISTRY_AUTH_FILE="+filepath.Join(home, ".config/containers/auth.json"), "AWS_SECRET_ACCESS_KEY="+planted,
		"FAIRLEAD_REGISTRY_LOGIN=job:"+planted, "GIT_AUTH_TOKEN="+planted, "FAIRLEAD_SECRET="+planted)
	dir, err := b.build(t.Context(), imagebuild.Request{Context: Context(t, map[string]string{
		"Dockerfile": copied + "ARG DOCKER_AUTH_CONFIG\nARG GIT_AUTH_TOKEN\nARG FAIRLEAD_SECRET\n" +
			"RUN --mount=type=secret,id=GIT_AUTH_TOKEN --mount=type=secret,id=FAIRLEAD_SECRET,env=FAIRLEAD_SECRET [\"/probe\", \"look\", \"/found\"]\n",
	}), Dockerfile: "Dockerfile"})
	if err != nil {
		t.Fatalf("%v\n%s", err, b.log)
	}
	var found struct {
		Environ []string          `json:"environ"`
		Files   map[string]string `json:"files"`
	}
	text := Files(t, Images(t, dir)[0])["found"]
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Environ) == 0 {
		t.Errorf("the program found no environment: %+v", found)
	}
	for _, v := range found.Environ {
		if name, value, _ := strings.Cut(v, "="); value != "" && (strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "FAIRLEAD_")) || strings.Contains(v, planted) {
			t.Errorf("the program of the build has the variable %s", name)
		}
	}
	for path, content := range found.Files {
		if strings.Contains(content, planted) || strings.Contains(content, `"auths"`) {
			t.Errorf("the program of the build can read a login in %s", path)
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(planted)) {
			t.Errorf("the layout has the secret in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(b.log.String(), planted) {
		t.Error("the log has the secret")
	}
}

func (s Subject) together(t *testing.T) {
	const n = 3
	layouts := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		dir, out, lines := Context(t, map[string]string{"Dockerfile": "FROM scratch\nARG N\nCOPY n /n\nLABEL n=$N\n", "n": fmt.Sprint(i)}), t.TempDir(), &log{}
		builder := s.New(t, nil)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := builder.Build(ctx, imagebuild.Request{Context: dir, Dockerfile: "Dockerfile", Args: map[string]string{"N": fmt.Sprint(i)}, Log: lines}, out); err != nil {
				t.Errorf("%v\n%s", err, lines)
				return
			}
			layouts[i] = out
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, out := range layouts {
		img := Images(t, out)[0]
		if got := config(t, img).Config.Labels["n"]; got != fmt.Sprint(i) || Files(t, img)["n"] != fmt.Sprint(i) {
			t.Errorf("build %d has the label %q and the files %q", i, got, Files(t, img))
		}
	}
}

func (s Subject) context(t *testing.T) {
	b := s.bench(t)
	dir := Context(t, map[string]string{"Dockerfile": copied + "COPY a /a\n", "a": "1", ".dockerignore": "b\n", "b": "2"})
	before := listed(t, dir)
	got := Files(t, b.image(imagebuild.Request{Context: dir, Dockerfile: "Dockerfile"}))
	if after := listed(t, dir); !maps.Equal(before, after) {
		t.Errorf("the build changed the context: %v, before: %v", after, before)
	}
	if got["a"] != "1" {
		t.Errorf("files of the image: %v", slices.Sorted(maps.Keys(got)))
	}
}

// listed returns the mode and the time of each file.
func listed(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		out[path] = fmt.Sprint(info.Mode(), info.ModTime(), info.Size())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s Subject) unreachable(t *testing.T) {
	if s.Unreachable == nil {
		return
	}
	b := &bench{t: t, builder: s.Unreachable(t), log: &log{}}
	_, err := b.build(t.Context(), imagebuild.Request{Context: Context(t, map[string]string{"Dockerfile": copied}), Dockerfile: "Dockerfile"})
	if plugin.ReasonOf(err) != fairlead.ReasonBuilderUnavailable {
		t.Errorf("%v (%s)\n%s", err, plugin.ReasonOf(err), b.log)
	}
}

// log is the log of a build. Safe for concurrent use, so that a test reports a Builder that writes too late and does not
// race with it.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
