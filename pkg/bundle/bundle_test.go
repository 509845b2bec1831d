package bundle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/distribution/reference"

	"github.com/fairlead/fairlead/pkg/bundle"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// A kubelet reads references with the package reference. Two references that it pulls as one image must be one entry of a lock.
func TestReferencesAreReadAsAKubeletDoes(t *testing.T) {
	for _, text := range []string{
		"nginx", "nginx:1.27", "library/nginx", "acme/web", "docker.io/nginx", "index.docker.io/library/nginx:1", "quay.io/a/b.c/d__e:V1", "localhost/web", "localhost:5000/web:1",
		"127.0.0.1:5000/web", "[::1]:5000/web", "nginx@" + digest, "nginx:1.27@" + digest, "ghcr.io/a/b@" + digest, "UPPER/web", "a-/b", "a..b/c", "REG.io/web",
		"", "Nginx", "nginx:", "nginx:-1", "nginx@sha256:12", "nginx@", "a//b", "/a", "a/", "http://a/b", "a b", "a:b:c", "a@b@c", "a.b", "a_b", "a___b", ".a", "x/" + strings.Repeat("a", 300),
		"reg.io:port/web", "-reg.io/web", "nginx:" + strings.Repeat("1", 129), strings.Repeat("a", 64),
	} {
		want := ""
		if named, err := reference.ParseNormalizedNamed(text); err == nil {
			want = reference.TagNameOnly(named).String()
		}
		got, err := bundle.Normalize(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Normalize(%q) = %q (%v), want %q", text, got, err, want)
		}
		if again, _ := bundle.Normalize(got); got != "" && again != got {
			t.Errorf("Normalize(%q) = %q", got, again)
		}
	}
}

func lock() bundle.Lock {
	return bundle.Lock{Version: "v1",
		Images: []bundle.Image{
			{Reference: "quay.io/acme/web:1", Digest: digest, MediaType: "application/vnd.oci.image.manifest.v1+json", Manifest: 500, Bytes: 4000, Platforms: []string{"linux/amd64"}, UsedBy: []string{"web"}},
			{Reference: "docker.io/library/nginx:1.27", Digest: digest, MediaType: "application/vnd.oci.image.manifest.v1+json", Manifest: 500, Bytes: 4000, UsedBy: []string{"web", "base"}},
		},
		Named: map[string]string{"exporter": "quay.io/acme/web:1"}, Sources: map[string]string{"web": digest},
	}
}

func TestLockHasOneSpelling(t *testing.T) {
	text := lock().Encode()
	got, problems := bundle.Read("images.lock", text)
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, text)
	}
	if again := got.Encode(); string(again) != string(text) {
		t.Errorf("the lock\n%s is written as\n%s", text, again)
	}
	if i, ok := got.Image("docker.io/library/nginx:1.27"); !ok || i.Digest != digest || !slices.Equal(i.UsedBy, []string{"base", "web"}) {
		t.Errorf("the image is %+v", i)
	}
	if empty, problems := bundle.Read("images.lock", bundle.Lock{}.Encode()); len(problems) > 0 || len(empty.Images) > 0 {
		t.Errorf("an empty lock: %+v, %v", empty, problems)
	}
}

func TestDamagedLockHasAProblemWithALine(t *testing.T) {
	whole := string(lock().Encode())
	for name, tc := range map[string]struct{ old, now, code string }{
		"an older format":               {"lock: v1", "lock: v0", "invalid-value"},
		"a conflict of git":             {"images:\n", "images:\n<<<<<<< ours\n", "malformed-yaml"},
		"no digest":                     {"    digest: " + digest + "\n", "", "missing-field"},
		"a short digest":                {"digest: sha256:0123", "digest: sha256:", "invalid-value"},
		"another spelling":              {`"docker.io/library/nginx:1.27"`, `"nginx:1.27"`, "invalid-image"},
		"no reference":                  {`"docker.io/library/nginx:1.27"`, `"docker.io/Nginx"`, "invalid-image"},
		"another digest than its own":   {`"docker.io/library/nginx:1.27"`, `"docker.io/library/nginx@` + strings.Replace(digest, "0", "1", 1) + `"`, "invalid-image"},
		"a name without an image":       {`"exporter": "quay.io/acme/web:1"`, `"exporter": "quay.io/acme/web:2"`, "unknown-reference"},
		"an image twice":                {`"quay.io/acme/web:1":`, `"docker.io/library/nginx:1.27":`, "duplicate-name"},
		"a size below zero":             {"manifest_bytes: 500", "manifest_bytes: -1", "invalid-value"},
		"a field that does not exist":   {"lock: v1", "lock: v1\nimage: x", "unknown-field"},
		"a file that is not a YAML map": {whole, "[]", "wrong-type"},
	} {
		text := strings.Replace(whole, tc.old, tc.now, 1)
		if text == whole {
			t.Fatalf("%s: the text has no %q", name, tc.old)
		}
		_, problems := bundle.Read("bundle/images.lock", []byte(text))
		if len(problems) == 0 || problems[0].Code != tc.code {
			t.Errorf("%s: %v, want %s", name, problems, tc.code)
			continue
		}
		if problems[0].File != "bundle/images.lock" || problems[0].Line < 1 {
			t.Errorf("%s: the problem is at %s:%d", name, problems[0].File, problems[0].Line)
		}
	}
}

// The digest of the index names each image: of the same images it is the same, whatever their references are.
func TestIndexNamesEachImageOnce(t *testing.T) {
	l := lock()
	text, named := l.Index()
	sum := sha256.Sum256(text)
	var index struct {
		MediaType string
		Manifests []struct{ Digest string }
	}
	if err := json.Unmarshal(text, &index); err != nil || index.MediaType != bundle.IndexType || len(index.Manifests) != 1 || index.Manifests[0].Digest != digest {
		t.Errorf("the index is %s (%v)", text, err)
	}
	if want := "sha256:" + hex.EncodeToString(sum[:]); named != want {
		t.Errorf("the digest is %s, want %s", named, want)
	}
	slices.Reverse(l.Images)
	if _, other := l.Index(); other != named {
		t.Errorf("the order of the images changes the digest")
	}
	l.Images[0].Digest = strings.Replace(digest, "0", "1", 1)
	if _, other := l.Index(); other == named {
		t.Errorf("another image does not change the digest")
	}
}

// The index of a bundle names each object with what it is, and is the same in whatever order the objects were copied.
func TestIndexOfABundleNamesEachObject(t *testing.T) {
	entries := []bundle.Entry{
		{Kind: bundle.Provider, Name: "registry.opentofu.org/hashicorp/aws", Version: "5.1.0", UsedBy: []string{"cluster"}, Digest: digest, MediaType: bundle.IndexType, Size: 300},
		{Kind: bundle.Artifact, Name: "web", UsedBy: []string{"web"}, Digest: digest, MediaType: "application/vnd.oci.image.manifest.v1+json", Size: 400},
		{Kind: bundle.Locked, Name: "docker.io/library/nginx:1.27", UsedBy: []string{"base", "web"}, Digest: digest, MediaType: bundle.IndexType, Size: 500},
	}
	text, named := bundle.Whole("shop", "ver_1", entries)
	app, version, got, err := bundle.ReadWhole(text)
	if err != nil || app != "shop" || version != "ver_1" || len(got) != 3 {
		t.Fatalf("%s %s: %+v, %v", app, version, got, err)
	}
	for _, e := range entries {
		if !slices.ContainsFunc(got, func(g bundle.Entry) bool {
			return g.Kind == e.Kind && g.Name == e.Name && g.Version == e.Version && slices.Equal(g.UsedBy, e.UsedBy) && g.Digest == e.Digest && g.Size == e.Size && g.MediaType == e.MediaType
		}) {
			t.Errorf("the index does not have %+v:\n%s", e, text)
		}
	}
	slices.Reverse(entries)
	if _, other := bundle.Whole("shop", "ver_1", entries); other != named {
		t.Error("the order of the objects changes the digest")
	}
	for name, wrong := range map[string]string{"no JSON": "[", "another index": strings.Replace(string(text), bundle.WholeType, "application/other", 1), "an unknown kind": strings.Replace(string(text), `"provider"`, `"other"`, 1)} {
		if _, _, _, err := bundle.ReadWhole([]byte(wrong)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
