package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/imagetest/memorytest"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/shortrun"
)

func at(method, part string) proxy.Match {
	return func(r *http.Request) bool {
		return r.Method == method && strings.Contains(r.URL.Path, part) && !strings.Contains(r.URL.Path, "/uploads/")
	}
}

func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// breaks passes a request's answer only in part, and then breaks the connection.
func breaks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := proxy.Record(w)
		next.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2]) // the client may have gone
		panic(http.ErrAbortHandler)
	})
}

// limits answers that there were too many requests.
func limits(retryAfter string) proxy.Fault {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", retryAfter)
			w.WriteHeader(http.StatusTooManyRequests)
		})
	}
}

// firstUpload matches the requests of the first upload after it has begun.
func firstUpload() proxy.Match {
	var first atomic.Pointer[string]
	return func(r *http.Request) bool {
		if r.Method == http.MethodPost || !strings.Contains(r.URL.Path, "/blobs/uploads/") {
			return false
		}
		first.CompareAndSwap(nil, &r.URL.Path)
		return *first.Load() == r.URL.Path
	}
}

// lies changes the content of an answer, and not its size.
func lies(body []byte) []byte {
	changed := bytes.Clone(body)
	changed[len(changed)/2] ^= 1
	return changed
}

// A registry that fails for a moment costs time, and nothing else.
func TestShortFaultsAreSurvived(t *testing.T) {
	for name, fault := range map[string]func(*site){
		"the source breaks the connection in a layer":         func(s *site) { s.source.Proxy.Fail(at(http.MethodGet, "/blobs/"), 2, breaks) },
		"the source breaks the connection before its answer":  func(s *site) { s.source.Proxy.Fail(proxy.Any, 2, proxy.Lose) },
		"the source limits requests":                          func(s *site) { s.source.Proxy.Fail(proxy.Any, 2, limits("0.01")) },
		"the source is overloaded":                            func(s *site) { s.source.Proxy.Fail(proxy.Any, 2, proxy.Answer(http.StatusBadGateway, "", "")) },
		"the target limits requests":                          func(s *site) { s.target.Proxy.Fail(proxy.Any, 2, limits("0.01")) },
		"the target restarts during an upload and forgets it": func(s *site) { s.target.Proxy.Fail(firstUpload(), -1, proxy.Answer(http.StatusBadRequest, "", "")) },
		"the answers to two writes of the target are lost":    func(s *site) { s.target.Proxy.Fail(writes, 2, proxy.Lose) },
		"the target breaks the connection before its answers": func(s *site) { s.target.Proxy.Fail(proxy.Any, 2, proxy.Lose) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			digest := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
			p := s.plan(web)
			fault(s)
			s.apply(p)
			if got := s.target.Pull(t, repository+"@"+digest); got != digest {
				t.Errorf("the target has %q", got)
			}
		})
	}
}

// Each lasting fault has a typed reason and names the registry. Nothing that a registry returned instead of the content of a digest
// becomes an image of the target.
func TestLastingFaultsHaveAReason(t *testing.T) {
	const always = -1
	forbidden := proxy.Answer(http.StatusForbidden, "application/json", `{"errors":[{"code":"DENIED"}]}`)
	for name, tc := range map[string]struct {
		lines  []string
		fault  func(*site)
		reason fairlead.Reason
		source bool // the message names the source, otherwise the target
	}{
		"the source is down":           {[]string{web}, func(s *site) { s.source.Proxy.SetDown(true) }, fairlead.ReasonRegistryUnreachable, true},
		"the target is down":           {[]string{web}, func(s *site) { s.target.Proxy.SetDown(true) }, fairlead.ReasonRegistryUnreachable, false},
		"the source breaks each layer": {[]string{web}, func(s *site) { s.source.Proxy.Fail(at(http.MethodGet, "/blobs/"), always, proxy.Lose) }, fairlead.ReasonRegistryUnreachable, true},
		"the source limits requests for longer than a job waits": {[]string{web}, func(s *site) { s.source.Proxy.Fail(proxy.Any, always, limits("100000")) },
			fairlead.ReasonRegistryLimited, true},
		"the source limits requests without an end": {[]string{web}, func(s *site) { s.source.Proxy.Fail(proxy.Any, always, limits("0.01")) }, fairlead.ReasonRegistryLimited, true},
		"the source refuses the login":              {[]string{web}, func(s *site) { s.source.Proxy.Fail(proxy.Any, always, forbidden) }, fairlead.ReasonRegistryForbidden, true},
		"the target refuses to list tags":           {[]string{web}, func(s *site) { s.target.Proxy.Fail(proxy.Any, always, forbidden) }, fairlead.ReasonRegistryForbidden, false},
		"the target refuses a push":                 {[]string{web}, func(s *site) { s.target.Proxy.Fail(writes, always, forbidden) }, fairlead.ReasonRegistryForbidden, false},
		"the image does not exist":                  {[]string{"image: HOST/vendor/none:1"}, func(*site) {}, fairlead.ReasonImageMissing, true},
		"the image lacks a platform":                {[]string{web, "platforms: [linux/s390x]"}, func(*site) {}, fairlead.ReasonImageMissing, true},
		"the source lies about a manifest": {[]string{web}, func(s *site) {
			s.source.Proxy.Fail(at(http.MethodGet, "/manifests/sha256:"), always, proxy.Change(lies))
		},
			fairlead.ReasonImageDamaged, true},
		"the source lies about a layer": {[]string{web}, func(s *site) { s.source.Proxy.Fail(at(http.MethodGet, "/blobs/"), always, proxy.Change(lies)) }, fairlead.ReasonImageDamaged, true},
		"the target keeps another manifest": {[]string{web}, func(s *site) {
			s.target.Proxy.Fail(at(http.MethodGet, "/manifests/sha256:"), always, proxy.Change(lies))
		},
			fairlead.ReasonImageDamaged, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			digest := s.source.Push(t, "vendor/web:1", "linux/amd64")
			tc.fault(s)
			src := s.read(tc.lines...)
			p, err := s.engine(src.Image).Plan(t.Context(), src)
			if err == nil {
				_, err = s.try(t.Context(), p)
			}
			host := map[bool]string{true: s.source.Host, false: s.target.Host}[tc.source]
			if plugin.ReasonOf(err) != tc.reason || !strings.Contains(fmt.Sprint(err), host) {
				t.Errorf("reason %s, error %v; want %s and the host %s", plugin.ReasonOf(err), err, tc.reason, host)
			}
			s.target.Proxy.SetDown(false)
			s.target.Proxy.Fail(proxy.Any, always, func(next http.Handler) http.Handler { return next })
			for _, tag := range s.target.Tags(t, repository) {
				if strings.HasPrefix(tag, "fairlead-") {
					t.Errorf("the copy of %s counts as complete: %s", digest, tag)
				}
			}
		})
	}
}

// An apply or a destroy that is killed at each write, before or after the write reaches the registry, is completed by the next plan. A
// layer that is there is not sent again.
func TestKillAtEachWriteIsCompletedByTheNextPlan(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	for _, kind := range []memorytest.Kind{memorytest.Whole, memorytest.Plain} {
		for name, after := range map[string]bool{"before the write": false, "after the write": true} {
			t.Run(name+", at a registry "+string(kind), func(t *testing.T) {
				s := newSite(t, memorytest.Whole, kind)
				digest := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
				signer := imagetest.NewSigner(t)
				signer.Payload(t, s.source, "vendor/web", digest, digest)
				s.source.Attach(t, "vendor/web", digest, signer.Bundle(t, digest, imagetest.Predicate))
				kills := 0
				for n := int64(0); s.killed(s.plan(web), n, after); n++ {
					if kills++; kills > 200 {
						t.Fatal("the apply never ends")
					}
					s.apply(s.plan(web))
					if p := s.plan(web); !p.NoOp || s.target.Pull(t, repository+"@"+digest) != digest || len(s.target.Referrers(t, repository, digest)) != 1 {
						t.Fatalf("after a kill at write %d and an apply, the plan is %s", n+1, p.Saved)
					}
					s.target = memorytest.Start(t, kind)
				}
				if kills < 15 {
					t.Errorf("the apply was killed %d times only", kills)
				}
				kills = 0
				for n := int64(0); ; n++ {
					p, err := s.engine().PlanDestroy(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if !s.killed(p, n, after) {
						break
					}
					kills++
					s.destroy()
					if tags := s.target.Tags(t, repository); len(tags) > 0 || s.target.Pull(t, repository+"@"+digest) != "" {
						t.Fatalf("after a kill at write %d, the destroy left %v", n+1, tags)
					}
					s.apply(s.plan(web))
				}
				if kills < 4 {
					t.Errorf("the destroy was killed %d times only", kills)
				}
			})
		}
	}
}

// killed applies a plan, and ends it like a killed process at its write number n+1. It reports whether there was such a write.
func (s *site) killed(p mirror.Planned, n int64, after bool) bool {
	ctx, kill := context.WithCancel(s.Context())
	defer kill()
	var seen atomic.Int64
	dead := false
	remove := s.target.Proxy.Fail(writes, -1, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen.Add(1) <= n {
				next.ServeHTTP(w, r)
				return
			}
			if after && seen.Load() == n+1 {
				next.ServeHTTP(proxy.Record(w), r)
			}
			kill()
			panic(http.ErrAbortHandler)
		})
	})
	defer remove()
	if _, err := s.try(ctx, p); err != nil {
		dead = ctx.Err() != nil
		if !dead {
			s.Fatalf("%v\n%s", err, &s.log)
		}
	}
	return dead
}

// A second image with the same layers sends no layer.
func TestLayersThatAreThereAreSkipped(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	p := s.plan(web)
	s.source.Proxy.Fail(func(r *http.Request) bool { return false }, -1, proxy.Lose)
	first := s.apply(p)
	var sent atomic.Int64
	s.target.Proxy.Fail(at(http.MethodPut, "/blobs/"), -1, proxy.Before(func(*http.Request) { sent.Add(1) }))
	s.target.Proxy.Fail(func(r *http.Request) bool { return r.Method == http.MethodPost }, -1, proxy.Before(func(*http.Request) { sent.Add(1) }))
	// The tag is lost, as after an apply that died just before it.
	if err := s.untag(); err != nil {
		t.Fatal(err)
	}
	if p = s.plan(web); p.NoOp {
		t.Fatal("without its tag, a copy counts as complete")
	}
	if again := s.apply(p); again != first || sent.Load() != 0 {
		t.Errorf("the second apply sent %d layers, and has the outputs %+v", sent.Load(), again)
	}
}

func (s *site) untag() error {
	for _, tag := range s.target.Tags(s.T, repository) {
		req, err := http.NewRequest(http.MethodDelete, s.target.URL()+"/v2/"+repository+"/manifests/"+tag, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	return nil
}

// An apply that died before it wrote the tag is not a copy, and a destroy removes what it left under other tags.
func TestDestroyRemovesAnIncompleteCopy(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	digest := s.source.Push(t, "vendor/web:1", "linux/amd64")
	imagetest.NewSigner(t).Payload(t, s.source, "vendor/web", digest, digest)
	for n := int64(0); len(s.target.Tags(t, repository)) == 0; n++ {
		s.target = memorytest.Start(t, memorytest.Whole)
		s.killed(s.plan(web), n, true)
	}
	if tags := s.target.Tags(t, repository); len(tags) != 1 || !strings.HasSuffix(tags[0], ".sig") {
		t.Fatalf("the tags are %v", tags)
	}
	p, err := s.engine().PlanDestroy(t.Context())
	if err != nil || p.NoOp || len(p.Changes) != 1 {
		t.Fatalf("the plan is %+v, error %v", p, err)
	}
	s.apply(p)
	if tags := s.target.Tags(t, repository); len(tags) > 0 {
		t.Errorf("the destroy left %v", tags)
	}
}

// A person has deleted a platform of the copy: the next plan sees it, and the apply copies it again.
func TestLostPlatformIsCopiedAgain(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Plain) // a registry that lets a person delete it
	digest := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	s.apply(s.plan(web))
	var platform atomic.Value // a string: platforms are read at the same time
	s.source.Proxy.Fail(at(http.MethodGet, "/manifests/sha256:"), -1, proxy.Before(func(r *http.Request) { platform.Store(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]) }))
	s.source.Pull(t, "vendor/web@"+digest)
	req, err := http.NewRequest(http.MethodDelete, s.target.URL()+"/v2/"+repository+"/manifests/"+platform.Load().(string), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p := s.plan(web)
	if p.NoOp {
		t.Fatal("the plan does not see that a platform is gone")
	}
	s.apply(p)
	if s.target.Pull(t, repository+"@"+digest) != digest || !s.plan(web).NoOp {
		t.Error("the platform is not copied again")
	}
}

// A registry without deletion keeps the images, and does not keep an install from being torn down.
func TestRegistryWithoutDeletionEndsADestroy(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.ReadWrite)
	s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.apply(s.plan(web))
	before := s.target.Tags(t, repository)
	s.destroy()
	if after := s.target.Tags(t, repository); len(after) != len(before) || !strings.Contains(s.log.String(), "does not delete manifests") {
		t.Errorf("the tags are %v, the log is\n%s", after, &s.log)
	}
}

// The login of an apply need not be able to delete: earlier images then stay, and the copy counts.
func TestApplyWithoutDeletionKeepsEarlierImages(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	first := s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.apply(s.plan(web, "keep: 0"))
	s.source.Push(t, "vendor/web:1", "linux/amd64")
	allow := s.target.Proxy.Fail(func(r *http.Request) bool { return r.Method == http.MethodDelete }, -1, proxy.Answer(http.StatusForbidden, "", ""))
	s.apply(s.plan(web, "keep: 0"))
	if s.target.Pull(t, repository+"@"+first) != first || !strings.Contains(s.log.String(), "may not delete earlier images") || !s.plan(web, "keep: 0").NoOp {
		t.Errorf("the log is\n%s", &s.log)
	}
	p, err := s.engine().PlanDestroy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.try(t.Context(), p); plugin.ReasonOf(err) != fairlead.ReasonRegistryForbidden {
		t.Errorf("a destroy that may not delete: %v", err)
	}
	allow()
	s.destroy()
	if tags := s.target.Tags(t, repository); len(tags) > 0 {
		t.Errorf("the destroy left %v", tags)
	}
}

// Only a signature by one of the component's keys makes an image deployable. The change set names the key and the form.
func TestImageIsCopiedOnlyWithItsSignature(t *testing.T) {
	signer, stranger := imagetest.NewSigner(t), imagetest.NewSigner(t)
	const other = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for name, tc := range map[string]struct {
		sign func(s *site, digest string)
		want string // of the change set; "": refused
	}{
		"a payload": {func(s *site, d string) { signer.Payload(s.T, s.source, "vendor/web", d, d) }, "verified with cosign.pub (payload)"},
		"a bundle": {func(s *site, d string) {
			s.source.Attach(s.T, "vendor/web", d, signer.Bundle(s.T, d, imagetest.Predicate))
		}, "verified with cosign.pub (bundle)"},
		"none":                     {func(*site, string) {}, ""},
		"a payload of another key": {func(s *site, d string) { stranger.Payload(s.T, s.source, "vendor/web", d, d) }, ""},
		"a bundle of another key": {func(s *site, d string) {
			s.source.Attach(s.T, "vendor/web", d, stranger.Bundle(s.T, d, imagetest.Predicate))
		}, ""},
		"a payload for another one": {func(s *site, d string) { signer.Payload(s.T, s.source, "vendor/web", d, other) }, ""},
		"a bundle for another one": {func(s *site, d string) {
			s.source.Attach(s.T, "vendor/web", d, signer.Bundle(s.T, other, imagetest.Predicate))
		}, ""},
		"a signed SBOM only": {func(s *site, d string) {
			s.source.Attach(s.T, "vendor/web", d, signer.Bundle(s.T, d, "https://spdx.dev/Document"))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			digest := s.source.Push(t, "vendor/web:1", "linux/amd64")
			tc.sign(s, digest)
			s.keys["cosign.pub"] = &fstest.MapFile{Data: []byte(signer.PEM)}
			src := s.read(web, "verify: {keys: [cosign.pub]}")
			p, err := s.engine(src.Image).Plan(t.Context(), src)
			if tc.want == "" {
				if plugin.ReasonOf(err) != fairlead.ReasonSignatureInvalid {
					t.Errorf("the plan is %s, error %v", p.Saved, err)
				}
				return
			}
			if err != nil || p.Changes[0].After.(map[string]any)["signature"] != tc.want {
				t.Errorf("the changes are %+v, error %v", p.Changes, err)
			}
		})
	}
}
