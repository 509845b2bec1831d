// Package mirror copies the image of a component from its registry to the registry of the install: by digest, with all platforms, and
// with everything that refers to the image, such as signatures in both of cosign's forms.
//
// A component has a repository of its own. The tag fairlead-NUMBER-DIGEST in it states that the copy of an image is complete, so the
// tags are the list of what the component has copied, in their order. A plan reads this list and compares it with the source. The
// apply copies exactly the digests of the plan, and writes the tag last: after an apply that died, the next plan copies the rest.
package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/regclient/regclient/scheme"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Engine plans and applies a component. The field Client can reach the source and the target.
type Engine struct {
	Client *Client
	Target Target
	Mirror Target    // a repository of the target's registry that can have the images of a lock; zero: there is none
	Log    io.Writer // a line for each layer and manifest, without secrets
}

// Planned is the result of a plan.
type Planned struct {
	Saved   []byte // what Apply needs
	NoOp    bool
	Changes []changeset.Change
	Before  Outputs // of what the target has; zero: nothing
	Outputs Outputs // after the apply; zero for a destroy
	Copies  *Copies // after the apply of a lock's images; nil: another plan
}

// Outputs are the outputs of a component. They hold no secret.
type Outputs struct {
	Reference string // HOST/REPOSITORY@sha256:…, by which a cluster pulls the image
	Digest    string
}

const savedVersion = 1

// saved is the saved plan.
type saved struct {
	V       int      `json:"v"`
	Target  Target   `json:"target"`
	Source  string   `json:"source,omitempty"`  // repository of the image; "": nothing is copied
	Digest  string   `json:"digest,omitempty"`  // of the image
	Tag     string   `json:"tag,omitempty"`     // written last; "": the image has a tag
	Extras  []extra  `json:"extras,omitempty"`  // manifests that belong to the image, in the order in which they are copied
	Found   []string `json:"found,omitempty"`   // tags of the component at the plan, sorted
	Removed []string `json:"removed,omitempty"` // digests of images
	All     bool     `json:"all,omitempty"`     // a destroy: nothing of the repository stays

	// Of a plan of a lock's images. Digest is that of the index.
	Index   string   `json:"index,omitempty"`   // text of the index; "": nothing is copied
	Members []member `json:"members,omitempty"` // images that are copied
	Copies  *Copies  `json:"copies,omitempty"`
}

// extra is a manifest that belongs to an image: it refers to the image, or has a tag that names its digest.
type extra struct {
	Digest string `json:"digest"`
	Tag    string `json:"tag,omitempty"`
}

// copied is an image that the component has copied.
type copied struct {
	number int
	digest string
}

var tagPattern = pattern.New(`^fairlead-([0-9]{6,9})-([0-9a-f]{64})$`)

func tagOf(number int, digest string) string {
	return fmt.Sprintf("fairlead-%06d-%s", number, strings.TrimPrefix(digest, "sha256:"))
}

// copies lists the images that the component has copied, the newest first, each once, and the tags.
func (e *Engine) copies(ctx context.Context) (images []copied, tags []string, err error) {
	all, err := e.tags(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, tag := range all {
		m := tagPattern.FindStringSubmatch(tag)
		if m == nil {
			continue
		}
		number, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		tags = append(tags, tag)
		images = append(images, copied{number, "sha256:" + m[2]})
	}
	slices.SortFunc(images, func(a, b copied) int { return b.number - a.number })
	seen := map[string]bool{}
	images = slices.DeleteFunc(images, func(c copied) bool {
		was := seen[c.digest]
		seen[c.digest] = true
		return was
	})
	slices.Sort(tags)
	return images, tags, nil
}

// tags lists all tags of the target's repository.
func (e *Engine) tags(ctx context.Context) ([]string, error) {
	list, err := e.Client.TagList(ctx, e.Target.ref(), scheme.WithTagLimit(1000))
	if isAbsent(err) {
		return nil, nil // the repository does not exist
	}
	if err != nil {
		return nil, e.Client.failure(ctx, err, e.Target.Host(), "listing the tags of "+e.Target.Repository)
	}
	tags, err := list.GetTags()
	if err != nil {
		return nil, e.Client.failure(ctx, err, e.Target.Host(), "listing the tags of "+e.Target.Repository)
	}
	return tags, nil
}

func (e *Engine) outputs(digest string) Outputs {
	return Outputs{Reference: e.address() + "@" + digest, Digest: digest}
}

func (e *Engine) newest(had []copied) Outputs {
	if len(had) == 0 {
		return Outputs{}
	}
	return e.outputs(had[0].digest)
}

func (e *Engine) address() string { return e.Target.Host() + "/" + e.Target.Repository }

// Plan compares the source with what the target has. It sends no request that changes something.
func (e *Engine) Plan(ctx context.Context, src Source) (Planned, error) {
	had, tags, err := e.copies(ctx)
	if err != nil {
		return Planned{}, err
	}
	digest, err := e.resolve(ctx, src.Image)
	if err != nil {
		return Planned{}, err
	}
	image := src.Image.SetDigest(digest)
	there, err := e.has(ctx, e.Target.ref().SetDigest(digest))
	if err != nil {
		return Planned{}, err
	}
	from := image
	if there { // the content of a digest is the same in each registry, and the source may limit requests
		from = e.Target.ref().SetDigest(digest)
	}
	c, err := e.walk(ctx, from)
	if there && isAbsent(err) { // the target lacks a platform
		there = false
		c, err = e.walk(ctx, image)
	}
	if err != nil {
		return Planned{}, e.Client.failure(ctx, err, from.Registry, "reading the image "+from.CommonName())
	}
	if missing := lacks(c.platforms, src.Platforms); missing != "" {
		return Planned{}, plugin.Errorf(fairlead.ReasonImageMissing, "the image %s is not built for %s: it has %s. Push an image with this platform, or remove the platform from %s",
			image.CommonName(), missing, strings.Join(c.platforms, ", "), File)
	}
	extras, err := e.extras(ctx, image, c)
	if err != nil {
		return Planned{}, e.Client.failure(ctx, err, image.Registry, "reading what refers to the image "+image.CommonName())
	}
	signed, err := e.verify(ctx, image, extras, src.Keys)
	if err != nil {
		return Planned{}, err
	}
	current := len(had) > 0 && had[0].digest == digest && there
	lost, err := e.lacking(ctx, extras)
	if err != nil {
		return Planned{}, err
	}
	s := saved{V: savedVersion, Target: e.Target, Source: image.SetDigest("").SetTag("").CommonName(), Digest: digest, Extras: extras, Found: tags}
	out := Planned{Outputs: e.outputs(digest), Before: e.newest(had)}
	if current && len(lost) == 0 {
		out.NoOp = true
		s.Source = ""
	} else {
		if !current || len(tags) == 0 {
			s.Tag = tagOf(next(had), digest)
		}
		s.Removed = surplus(had, digest, src.Keep)
		out.Changes, err = e.changes(ctx, change{image: src.Image, digest: digest, content: c, there: there, had: had, lost: lost, signed: signed, removed: s.Removed})
		if err != nil {
			return Planned{}, err
		}
	}
	out.Saved, err = json.Marshal(s)
	return out, err
}

func next(had []copied) int {
	if len(had) == 0 {
		return 1
	}
	return had[0].number + 1
}

// surplus returns the images to remove when the component has the image digest: all but that image and keep earlier ones.
func surplus(had []copied, digest string, keep int) []string {
	var removed []string
	for _, c := range had {
		switch {
		case c.digest == digest:
		case keep > 0:
			keep--
		default:
			removed = append(removed, c.digest)
		}
	}
	return removed
}

// resolve returns the digest of the image.
func (e *Engine) resolve(ctx context.Context, image ref.Ref) (string, error) {
	if image.Digest != "" {
		return image.Digest, nil
	}
	m, err := e.Client.ManifestHead(ctx, image)
	if err == nil && m.GetDescriptor().Digest == "" {
		m, err = e.Client.ManifestGet(ctx, image) // a registry that returns no digest with the headers
	}
	if err != nil {
		return "", e.Client.failure(ctx, err, image.Registry, "finding the digest of the image "+image.CommonName())
	}
	return string(m.GetDescriptor().Digest), nil
}

// has reports whether a registry has a manifest.
func (e *Engine) has(ctx context.Context, r ref.Ref) (bool, error) {
	_, err := e.Client.ManifestHead(ctx, r)
	if isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, e.Client.failure(ctx, err, r.Registry, "looking for the image "+r.CommonName())
	}
	return true, nil
}

// PlanDestroy plans the removal of everything that the component has copied.
func (e *Engine) PlanDestroy(ctx context.Context) (Planned, error) {
	had, tags, err := e.copies(ctx)
	if err != nil {
		return Planned{}, err
	}
	s := saved{V: savedVersion, Target: e.Target, Found: tags, All: true}
	all, err := e.tags(ctx)
	if err != nil {
		return Planned{}, err
	}
	out := Planned{NoOp: len(all) == 0, Before: e.newest(had)}
	for _, c := range had {
		s.Removed = append(s.Removed, c.digest)
		out.Changes = append(out.Changes, e.removal(c.digest))
	}
	if len(had) == 0 && !out.NoOp { // an apply died before its copy was complete
		out.Changes = append(out.Changes, changeset.Change{Address: e.address(), Kind: component.Image, Action: changeset.Delete, Reason: "an incomplete copy"})
	}
	out.Saved, err = json.Marshal(s)
	return out, err
}

func (e *Engine) removal(digest string) changeset.Change {
	return changeset.Change{Address: e.address() + "@" + digest, Kind: component.Image, Action: changeset.Delete, Before: map[string]any{"digest": digest}}
}
