package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/regclient/regclient"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/errs"
	"github.com/regclient/regclient/types/manifest"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

func descriptorOf(text string, size int64) (descriptor.Descriptor, error) {
	d, err := digest.Parse(text)
	if err != nil {
		return descriptor.Descriptor{}, fmt.Errorf("the digest %.100q: %w", text, err)
	}
	return descriptor.Descriptor{Digest: d, Size: size}, nil
}

// SourcesOf returns the repositories from which a saved plan copies.
func SourcesOf(text []byte) []ref.Ref {
	var s saved
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	names := []string{s.Source}
	for _, m := range s.Members {
		names = append(names, m.Source)
	}
	var all []ref.Ref
	for _, name := range names {
		if source, err := ref.New(name); name != "" && err == nil {
			all = append(all, source)
		}
	}
	return all
}

// CopiesOf returns the outputs after the apply of a saved plan; nil: it is not one of a lock's images, or it destroys them.
func CopiesOf(text []byte) *Copies {
	var s saved
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	return s.Copies
}

// Apply copies and removes what the saved plan names. It calls begin before the first change, and makes no change after an error
// of begin.
func (e *Engine) Apply(ctx context.Context, text []byte, begin func() error) (Outputs, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil || s.V != savedVersion {
		return Outputs{}, plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan is not one of this version of the runner: plan again")
	}
	if s.Target != e.Target {
		return Outputs{}, plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan is for %s/%s, and the component's images are now in %s: plan again", s.Target.Host(), s.Target.Repository, e.address())
	}
	_, tags, err := e.copies(ctx)
	if err != nil {
		return Outputs{}, err
	}
	if !slices.Equal(tags, s.Found) {
		return Outputs{}, plugin.Errorf(fairlead.ReasonPlanStale, "the images in %s have changed since the plan: plan again", e.address())
	}
	if s.Source != "" {
		if err := e.copy(ctx, s, begin); err != nil {
			return Outputs{}, err
		}
	}
	if s.Index != "" {
		if err := e.copySet(ctx, s, begin); err != nil {
			return Outputs{}, err
		}
	}
	if len(s.Removed) > 0 || s.All {
		if err := begin(); err != nil {
			return Outputs{}, err
		}
		err := e.remove(ctx, s)
		if plugin.ReasonOf(err) == fairlead.ReasonRegistryForbidden && !s.All { // the copy is complete, and a later destroy can have another login
			fmt.Fprintf(e.Log, "The login may not delete earlier images of %s: they stay.\n", e.address())
			err = nil
		}
		if err != nil {
			return Outputs{}, err
		}
	}
	if s.All {
		return Outputs{}, nil
	}
	return e.outputs(s.Digest), nil
}

// remove deletes images with everything that belongs only to them. A destroy deletes every tag of the repository.
func (e *Engine) remove(ctx context.Context, s saved) error {
	kept := map[string]bool{}
	if !s.All {
		had, _, err := e.copies(ctx)
		if err != nil {
			return err
		}
		for _, c := range had {
			if slices.Contains(s.Removed, c.digest) {
				continue
			}
			of, err := e.closure(ctx, c.digest)
			if err != nil {
				return err
			}
			for _, x := range of {
				kept[x.Digest] = true
			}
		}
	}
	for _, image := range s.Removed {
		of, err := e.closure(ctx, image)
		if err != nil {
			return err
		}
		of = slices.DeleteFunc(of, func(x extra) bool { return kept[x.Digest] })
		if err := e.deleteAll(ctx, of); err != nil {
			return err
		}
		fmt.Fprintf(e.Log, "%s@%s: removed\n", e.address(), image)
	}
	return e.untag(ctx, s)
}

// untag removes the tags that remain: those of attempts that died, and all of a registry that keeps the tags of deleted manifests.
func (e *Engine) untag(ctx context.Context, s saved) error {
	if e.Client.keepsManifests() {
		return nil
	}
	tags, err := e.tags(ctx)
	if err != nil {
		return err
	}
	for _, tag := range tags {
		m := tagPattern.FindStringSubmatch(tag)
		if !s.All && (m == nil || !slices.Contains(s.Removed, "sha256:"+m[2])) {
			continue
		}
		err := e.Client.TagDelete(ctx, e.Target.ref().SetTag(tag))
		if err != nil && !isAbsent(err) {
			return e.Client.failure(ctx, err, e.Target.Host(), "removing the tag "+tag+" of "+e.address())
		}
	}
	return nil
}

// closure lists the manifests of an image in the target: what belongs to it first, then its platforms, then the image itself. So the
// image with its tag is found again after an apply that died.
func (e *Engine) closure(ctx context.Context, image string) ([]extra, error) {
	at := e.Target.ref().SetDigest(image)
	c, err := e.walkThere(ctx, at)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.Client.failure(ctx, err, at.Registry, "reading the image "+at.CommonName())
	}
	of, err := e.extras(ctx, at, c)
	if err != nil {
		return nil, e.Client.failure(ctx, err, at.Registry, "reading what refers to the image "+at.CommonName())
	}
	slices.Reverse(c.manifests)
	for _, d := range c.manifests {
		of = append(of, extra{Digest: d})
	}
	return of, nil
}

// walkThere lists the manifests of an image that exist. Platforms that a removal has deleted before it died are left out.
func (e *Engine) walkThere(ctx context.Context, at ref.Ref) (*content, error) {
	m, err := e.Client.ManifestGet(ctx, at)
	if err != nil {
		return nil, err
	}
	c := &content{manifests: []string{at.Digest}, subjects: []string{at.Digest}}
	index, ok := m.(manifest.Indexer)
	if !ok {
		return c, nil
	}
	children, err := index.GetManifestList()
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		sub, err := e.walkThere(ctx, at.SetDigest(string(child.Digest)))
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.manifests, c.subjects = append(c.manifests, sub.manifests...), append(c.subjects, sub.subjects...)
	}
	return c, nil
}

// deleteAll deletes manifests of the target. Some registries refuse to delete a platform before its index, so those are deleted at
// the end. A registry without deletion keeps them.
func (e *Engine) deleteAll(ctx context.Context, list []extra) error {
	var later []extra
	for _, x := range list {
		err := e.deleteOne(ctx, x.Digest)
		switch {
		case err == nil:
		case e.Client.keepsManifests():
			fmt.Fprintf(e.Log, "The registry %s does not delete manifests: %s stays.\n", e.Target.Host(), e.address())
			return nil
		case ctx.Err() == nil && !errors.Is(err, errs.ErrHTTPUnauthorized):
			later = append(later, x)
		default:
			return e.Client.failure(ctx, err, e.Target.Host(), "deleting "+e.address()+"@"+x.Digest)
		}
	}
	for _, x := range later {
		if err := e.deleteOne(ctx, x.Digest); err != nil {
			return e.Client.failure(ctx, err, e.Target.Host(), "deleting "+e.address()+"@"+x.Digest)
		}
	}
	return nil
}

func (e *Engine) deleteOne(ctx context.Context, digest string) error {
	err := e.Client.ManifestDelete(ctx, e.Target.ref().SetDigest(digest), regclient.WithManifestCheckReferrers())
	if isAbsent(err) {
		return nil
	}
	return err
}
