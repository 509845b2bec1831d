package build

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
)

const basePassword = "5ecret-of-the-registry"

// fetchBases fetches the base images of the Dockerfile with the login for the host.
func fetchBases(t *testing.T, host, password, dockerfile string, platforms ...string) (imagebuild.Bases, string, error) {
	t.Helper()
	source, log := t.TempDir(), &bytes.Buffer{}
	if err := os.WriteFile(filepath.Join(source, "Dockerfile"), []byte(dockerfile), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := plugin.Spec{Build: &events.Build{Logins: map[string]string{host: "LOGIN"}, Image: &events.ImageBuild{Dockerfile: "Dockerfile", Platforms: platforms, Args: map[string]string{"HOST": host}}}}
	bases, err := New(Config{}).bases(t.Context(), spec, plugin.Env{Workspace: t.TempDir(), Log: log, Environ: map[string]string{"LOGIN": "reader:" + password}}, source)
	return bases, log.String(), err
}

// The step fetches each image of a registry with a login, for the platforms of the build only, and no image of another
// registry. Nothing that it stores has the login.
func TestStepFetchesPrivateBaseImages(t *testing.T) {
	r, other := imagebuildtest.NewPrivate(t, "reader", basePassword), imagebuildtest.NewPrivate(t, "", "")
	login := &authn.Basic{Username: "reader", Password: basePassword}
	byDigest := imagebuildtest.Base(t, r.Host+"/base", login, "linux/amd64", "linux/arm64", "linux/s390x")
	ref, err := name.NewDigest(byDigest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref, remote.WithAuth(login))
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest(t, index, "linux/arm64"))
	if err != nil {
		t.Fatal(err)
	}
	for tag, push := range map[string]func(name.Tag) error{"1": func(n name.Tag) error { return remote.WriteIndex(n, index, remote.WithAuth(login)) },
		"latest": func(n name.Tag) error { return remote.Write(n, img, remote.WithAuth(login)) }} {
		if err := push(ref.Context().Tag(tag)); err != nil {
			t.Fatal(err)
		}
	}
	bases, log, err := fetchBases(t, r.Host, basePassword, "ARG HOST\nFROM $HOST/base:1 AS a\nCOPY --from="+byDigest+" / /\nRUN --mount=from="+r.Host+"/base,target=/t x\nFROM "+other.Host+"/base\nCOPY --from=a / /\n", "linux/arm64")
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	single, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for image, digest := range map[string]string{r.Host + "/base:1": ref.DigestStr(), byDigest: ref.DigestStr(), r.Host + "/base": single.String()} {
		if bases.Digests[image] != digest {
			t.Errorf("the image %s has the digest %q, want %s", image, bases.Digests[image], digest)
		}
	}
	if len(bases.Digests) != 3 {
		t.Errorf("the images are %q", bases.Digests)
	}
	if got := other.Refused(); len(got) > 0 {
		t.Errorf("the step asked the registry without a login: %q", got)
	}
	if blob(bases.Layout, manifest(t, index, "linux/s390x")) || !blob(bases.Layout, manifest(t, index, "linux/arm64")) {
		t.Error("the layout has other platforms than those of the build")
	}
	err = fs.WalkDir(os.DirFS(bases.Layout), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(bases.Layout, path))
		if bytes.Contains(content, []byte(basePassword)) {
			t.Errorf("%s has the login", path)
		}
		return err
	})
	if err != nil || strings.Contains(log, basePassword) || !strings.Contains(log, "with the login for "+r.Host+": sha256:") {
		t.Errorf("%v\n%s", err, log)
	}
	if got := r.Refused(); slices.ContainsFunc(got, func(header string) bool { return header != "" }) {
		t.Errorf("the registry refused the login: %q", got)
	}

	// A build that names no platform, or that runs a stage on its machine, gets the images of both kinds of machines.
	for _, dockerfile := range []string{"FROM " + byDigest + "\n", "FROM --platform=$BUILDPLATFORM " + byDigest + "\n"} {
		bases, log, err := fetchBases(t, r.Host, basePassword, dockerfile)
		if err != nil || !blob(bases.Layout, manifest(t, index, "linux/amd64")) || !blob(bases.Layout, manifest(t, index, "linux/arm64")) {
			t.Errorf("%s: %v\n%s", dockerfile, err, log)
		}
	}
}

// manifest returns the digest of the image of a platform.
func manifest(t *testing.T, index v1.ImageIndex, platform string) v1.Hash {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Manifests[slices.IndexFunc(m.Manifests, func(d v1.Descriptor) bool { return d.Platform.String() == platform })].Digest
}

func blob(layout string, digest v1.Hash) bool {
	_, err := os.Stat(filepath.Join(layout, "blobs", digest.Algorithm, digest.Hex))
	return err == nil
}

// pushManifest pushes an image whose only layer has this size in its manifest. The registry has no such layer.
func pushManifest(t *testing.T, host, image string, size int64) {
	t.Helper()
	body := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":"sha256:%064d","size":2},"layers":[{"mediaType":%q,"digest":"sha256:%064d","size":%d}]}`,
		types.OCIManifestSchema1, types.OCIConfigJSON, 1, types.OCILayer, 2, size)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+host+"/v2/"+image+"/manifests/1", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(types.OCIManifestSchema1))
	req.SetBasicAuth("reader", basePassword)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("the registry answers %s", resp.Status)
	}
}

// Each failure names the image and what to do, and has no part of the login.
func TestPrivateBaseImageThatIsNotFetched(t *testing.T) {
	r := imagebuildtest.NewPrivate(t, "reader", basePassword)
	for image, size := range map[string]int64{"huge": imagebuild.MaxBases, "endless": -1} {
		pushManifest(t, r.Host, image, size)
	}
	for name, tt := range map[string]struct {
		password, dockerfile string
		want                 fairlead.Reason
		says                 string
	}{
		"a login that is refused":     {"wrong-5ecret", "ARG HOST\nFROM $HOST/base:1\n", fairlead.ReasonSourceUnavailable, "whether the secret LOGIN of the build runner is a valid login for " + r.Host},
		"an image that is missing":    {basePassword, "ARG HOST\nFROM $HOST/none:1\n", fairlead.ReasonSourceUnavailable, "the base image " + r.Host + "/none:1 cannot be fetched"},
		"a Dockerfile without an end": {basePassword, "# " + strings.Repeat("x", maxDockerfile), fairlead.ReasonSourceInvalid, "more than 1 MiB"},
		"an image that is too large":  {basePassword, "ARG HOST\nFROM $HOST/huge:1\n", fairlead.ReasonSourceInvalid, "more than 2 GiB"},
		"a layer without a size":      {basePassword, "ARG HOST\nFROM $HOST/endless:1\n", fairlead.ReasonSourceInvalid, "-1 bytes as the size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, log, err := fetchBases(t, r.Host, tt.password, tt.dockerfile, "linux/arm64")
			if plugin.ReasonOf(err) != tt.want || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error()+log, "5ecret") {
				t.Errorf("%v (%s)\n%s", err, plugin.ReasonOf(err), log)
			}
		})
	}
	// The image builder reports what is no image.
	bases, log, err := fetchBases(t, r.Host, basePassword, "FROM ::no/name\nFROM ${X/a/b}\n")
	if err != nil || len(bases.Digests) > 0 || !strings.Contains(log, "line 2 of the Dockerfile has ${X/a/b}") {
		t.Errorf("%v, %v\n%s", bases, err, log)
	}
}
