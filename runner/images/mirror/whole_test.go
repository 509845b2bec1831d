package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/imagetest/memorytest"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
)

const providerAddress = "registry.opentofu.org/hashicorp/time"

// contents is a bundle with an object of each kind, and the archive of its provider.
type contents struct {
	bundle   bundle.Bundle
	archives mirror.Archives
	archive  []byte
	web      string
}

// contents pushes what a bundle has to the source. Its artifact is any object of OCI that is no image.
func (s *site) contents() contents {
	s.Helper()
	c := contents{web: s.source.Push(s.T, "vendor/web:1", "linux/amd64", "linux/arm64"), archive: []byte("the archive of a provider")}
	signer := imagetest.NewSigner(s.T)
	artifact := s.source.Attach(s.T, "vendor/web", c.web, signer.Bundle(s.T, c.web, imagetest.Predicate))
	signer.Payload(s.T, s.source, "vendor/web", c.web, c.web)
	built := s.source.Push(s.T, "vendor/built:1", "linux/amd64")
	file := filepath.Join(s.TempDir(), "time.zip")
	if err := os.WriteFile(file, c.archive, 0o600); err != nil {
		s.Fatal(err)
	}
	sum := sha256.Sum256(c.archive)
	c.archives = func(context.Context, bundle.Item) ([]mirror.Archive, []string, error) {
		return []mirror.Archive{{Platform: "linux/amd64", File: file, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(c.archive))}}, []string{"no arm64"}, nil
	}
	c.bundle = bundle.Bundle{App: "shop", Version: "ver_1", Images: s.locked("vendor/web:1").Images, Items: []bundle.Item{
		{Kind: bundle.Artifact, Name: "base", Digest: artifact, From: s.source.Host + "/vendor/web", UsedBy: []string{"base"}},
		{Kind: bundle.Artifact, Name: "server", Digest: built, From: s.source.Host + "/vendor/built", UsedBy: []string{"server"}},
		{Kind: bundle.Provider, Name: providerAddress, Version: "0.14.2", UsedBy: []string{"cluster"}},
	}}
	return c
}

// to returns an engine that copies to a target.
func (s *site) to(target mirror.Target) *mirror.Engine {
	sources, err := mirror.Sources(bundle.Lock{Images: []bundle.Image{{Reference: s.source.Host + "/vendor/web:1"}}})
	if err != nil {
		s.Fatal(err)
	}
	return &mirror.Engine{Client: mirror.NewClient(target, mirror.Options{Delay: 1}, sources...), Target: target, Log: &s.log}
}

// export writes the bundle into a new layout, and returns its folder. The process works in this folder afterwards.
func (s *site) export(c contents) (dir string, out bundle.CopyAnswer) {
	s.Helper()
	dir = s.TempDir()
	s.Chdir(dir)
	if err := mirror.MakeLayout("."); err != nil {
		s.Fatal(err)
	}
	out, err := s.to(mirror.Target{Layout: "."}).CopyWhole(s.Context(), c.bundle, c.archives)
	if err != nil {
		s.Fatalf("%v\n%s", err, &s.log)
	}
	return dir, out
}

// filesOf returns the digests of all files of a folder.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sum := sha256.Sum256(text)
		found[strings.TrimPrefix(path, dir)] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Everything of a bundle is in its layout and in the registry that it is copied to, by the same digests: images with their platforms
// and signatures, artifacts, images that builds made, and archives of providers. The copy from a layout asks no other registry.
func TestExportedBundleHasTheSameDigestsInARegistry(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	c := s.contents()
	target := mirror.Target{URL: s.target.URL(), Repository: "prefix/mirror"}
	direct, err := s.to(mirror.Target{URL: s.target.URL(), Repository: "direct/mirror"}).CopyWhole(t.Context(), c.bundle, c.archives)
	if err != nil {
		t.Fatal(err)
	}
	first, exported := s.export(c)
	second, _ := s.export(c)
	if a, b := filesOf(t, first), filesOf(t, second); len(a) < 10 || !maps.Equal(a, b) {
		t.Errorf("two exports of one bundle have %d and %d files, not all the same", len(a), len(b))
	}
	s.source.Proxy.SetDown(true)
	loaded, err := s.to(target).CopyFrom(t.Context(), mirror.Target{Layout: "."})
	if err != nil {
		t.Fatalf("%v\n%s", err, &s.log)
	}
	if direct.Digest != exported.Digest || loaded.Digest != exported.Digest || loaded.Reference != s.target.Host+"/prefix/mirror@"+exported.Digest || len(loaded.Entries) != 4 || len(exported.Absent) != 1 {
		t.Errorf("copied directly: %s, exported: %+v, loaded: %+v", direct.Digest, exported, loaded)
	}
	for _, e := range loaded.Entries {
		if e.Kind == bundle.Locked && s.target.Pull(t, "prefix/mirror@"+e.Digest) != e.Digest {
			t.Errorf("the registry lacks %s %s", e.Name, e.Digest)
		}
	}
	if got := s.target.Referrers(t, "prefix/mirror", c.web); len(got) != 1 {
		t.Errorf("%v refer to the image", got)
	}
	if s.target.Pull(t, "prefix/mirror:"+strings.Replace(c.web, ":", "-", 1)+".sig") == "" {
		t.Errorf("the tag of the signature is not there: %v", s.target.Tags(t, "prefix/mirror"))
	}
	if built := c.bundle.Items[1].Digest; s.target.Pull(t, "prefix/mirror@"+built) != built {
		t.Error("the image of a build is not there")
	}

	// A step gets the archive, and knows if the mirror does not have one.
	var got bytes.Buffer
	if err := s.to(target).Archive(t.Context(), target, providerAddress, "0.14.2", "linux/amd64", &got); err != nil || !bytes.Equal(got.Bytes(), c.archive) {
		t.Errorf("the archive is %q (%v)", &got, err)
	}
	for _, other := range [][3]string{{providerAddress, "0.14.2", "linux/arm64"}, {providerAddress, "0.14.3", "linux/amd64"}, {"example.com/a/b", "0.14.2", "linux/amd64"}} {
		if err := s.to(target).Archive(t.Context(), target, other[0], other[1], other[2], &got); !errors.Is(err, mirror.ErrAbsent) {
			t.Errorf("the archive %v: %v", other, err)
		}
	}

	// The images of an install come from there.
	s.apply(s.planSet(bundle.Lock{Images: c.bundle.Images}))
	if !s.has(c.web) {
		t.Error("the install's copy is not there")
	}
	if again, err := s.to(target).CopyFrom(t.Context(), mirror.Target{Layout: "."}); err != nil || again.Reference != loaded.Reference {
		t.Errorf("a second copy: %+v, %v", again, err)
	}
}

// A layout whose content was changed gives nothing to a registry that does not fit its digest.
func TestDamagedLayoutIsRefused(t *testing.T) {
	for name, damage := range map[string]func(s *site, c contents) error{
		"a changed layer": func(s *site, c contents) error {
			sum := sha256.Sum256(c.archive)
			return os.WriteFile(filepath.Join("blobs/sha256", hex.EncodeToString(sum[:])), bytes.ToUpper(c.archive), 0o600)
		},
		"a changed manifest": func(s *site, c contents) error {
			return os.WriteFile(filepath.Join("blobs/sha256", strings.TrimPrefix(c.web, "sha256:")), []byte("{}"), 0o600)
		},
		"a manifest is missing": func(s *site, c contents) error {
			return os.Remove(filepath.Join("blobs/sha256", strings.TrimPrefix(c.bundle.Items[0].Digest, "sha256:")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			c := s.contents()
			s.export(c)
			if err := damage(s, c); err != nil {
				t.Fatal(err)
			}
			out, err := s.to(mirror.Target{URL: s.target.URL(), Repository: "prefix/mirror"}).CopyFrom(t.Context(), mirror.Target{Layout: "."})
			if err == nil || slices.ContainsFunc(s.target.Tags(t, "prefix/mirror"), func(tag string) bool { return strings.HasPrefix(tag, bundle.WholeTag) }) {
				t.Errorf("the copy is %+v (%v)", out, err)
			}
			if reason := plugin.ReasonOf(err); reason != fairlead.ReasonImageDamaged && reason != fairlead.ReasonImageMissing && reason != fairlead.ReasonRegistryUnreachable {
				t.Errorf("the reason is %q: %v", reason, err)
			}
		})
	}
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	t.Chdir(t.TempDir())
	if _, err := s.to(mirror.Target{URL: s.target.URL(), Repository: "prefix/mirror"}).CopyFrom(t.Context(), mirror.Target{Layout: "."}); err == nil {
		t.Error("an empty folder is a layout")
	}
}
