package mirror_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/imagetest/memorytest"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/test/proxy"
)

// locked returns a lock of images of the source, as the CLI writes it. The first image has the name "first".
func (s *site) locked(repositories ...string) bundle.Lock {
	s.Helper()
	l := bundle.Lock{Named: map[string]string{}}
	for _, r := range repositories {
		reference := s.source.Host + "/" + r
		sources, err := mirror.Sources(bundle.Lock{Images: []bundle.Image{{Reference: reference}}})
		if err != nil {
			s.Fatal(err)
		}
		image, err := s.engine(sources...).Resolve(s.Context(), reference)
		if err != nil {
			s.Fatal(err)
		}
		l.Images = append(l.Images, image)
	}
	l.Named["first"] = l.Images[0].Reference
	read, err := mirror.ReadLock(fstest.MapFS{bundle.File: {Data: l.Encode()}})
	if err != nil {
		s.Fatal(err)
	}
	return read
}

func (s *site) planSet(l bundle.Lock) mirror.Planned {
	s.Helper()
	sources, err := mirror.Sources(l)
	if err != nil {
		s.Fatal(err)
	}
	e := s.engine(sources...)
	e.Mirror = e.Target.Mirrored()
	p, err := e.PlanSet(s.Context(), l)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// has reports whether the target has the image with all its layers.
func (s *site) has(digest string) bool { return s.target.Pull(s.T, repository+"@"+digest) == digest }

// The images of a lock are copied by digest, with their signatures. A set that is complete needs no other registry, and the images of
// the set before stay.
func TestLockedImagesAreCopiedAsASet(t *testing.T) {
	for _, kind := range []memorytest.Kind{memorytest.Whole, memorytest.Plain} {
		t.Run(string(kind), func(t *testing.T) {
			s := newSite(t, memorytest.Whole, kind)
			web, api := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64"), s.source.Push(t, "vendor/api:1", "linux/amd64")
			signer := imagetest.NewSigner(t)
			s.source.Attach(t, "vendor/web", web, signer.Bundle(t, web, imagetest.Predicate))
			first := s.locked("vendor/web:1", "vendor/api:1")
			if image, _ := first.Image(s.source.Host + "/vendor/web:1"); image.Digest != web || !slices.Equal(image.Platforms, []string{"linux/amd64", "linux/arm64"}) || image.Bytes == 0 {
				t.Fatalf("the lock has %+v", image)
			}
			s.source.Push(t, "vendor/web:1", "linux/amd64") // the tag moves

			p := s.planSet(first)
			if p.NoOp || len(p.Changes) != 3 || p.Changes[0].Action != changeset.Create || len(s.target.Tags(t, repository)) > 0 {
				t.Fatalf("the plan has %+v", p.Changes)
			}
			s.apply(p)
			address := s.target.Host + "/" + repository
			want := map[string]string{s.source.Host + "/vendor/web:1": address + "@" + web, s.source.Host + "/vendor/api:1": address + "@" + api}
			if c := mirror.CopiesOf(p.Saved); !maps.Equal(c.Images, want) || c.Named["first"] != address+"@"+web || c.Registry != s.target.Host+"/prefix/ins_1/" {
				t.Errorf("the outputs are %+v", c)
			}
			if !s.has(web) || !s.has(api) || len(s.target.Referrers(t, repository, web)) != 1 {
				t.Errorf("the target lacks images or signatures")
			}

			s.source.Proxy.SetDown(true)
			if again := s.planSet(first); !again.NoOp || !maps.Equal(mirror.CopiesOf(again.Saved).Images, want) {
				t.Errorf("without a change, the plan has %+v", again.Changes)
			}
			s.source.Proxy.SetDown(false)

			s.source.Push(t, "vendor/new:1", "linux/amd64")
			s.apply(s.planSet(s.locked("vendor/new:1", "vendor/api:1")))
			if !s.has(web) {
				t.Errorf("an image of the set before is gone, and what is deployed still uses it")
			}
			s.apply(s.planSet(s.locked("vendor/new:1")))
			if s.has(web) || !s.has(api) {
				t.Errorf("of the sets before, web is there: %v, and api: %v", s.has(web), s.has(api))
			}
			s.destroy()
			if tags := s.target.Tags(t, repository); len(tags) > 0 || s.has(api) {
				t.Errorf("the destroy left %v", tags)
			}
		})
	}
}

// An image in the mirror of the install's registry comes from there, and no other registry is asked.
func TestImagesComeFromTheMirror(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	web := s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.source.Attach(t, "vendor/web", web, imagetest.NewSigner(t).Bundle(t, web, imagetest.Predicate))
	l := s.locked("vendor/web:1")
	sources, err := mirror.Sources(l)
	if err != nil {
		t.Fatal(err)
	}
	target := s.engine().Target.Mirrored()
	copies := &mirror.Engine{Client: mirror.NewClient(target, mirror.Options{}, sources...), Target: target, Log: &s.log}
	reference, err := copies.CopySet(t.Context(), l)
	_, index := l.Index()
	if want := s.target.Host + "/prefix/mirror@" + index; err != nil || reference != want {
		t.Fatalf("the mirror is %q, want %q (%v)", reference, want, err)
	}
	if again, err := copies.CopySet(t.Context(), l); err != nil || again != reference {
		t.Errorf("a second copy: %q, %v", again, err)
	}
	s.source.Proxy.SetDown(true)
	s.apply(s.planSet(l))
	if !s.has(web) || len(s.target.Referrers(t, repository, web)) != 1 {
		t.Error("the image or its signature is not there")
	}
}

// A registry that refuses to show the mirror has none: the images come from where the lock names them.
func TestRefusedMirrorIsNoMirror(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	web := s.source.Push(t, "vendor/web:1", "linux/amd64")
	l := s.locked("vendor/web:1")
	s.target.Proxy.Fail(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/mirror/") }, -1, proxy.Answer(http.StatusForbidden, "", ""))
	s.apply(s.planSet(l))
	if !s.has(web) {
		t.Error("the image is not there")
	}
}

// An apply that is killed at each write is completed by the next plan. Before it is complete, the set does not count.
func TestKilledCopyOfALockIsCompleted(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	web, api := s.source.Push(t, "vendor/web:1", "linux/amd64"), s.source.Push(t, "vendor/api:1", "linux/amd64")
	s.source.Attach(t, "vendor/api", api, imagetest.NewSigner(t).Bundle(t, api, imagetest.Predicate))
	l := s.locked("vendor/web:1", "vendor/api:1")
	kills := 0
	for n := int64(0); s.killed(s.planSet(l), n, false); n++ {
		if kills++; kills > 200 {
			t.Fatal("the apply never ends")
		}
		p := s.planSet(l)
		if p.NoOp {
			t.Fatalf("after a kill at write %d, the set counts as complete", n+1)
		}
		s.apply(p)
		if !s.planSet(l).NoOp || !s.has(web) || !s.has(api) || len(s.target.Referrers(t, repository, api)) != 1 {
			t.Fatalf("after a kill at write %d and an apply, images or signatures are missing", n+1)
		}
		s.target = memorytest.Start(t, memorytest.Whole)
	}
	if kills < 10 {
		t.Errorf("the apply was killed %d times only", kills)
	}
}

// An image that was deleted from the registry is copied again, and the others are not.
func TestLostImageIsCopiedAgain(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	web := s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.source.Push(t, "vendor/api:1", "linux/amd64")
	l := s.locked("vendor/web:1", "vendor/api:1")
	s.apply(s.planSet(l))
	req, err := http.NewRequest(http.MethodDelete, s.target.URL()+"/v2/"+repository+"/manifests/"+web, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p := s.planSet(l)
	if p.NoOp || len(p.Changes) != 2 || p.Changes[0].Reason != "the copies are not complete" || !strings.HasSuffix(p.Changes[1].Address, web) {
		t.Fatalf("the plan has %+v", p.Changes)
	}
	s.apply(p)
	if !s.has(web) || !s.planSet(l).NoOp {
		t.Error("the image is not there")
	}
}

// Layers that the target has are not sent again.
func TestSharedImagesOfTwoLocksAreNotSentAgain(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.source.Push(t, "vendor/api:1", "linux/amd64")
	s.apply(s.planSet(s.locked("vendor/web:1", "vendor/api:1")))
	var sent atomic.Int64
	s.target.Proxy.Fail(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") && writes(r) }, -1, proxy.Before(func(*http.Request) { sent.Add(1) }))
	s.apply(s.planSet(s.locked("vendor/web:1")))
	if sent.Load() != 0 {
		t.Errorf("%d requests sent layers", sent.Load())
	}
}

func TestFaultsOfALockHaveAReason(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  func(*site)
		reason fairlead.Reason
	}{
		"the source is down": {func(s *site) { s.source.Proxy.SetDown(true) }, fairlead.ReasonRegistryUnreachable},
		"the image is deleted": {func(s *site) {
			s.source.Proxy.Fail(at(http.MethodGet, "/manifests/"), -1, proxy.Answer(http.StatusNotFound, "", ""))
		}, fairlead.ReasonImageMissing},
		"the source is hostile": {func(s *site) { s.source.Proxy.Fail(at(http.MethodGet, "/manifests/"), -1, proxy.Change(lies)) }, fairlead.ReasonImageDamaged},
		"the target is down":    {func(s *site) { s.target.Proxy.SetDown(true) }, fairlead.ReasonRegistryUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			s.source.Push(t, "vendor/web:1", "linux/amd64")
			l := s.locked("vendor/web:1")
			tc.fault(s)
			sources, err := mirror.Sources(l)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.engine(sources...).PlanSet(t.Context(), l); plugin.ReasonOf(err) != tc.reason {
				t.Errorf("reason %s, error %v", plugin.ReasonOf(err), err)
			}
		})
	}
	if _, err := mirror.ReadLock(fstest.MapFS{}); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
		t.Errorf("no lock: %v", err)
	}
	if _, err := mirror.ReadLock(fstest.MapFS{bundle.File: {Data: []byte("lock: v1\nimages: {a: }\n")}}); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid || !strings.Contains(err.Error(), bundle.File+":2:") {
		t.Errorf("a damaged lock: %v", err)
	}
}
