package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/fairlead/fairlead/infra/images/internal/image"
)

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// programs builds the runner for arch. Text files replace OpenTofu and the plugin: the tests
// only need files there.
func programs(t *testing.T, arch string) image.Programs {
	t.Helper()
	dir := t.TempDir()
	p := image.Programs{Runner: filepath.Join(dir, "runner"), Tofu: filepath.Join(dir, "tofu"), Kubernetes: filepath.Join(dir, "kubernetes"), Images: filepath.Join(dir, "images")}
	if err := image.BuildRunner(t.Context(), arch, "v1.2.3", p.Runner); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{p.Tofu, p.Kubernetes, p.Images} {
		if err := os.WriteFile(file, []byte(filepath.Base(file)+" for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// The image fits a customer's task: for arm64, not root, static, with its own folders.
// It can be pushed, and each build gives the same image.
func TestRunnerImage(t *testing.T) {
	arch, machine := "arm64", elf.EM_AARCH64
	if testing.Short() && runtime.GOARCH == "amd64" { // other tests compile these packages too
		arch, machine = "amd64", elf.EM_X86_64
	}
	built := programs(t, arch)
	img := must(image.Build(image.Runner(arch, built, "v1.2.3")))(t)
	digest := must(img.Digest())(t)

	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer srv.Close()
	ref := must(name.NewDigest(strings.TrimPrefix(srv.URL, "http://") + "/fairlead/runner@" + digest.String()))(t)
	if err := remote.Write(ref, img, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	pulled := must(remote.Image(ref, remote.WithContext(t.Context())))(t)
	if got := must(pulled.Digest())(t); got != digest {
		t.Errorf("pulled %s, pushed %s", got, digest)
	}
	if err := validate.Image(pulled); err != nil { // digests and sizes match the bytes
		t.Error(err)
	}
	c := must(pulled.ConfigFile())(t)
	switch {
	case c.Architecture != arch || c.OS != "linux":
		t.Errorf("the image is for %s/%s", c.OS, c.Architecture)
	case c.Config.User != "65532:65532":
		t.Errorf("the image's user is %q", c.Config.User)
	case !slices.Equal(c.Config.Entrypoint, []string{"/usr/local/bin/fairlead-runner"}) || len(c.Config.Cmd) > 0:
		t.Errorf("the image starts %q %q", c.Config.Entrypoint, c.Config.Cmd)
	case !c.Created.IsZero() && c.Created.Unix() != 0:
		t.Errorf("the image was created at %s", c.Created)
	}
	for _, v := range []string{"/var/lib/fairlead-runner", "/tmp", "/.fairlead"} {
		if _, ok := c.Config.Volumes[v]; !ok {
			t.Errorf("%s is not a volume: root would own what ECS mounts there", v)
		}
	}
	if n := len(must(pulled.Layers())(t)); n != 5 {
		t.Errorf("the image has %d layers", n)
	}

	files := contents(t, pulled)
	for path, want := range map[string]struct {
		mode  int64
		owner int
	}{
		"usr/local/bin/fairlead-runner":     {0o751, 0}, // readable for root and for the group of copying containers only; TestToolFindsOnlyItsOwnCredentials: other jobs' tools cannot read a step that starts
		"usr/local/bin/tofu":                {0o755, 0},
		"usr/local/bin/plugins/kubernetes":  {0o755, 0},
		"usr/local/bin/plugins/images":      {0o755, 0},
		"etc/ssl/certs/ca-certificates.crt": {0o644, 0},
		"etc/passwd":                        {0o644, 0},
		"var/lib/fairlead-runner/":          {0o700, image.UID},
		"tmp/":                              {0o700, image.UID},
		".fairlead/":                        {0o700, image.UID},
	} {
		f, ok := files[path]
		group := want.owner
		if path == "usr/local/bin/fairlead-runner" {
			group = image.CopyGID
		}
		if !ok || f.header.Mode != want.mode || f.header.Uid != want.owner || f.header.Gid != group || f.header.ModTime.Unix() != 0 {
			t.Errorf("%s is %+v", path, f.header)
		}
	}
	for path, f := range files {
		if f.header.Mode&0o6002 != 0 || f.header.Typeflag != tar.TypeReg && f.header.Typeflag != tar.TypeDir {
			t.Errorf("%s has the mode %o and the type %c", path, f.header.Mode, f.header.Typeflag)
		}
		if strings.HasPrefix(path, "bin/") || strings.HasSuffix(path, "/sh") {
			t.Errorf("the image has a shell: %s", path)
		}
	}
	program := must(elf.NewFile(bytes.NewReader(files["usr/local/bin/fairlead-runner"].data)))(t)
	if program.Machine != machine {
		t.Errorf("the runner is for %s", program.Machine)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the runner is not static")
		}
	}
	if libs, err := program.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the runner needs %q, %v", libs, err)
	}

	// A second build, in another folder and later, gives the same image.
	built = programs(t, arch)
	if again := must(must(image.Build(image.Runner(arch, built, "v1.2.3")))(t).Digest())(t); again != digest {
		t.Errorf("the second build is %s, the first %s", again, digest)
	}
	if err := os.WriteFile(built.Tofu, []byte("another OpenTofu"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other := must(must(image.Build(image.Runner(arch, built, "v1.2.3")))(t).Digest())(t); other == digest {
		t.Error("with another OpenTofu, the image is the same")
	}
}

type file struct {
	header tar.Header
	data   []byte
}

// contents returns the files of an image as its container sees them.
func contents(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	files := map[string]file{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		path := h.Name
		if h.Typeflag == tar.TypeDir {
			path = strings.TrimSuffix(path, "/") + "/"
		}
		files[path] = file{*h, must(io.ReadAll(tr))(t)}
	}
}

// extract writes the image's files to a folder, which then is the root folder of its programs.
func extract(t *testing.T, img v1.Image) (root string) {
	t.Helper()
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only root on Linux can change the root folder, and this machine has no other way to run a container")
	}
	root = t.TempDir()
	for path, f := range contents(t, img) {
		to := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.header.Typeflag == tar.TypeSymlink {
			if err := os.Symlink(f.header.Linkname, to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if f.header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, os.FileMode(f.header.Mode))
		} else {
			err = os.WriteFile(to, f.data, os.FileMode(f.header.Mode))
		}
		if err = errors.Join(err, os.Chmod(to, os.FileMode(f.header.Mode)), os.Chown(to, f.header.Uid, f.header.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The programs run in the image: as the image's user, with only the image's files.
func TestRunnerRunsInTheImage(t *testing.T) {
	p := programs(t, runtime.GOARCH)
	p.Kubernetes, p.Images = filepath.Join(t.TempDir(), "kubernetes"), filepath.Join(t.TempDir(), "images")
	if err := errors.Join(image.BuildKubernetes(t.Context(), runtime.GOARCH, "v1.2.3", p.Kubernetes), image.BuildImages(t.Context(), runtime.GOARCH, "v1.2.3", p.Images)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(image.Check(p.Kubernetes, runtime.GOARCH), image.Check(p.Images, runtime.GOARCH)); err != nil {
		t.Error(err)
	}
	img := must(image.Build(image.Runner(runtime.GOARCH, p, "v1.2.3")))(t)
	root := extract(t, img)
	out, err := inside(t, root, img, image.RunnerPath, "version")
	if err != nil || strings.TrimSpace(out) != "v1.2.3" {
		t.Errorf("the runner prints %q, %v", out, err)
	}
	// Without a request on its standard input, a plugin reports that it has none.
	for layer, path := range map[int]string{2: image.PluginPath, 3: image.ImagesPath} {
		if out, err := inside(t, root, img, path); err == nil || !strings.Contains(out, `{"event":"failed","reason":"spec-malformed"`) {
			t.Errorf("%s prints %q, %v", path, out, err)
		}
		const most = 40 << 20 // a customer's task downloads the layer before its first job
		if size := must(must(img.Layers())(t)[layer].Size())(t); size > most {
			t.Errorf("the compressed layer of %s has %d bytes, want at most %d", path, size, most)
		} else {
			t.Logf("the compressed layer of %s has %d bytes", path, size)
		}
	}
}

// programFiles returns text files in place of the programs, which other tests run.
func programFiles(t *testing.T) image.Programs {
	t.Helper()
	dir := t.TempDir()
	files := image.Programs{Runner: filepath.Join(dir, "runner"), Tofu: filepath.Join(dir, "tofu"), Kubernetes: filepath.Join(dir, "kubernetes"), Images: filepath.Join(dir, "images")}
	for _, file := range files.All() {
		if err := os.WriteFile(file, []byte("a program"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// The image with a shell has the commands that provisioners use, and a git that clones. All else is as in
// the image without: user, entry point, and what others may write.
func TestImageWithShellHasGit(t *testing.T) {
	if testing.Short() {
		t.Skip("THE IMAGE WITH A SHELL IS NOT BUILT: it downloads and unpacks 50 packages; make test-all builds it")
	}
	files := programFiles(t)
	cache := filepath.Join(must(os.UserCacheDir())(t), "fairlead", "debian")
	shell := must(image.Shell(t.Context(), runtime.GOARCH, cache))(t)
	bare := image.Runner(runtime.GOARCH, files, "v1.2.3")
	img := must(image.Build(image.WithShell(bare, shell)))(t)
	if c := must(img.ConfigFile())(t).Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, bare.Entrypoint) || len(c.Volumes) != 3 {
		t.Errorf("the image has the user %s, the entry point %q and the volumes %v", c.User, c.Entrypoint, c.Volumes)
	}
	for path, f := range contents(t, img) {
		if f.header.Mode&0o6000 != 0 || f.header.Mode&0o022 != 0 && f.header.Typeflag != tar.TypeSymlink {
			t.Errorf("%s has the mode %o", path, f.header.Mode)
		}
		if f.header.Uid != 0 && path != "tmp/" && path != "var/lib/fairlead-runner/" && path != ".fairlead/" {
			t.Errorf("%s belongs to the user %d", path, f.header.Uid)
		}
	}
	root := extract(t, img)
	makeDevices(t, root)
	out, err := inside(t, root, img, "/bin/sh", "-ec", `cd /tmp
git -c init.defaultBranch=main init -q module && cd module && echo 'output "a" { value = 1 }' >main.tf && git add .
git -c user.name=a -c user.email=a@example.com commit -qm first
git clone -q --depth 1 file:///tmp/module /tmp/copy
grep -q output /tmp/copy/main.tf && sed -n 1p /tmp/copy/main.tf | awk '{print $1}' | sort | tr a-z A-Z
find /tmp/copy -name main.tf | xargs cat >/dev/null && tar -cf /tmp/x.tar -C /tmp/copy main.tf && gzip /tmp/x.tar && bash -c 'ls /tmp/x.tar.gz'
git ls-remote https://127.0.0.1:1/module 2>&1 || true`)
	if err != nil || !strings.Contains(out, "OUTPUT\n/tmp/x.tar.gz\n") || !strings.Contains(out, "127.0.0.1 port 1") {
		t.Errorf("the commands print %q, %v", out, err)
	}
	if again := must(must(image.Build(image.WithShell(bare, must(image.Shell(t.Context(), runtime.GOARCH, cache))(t))))(t).Digest())(t); again != must(img.Digest())(t) {
		t.Error("a second build gives another image")
	}
}

// Each supported processor has the same packages, and each package is pinned by its digest.
func TestPackagesArePinned(t *testing.T) {
	names := map[string][]string{}
	for line := range strings.Lines(string(must(os.ReadFile("packages.txt"))(t))) {
		f := strings.Fields(line)
		if len(f) != 3 || len(f[2]) != 64 || !strings.HasSuffix(f[1], "_"+f[0]+".deb") {
			t.Errorf("the line %q pins no package", line)
			continue
		}
		name, _, _ := strings.Cut(filepath.Base(f[1]), "_")
		names[f[0]] = append(names[f[0]], name)
	}
	if len(names) != 2 || len(names["amd64"]) < 10 || !slices.Equal(names["amd64"], names["arm64"]) {
		t.Errorf("the packages are %q", names)
	}
}

// A package that a mirror has changed does not get into the image.
func TestChangedPackageIsRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is downloaded
	cache := t.TempDir()
	for line := range strings.Lines(string(must(os.ReadFile("packages.txt"))(t))) {
		if err := os.WriteFile(filepath.Join(cache, strings.Fields(line)[2]), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := image.Shell(ctx, "arm64", cache); err == nil || !strings.Contains(err.Error(), "bash") {
		t.Errorf("a changed package gives %v", err)
	}
}

func TestRootsAreCertificates(t *testing.T) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(image.Roots()) {
		t.Fatal("there is no root certificate")
	}
	if n := strings.Count(string(image.Roots()), "BEGIN CERTIFICATE"); n < 80 {
		t.Errorf("there are %d root certificates, want at least 80", n)
	}
}

// A missing program is an error, not an empty file in the image.
func TestMissingProgramIsAnError(t *testing.T) {
	if _, err := image.Build(image.Runner("arm64", image.Programs{Runner: "/nowhere/runner", Tofu: "/nowhere/tofu", Kubernetes: "/nowhere/kubernetes", Images: "/nowhere/images"}, "v1")); err == nil || !strings.Contains(err.Error(), "/nowhere/") {
		t.Errorf("got %v", err)
	}
}
