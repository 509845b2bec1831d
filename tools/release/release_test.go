package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"debug/macho"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/sigstore/sigstore/pkg/signature"
	chart "helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/fairlead/fairlead/tools/shortrun"
)

// keyFile writes a private key and returns the path.
func keyFile(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "release.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func p256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func opened(t *testing.T, key any) *signer {
	t.Helper()
	s, err := openSigner(t.Context(), keyFile(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// small returns a release of the smallest program for this machine. A whole release takes minutes.
func small(t *testing.T) release {
	t.Helper()
	t.Chdir("../..")
	step := allBundles()[1].programs[1]
	if step.path != "fairlead-step" {
		t.Fatalf("the smallest program is %s", step.path)
	}
	return release{version: "v1.2.3", folder: t.TempDir(), archs: []string{runtime.GOARCH}, log: io.Discard, run: command,
		bundles: []bundle{{name: "fairlead-step", systems: []string{"linux"}, programs: []program{step}, files: []string{"LICENSE"}}}}
}

// contents returns the files of an archive by their paths.
func contents(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if !strings.HasSuffix(file, ".tar") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string][]byte{}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if got[h.Name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
}

// A person unpacks a release, starts its program, and verifies its files with sha256sum and openssl, without a program of ours.
func TestReleaseIsVerifiedWithUsualTools(t *testing.T) {
	r := small(t)
	r.signer = opened(t, p256(t))
	for _, build := range []func() error{
		func() error { return r.archive(t.Context(), r.bundles[0], platform{"linux", r.archs[0]}, t.TempDir()) },
		r.chart,
		func() error { return r.checksums(t.Context()) },
	} {
		if err := build(); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = r.folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	name := "fairlead-step_v1.2.3_linux_" + runtime.GOARCH
	in("tar", "xzf", name+".tar.gz")
	if got := in("./"+name+"/fairlead-step", "version"); got != "v1.2.3\n" {
		t.Errorf("the program of the archive is of version %q", got)
	}
	const verify = "base64 -d checksums.txt.sig | openssl dgst -sha256 -verify fairlead.pub -signature /dev/stdin checksums.txt"
	page, err := os.ReadFile("docs/operations/verify-a-release.md")
	if err != nil || !strings.Contains(string(page), verify) {
		t.Errorf("the page shows another command than %s: %v", verify, err)
	}
	if got := in("sh", "-c", verify); !strings.Contains(got, "Verified OK") {
		t.Errorf("openssl does not verify the list of checksums: %s", got)
	}
	got := in("sha256sum", "--check", "checksums.txt")
	for _, file := range []string{name + ".tar.gz", name + ".cdx.json", "fairlead-runner-1.2.3.tgz"} {
		if !strings.Contains(got, file+": OK\n") {
			t.Errorf("the list of checksums does not have %s:\n%s", file, got)
		}
	}
	// An altered list fails: otherwise the command above would verify nothing.
	list := filepath.Join(r.folder, "checksums.txt")
	if err := os.WriteFile(list, []byte("0  fairlead\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", verify)
	cmd.Dir = r.folder
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("openssl verifies an altered list: %s", out)
	}
}

// The list of parts has each module that the program reports, and no other.
func TestSBOMHasThePartsOfTheProgram(t *testing.T) {
	r := small(t)
	if err := r.archive(t.Context(), r.bundles[0], platform{"linux", r.archs[0]}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.folder, "fairlead-step_v1.2.3_linux_"+runtime.GOARCH)
	text, err := os.ReadFile(name + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var b cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range *b.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	// The go command reads the same modules out of the program.
	program := filepath.Join(t.TempDir(), "step")
	if err := os.WriteFile(program, contents(t, name+".tar.gz")[filepath.Base(name)+"/fairlead-step"], 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := command(t.Context(), nil, "go", "version", "-m", program)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std " + strings.TrimPrefix(runtime.Version(), "go")}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			want = append(want, f[1]+" "+f[2])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("the list has\n%s\nand the program\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSBOMHasThePinnedPackagesOfDebian(t *testing.T) {
	s := newSBOM("image", "v1.2.3", cdx.ComponentTypeContainer)
	if err := s.addDebian("../../"+packagesFile, "arm64"); err != nil {
		t.Fatal(err)
	}
	found := false
	for url, c := range s.parts {
		found = found || c.Name == "git"
		if !strings.HasPrefix(url, "pkg:deb/debian/"+c.Name+"@") || strings.Contains(url, "+") || !strings.HasSuffix(url, "arch=arm64") && !strings.HasSuffix(url, "arch=all") {
			t.Errorf("%s is no URL of a package", url)
		}
	}
	if !found {
		t.Errorf("git is missing in %d packages", len(s.parts))
	}
}

// The chart of a release loads, and it and its image have the version of the release.
func TestChartHasTheVersionOfTheRelease(t *testing.T) {
	r := small(t)
	if err := r.chart(); err != nil {
		t.Fatal(err)
	}
	c, err := chart.LoadFile(filepath.Join(r.folder, "fairlead-runner-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "v1.2.3" || len(c.Templates) == 0 || c.Schema == nil {
		t.Errorf("the chart is %s of %s, with %d templates", c.Metadata.Version, c.Metadata.AppVersion, len(c.Templates))
	}
}

// A copy of the image out of the archive also has its signature, under the tag where cosign looks.
func TestImageHasItsSignatureBesideIt(t *testing.T) {
	key := p256(t)
	r := release{version: "v1.2.3", folder: t.TempDir(), log: io.Discard, signer: opened(t, key)}
	index, err := random.Index(64, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.packImage(t.Context(), index, "image", "-shell", filepath.Join(t.TempDir(), "layout")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range contents(t, filepath.Join(r.folder, "image.oci.tar")) {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := l.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]v1.Hash{}
	for _, d := range manifest.Manifests {
		byName[d.Annotations[refName]] = d.Digest
	}
	digest, err := index.Digest()
	if err != nil || byName["v1.2.3-shell"] != digest {
		t.Fatalf("the layout has %v, not the index %s: %v", byName, digest, err)
	}
	sig, err := l.Image(byName["sha256-"+digest.Hex+".sig"])
	if err != nil {
		t.Fatal(err)
	}
	m, err := sig.Manifest()
	if err != nil || len(m.Layers) != 1 {
		t.Fatalf("the signature has %+v: %v", m, err)
	}
	layers, err := sig.Layers()
	if err != nil {
		t.Fatal(err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(text), digest.String()) {
		t.Errorf("the signed text is %s: %v", text, err)
	}
	v, err := signature.LoadVerifier(key.Public(), crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(m.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	if err == nil {
		err = v.VerifySignature(bytes.NewReader(raw), bytes.NewReader(text))
	}
	if err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
}

func TestReleaseRefusesWhatCouldNotBeBuiltAgain(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		version, folder, key, changes, want string
	}{
		"no version":                {"", "", "", "", "set a version such as v1.2.3"},
		"a version without v":       {"1.2.3", "", "", "", "set a version"},
		"a short version":           {"v1.2", "", "", "", "set a version"},
		"changes without a commit":  {"v1.2.3", "", "", " M go.mod\n", "M go.mod"},
		"a folder with other files": {"v1.2.3", full, "", "", "has files already"},
		"a key that is missing":     {"v1.2.3", t.TempDir(), "missing.pem", "", "missing.pem"},
		"a key of RSA":              {"v1.2.3", t.TempDir(), keyFile(t, weak), "", "is signed by ECDSA with P-256"},
	} {
		r := release{version: tt.version, folder: tt.folder, log: io.Discard, run: func(_ context.Context, _ []string, name string, _ ...string) (string, error) {
			if name != "git" {
				t.Errorf("%s: the release begins with %s", what, name)
			}
			return tt.changes, nil
		}}
		if err := start(t.Context(), r, tt.key, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", what, err, tt.want)
		}
	}
}

// The archive for macOS has programs for macOS, with their list of parts. No Mac is here to start them. In a short run it is the CLI
// alone.
func TestArchiveForMacOSHasItsPrograms(t *testing.T) {
	shortrun.OneDayIn(t, 4, 3)
	r, b := small(t), allBundles()[0]
	if testing.Short() {
		b.programs = b.programs[:1]
	}
	if err := r.archive(t.Context(), b, platform{"darwin", "arm64"}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	const name = "fairlead_v1.2.3_darwin_arm64"
	files := contents(t, filepath.Join(r.folder, name+".tar.gz"))
	for _, p := range b.programs {
		f, err := macho.NewFile(bytes.NewReader(files[name+"/"+p.path]))
		if err != nil || f.Cpu != macho.CpuArm64 {
			t.Errorf("%s is no program for a Mac: %v", p.path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.folder, name+".cdx.json")); err != nil {
		t.Error(err)
	}
}

// Two builds of one commit, in other folders and with other caches, give the same bytes. In a short run it is the smallest program, else
// every program.
func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	shortrun.OneDayIn(t, 4, 1)
	r := small(t)
	programs := r.bundles[0].programs
	if !testing.Short() {
		programs = append(slices.Clone(allBundles()[0].programs), allBundles()[1].programs[0])
	}
	first, second := t.TempDir(), t.TempDir()
	for _, p := range programs {
		if err := r.compile(t.Context(), p, platform{"linux", runtime.GOARCH}, filepath.Join(first, p.path)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := command(t.Context(), nil, "git", "ls-files", "-co", "--exclude-standard", "-z", "--", "*.go", "go.mod", "go.sum", "cmd", "pkg", "events", "runner", "web", "functions")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for file := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed
		}
		to := filepath.Join(elsewhere, file)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(elsewhere)
	t.Setenv("GOCACHE", t.TempDir())
	for _, p := range programs {
		if err := r.compile(t.Context(), p, platform{"linux", runtime.GOARCH}, filepath.Join(second, p.path)); err != nil {
			t.Fatal(err)
		}
		a, err := sumOf(filepath.Join(first, p.path))
		if err != nil {
			t.Fatal(err)
		}
		b, err := sumOf(filepath.Join(second, p.path))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s has the digest %x, and %x in another folder: %v", p.path, a, b, err)
		}
	}
}
