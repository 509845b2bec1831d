package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/imagetest/memorytest"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
)

// site is a vendor's registry with an image, and the registry of an install.
type site struct {
	*testing.T
	source, target *imagetest.Registry
	keys           fstest.MapFS
	log            bytes.Buffer
}

const repository = "prefix/ins_1/web"

func newSite(t *testing.T, source, target memorytest.Kind) *site {
	t.Helper()
	return &site{T: t, source: memorytest.Start(t, source), target: memorytest.Start(t, target), keys: fstest.MapFS{}}
}

// read returns the source of a component's file.
func (s *site) read(lines ...string) mirror.Source {
	s.Helper()
	s.keys[mirror.File] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "HOST", s.source.Host))}
	src, err := mirror.Read(s.keys, map[string]json.RawMessage{"tag": json.RawMessage(`"1"`), "major": json.RawMessage("1"), "list": json.RawMessage("[]")})
	if err != nil {
		s.Fatal(err)
	}
	return src
}

func (s *site) engine(sources ...ref.Ref) *mirror.Engine {
	target := mirror.Target{URL: s.target.URL(), Repository: repository}
	return &mirror.Engine{Client: mirror.NewClient(target, mirror.Options{Delay: time.Millisecond}, sources...), Target: target, Log: &s.log}
}

func (s *site) plan(lines ...string) mirror.Planned {
	s.Helper()
	src := s.read(lines...)
	p, err := s.engine(src.Image).Plan(s.Context(), src)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// try applies a plan.
func (s *site) try(ctx context.Context, p mirror.Planned) (mirror.Outputs, error) {
	return s.engine(mirror.SourcesOf(p.Saved)...).Apply(ctx, p.Saved, func() error { return nil })
}

func (s *site) apply(p mirror.Planned) mirror.Outputs {
	s.Helper()
	out, err := s.try(s.Context(), p)
	if err != nil {
		s.Fatalf("%v\n%s", err, &s.log)
	}
	return out
}

func (s *site) destroy() {
	s.Helper()
	p, err := s.engine().PlanDestroy(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.apply(p)
}

const web = "image: HOST/vendor/web:1"

// An image travels as a whole: each platform, and the signatures in both forms. A component that has it has nothing to do, and one that
// is destroyed leaves nothing.
func TestImageTravelsWithItsSignatures(t *testing.T) {
	for _, source := range []memorytest.Kind{memorytest.Whole, memorytest.Plain} {
		for _, target := range []memorytest.Kind{memorytest.Whole, memorytest.Plain} {
			t.Run("from a registry "+string(source)+" to one "+string(target), func(t *testing.T) {
				s := newSite(t, source, target)
				digest := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
				signer := imagetest.NewSigner(t)
				signer.Payload(t, s.source, "vendor/web", digest, digest)
				bundle := s.source.Attach(t, "vendor/web", digest, signer.Bundle(t, digest, imagetest.Predicate))

				p := s.plan(web)
				if p.NoOp || len(p.Changes) != 1 || p.Changes[0].Action != changeset.Create || len(s.target.Tags(t, repository)) > 0 {
					t.Fatalf("the plan is %s; the target has %v", p.Saved, s.target.Tags(t, repository))
				}
				after := p.Changes[0].After.(map[string]any)
				if after["digest"] != digest || !slices.Equal(after["platforms"].([]string), []string{"linux/amd64", "linux/arm64"}) || after["bytes_to_copy"] != after["bytes"] {
					t.Errorf("the facts are %v", after)
				}
				out := s.apply(p)
				if want := s.target.Host + "/" + repository + "@" + digest; out.Reference != want || out.Digest != digest {
					t.Errorf("the outputs are %+v, want %s", out, want)
				}
				if got := s.target.Pull(t, repository+"@"+digest); got != digest {
					t.Errorf("the target has %q", got)
				}
				if got := s.target.Referrers(t, repository, digest); !slices.Equal(got, []string{bundle}) {
					t.Errorf("%v refer to the image, want %s", got, bundle)
				}
				if s.target.Pull(t, repository+":"+strings.Replace(digest, ":", "-", 1)+".sig") == "" {
					t.Errorf("the tag of the signature is not there: %v", s.target.Tags(t, repository))
				}
				if again := s.plan(web); !again.NoOp || len(again.Changes) > 0 || again.Outputs != out {
					t.Errorf("without a change, the plan is %+v", again)
				}
				s.destroy()
				if tags := s.target.Tags(t, repository); len(tags) > 0 || s.target.Pull(t, repository+"@"+digest) != "" {
					t.Errorf("the destroy left %v, and %s", tags, s.target.Pull(t, repository+"@"+digest))
				}
			})
		}
	}
}

// The plan pins the digest: a tag that moves between plan and apply changes nothing, and the next plan shows it.
func TestApplyCopiesTheDigestOfThePlan(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	planned := s.source.Push(t, "vendor/web:1", "linux/amd64")
	p := s.plan(web)
	moved := s.source.Push(t, "vendor/web:1", "linux/amd64")
	if out := s.apply(p); out.Digest != planned || s.target.Pull(t, repository+"@"+moved) != "" {
		t.Errorf("the outputs are %+v", out)
	}
	p = s.plan(web)
	if len(p.Changes) != 1 || p.Changes[0].Action != changeset.Update || p.Outputs.Digest != moved || p.Before.Digest != planned {
		t.Errorf("after the tag has moved, the plan is %+v", p)
	}
}

// What uses the component runs the earlier image until it is deployed too, so that one stays unless the component keeps none.
func TestEarlierImagesStayAsLongAsTheyAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		left int // earlier images after the third apply
	}{
		"by default, one stays": {"", 1},
		"keep: 0, none stays":   {"keep: 0", 0},
		"keep: 2, two stay":     {"keep: 2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memorytest.Whole, memorytest.Whole)
			var digests []string
			for range 3 {
				digests = append(digests, s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64"))
				s.apply(s.plan(web, tc.line))
			}
			if again := s.plan(web, tc.line); !again.NoOp {
				t.Errorf("after the last apply, the plan is %+v", again)
			}
			for i, digest := range digests {
				if there := s.target.Pull(t, repository+"@"+digest) != ""; there != (i >= len(digests)-1-tc.left) {
					t.Errorf("image %d is there: %v; tags %v", i, there, s.target.Tags(t, repository))
				}
			}
			s.destroy()
			if tags := s.target.Tags(t, repository); len(tags) > 0 {
				t.Errorf("the destroy left %v", tags)
			}
		})
	}
}

// A platform that an earlier image shares with the new one stays.
func TestSharedPlatformStays(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Plain) // a registry that deletes a platform although an index names it
	first := s.source.Push(t, "vendor/web:1", "linux/amd64", "linux/arm64")
	s.apply(s.plan(web, "keep: 0"))
	second := s.source.PushFirst(t, "vendor/web:1", "vendor/web@"+first)
	s.apply(s.plan(web, "keep: 0"))
	if got := s.target.Pull(t, repository+"@"+second); got != second || s.target.Pull(t, repository+"@"+first) != "" {
		t.Errorf("the target has %q", got)
	}
}

// An older image that comes back is the newest one again, so it is not removed as an earlier one.
func TestRollbackMakesAnEarlierImageTheNewest(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	first := s.source.Push(t, "vendor/web:1", "linux/amd64")
	second := s.source.Push(t, "vendor/web:2", "linux/amd64")
	one, two := "image: HOST/vendor/web@"+first, "image: HOST/vendor/web@"+second
	s.apply(s.plan(one))
	s.apply(s.plan(two))
	if p := s.plan(one); p.NoOp || p.Changes[0].After.(map[string]any)["bytes_to_copy"] != int64(0) {
		t.Errorf("the plan of the rollback is %+v", p)
	}
	s.apply(s.plan(one))
	if p := s.plan(one); !p.NoOp {
		t.Errorf("after the rollback, the plan is %+v", p)
	}
	if p := s.plan(two); p.NoOp || p.Before.Digest != first {
		t.Errorf("the plan of the next version is %+v", p)
	}
}

// A signature that is added later is copied, although the image has not changed.
func TestLaterSignatureIsCopied(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	digest := s.source.Push(t, "vendor/web:1", "linux/amd64")
	s.apply(s.plan(web))
	signer := imagetest.NewSigner(t)
	signer.Payload(t, s.source, "vendor/web", digest, digest)
	p := s.plan(web)
	if p.NoOp || p.Changes[0].Action != changeset.Update || p.Changes[0].After.(map[string]any)["signatures_to_copy"] != 1 {
		t.Fatalf("the plan is %+v", p)
	}
	s.apply(p)
	if p := s.plan(web); !p.NoOp {
		t.Errorf("after the apply, the plan is %+v", p)
	}
}

// A plan that another apply has overtaken is refused before the first change.
func TestOvertakenPlanIsStale(t *testing.T) {
	s := newSite(t, memorytest.Whole, memorytest.Whole)
	s.source.Push(t, "vendor/web:1", "linux/amd64")
	old := s.plan(web)
	s.apply(old)
	began := false
	_, err := s.engine(mirror.SourcesOf(old.Saved)...).Apply(t.Context(), old.Saved, func() error { began = true; return nil })
	if plugin.ReasonOf(err) != fairlead.ReasonPlanStale || began {
		t.Errorf("began %v, error %v", began, err)
	}
}
