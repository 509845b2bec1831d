package mirror

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/errs"
	"github.com/regclient/regclient/types/manifest"
	"github.com/regclient/regclient/types/ref"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/signature"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The limits of an image. An image beyond them is refused, so that a hostile source cannot make a plan endless.
const (
	maxManifests = 500 // of an image
	maxDepth     = 3   // of indexes in indexes, and of referrers of referrers
	maxExtras    = 1000
	maxSigned    = 1 << 20 // bytes of a signature
	atOnce       = 6       // requests
)

// content is what the manifests of an image name.
type content struct {
	manifests []string         // digests: the image itself first, then its platforms
	subjects  []string         // those that can have signatures: all but attestations
	platforms []string         // sorted, each once
	blobs     map[string]int64 // sizes by digest
}

func (c *content) size() int64 {
	var n int64
	for _, size := range c.blobs {
		n += size
	}
	return n
}

// walk reads the manifests of an image.
func (e *Engine) walk(ctx context.Context, image ref.Ref) (*content, error) {
	c := &content{blobs: map[string]int64{}}
	if err := e.enter(ctx, c, image, nil, 0); err != nil {
		return nil, err
	}
	slices.Sort(c.platforms)
	c.platforms = slices.Compact(c.platforms)
	return c, nil
}

func (e *Engine) enter(ctx context.Context, c *content, image ref.Ref, in *descriptor.Descriptor, depth int) error {
	if slices.Contains(c.manifests, image.Digest) {
		return nil
	}
	if len(c.manifests) >= maxManifests || depth > maxDepth {
		return tooLarge(image)
	}
	m, err := e.Client.ManifestGet(ctx, image)
	if err != nil {
		return err
	}
	attests := in != nil && in.Platform != nil && in.Platform.OS == "unknown"
	c.manifests = append(c.manifests, image.Digest)
	if !attests {
		c.subjects = append(c.subjects, image.Digest)
	}
	if index, ok := m.(manifest.Indexer); ok {
		children, err := index.GetManifestList()
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := e.enter(ctx, c, image.SetDigest(string(child.Digest)), &child, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	img, ok := m.(manifest.Imager)
	if !ok {
		return fmt.Errorf("%w: %s", errs.ErrUnsupportedMediaType, m.GetDescriptor().MediaType)
	}
	layers, err := img.GetLayers()
	if err != nil {
		return err
	}
	config, err := img.GetConfig()
	if err != nil {
		return err
	}
	for _, d := range append(layers, config) {
		if len(d.URLs) == 0 { // others are not in the registry
			c.blobs[string(d.Digest)] = d.Size
		}
	}
	if attests {
		return nil
	}
	return e.platform(ctx, c, image, in, config)
}

// platform adds the platform of an image without an index, which only its configuration names.
func (e *Engine) platform(ctx context.Context, c *content, image ref.Ref, in *descriptor.Descriptor, config descriptor.Descriptor) error {
	if in != nil && in.Platform != nil {
		c.platforms = append(c.platforms, in.Platform.String())
		return nil
	}
	conf, err := e.Client.BlobGetOCIConfig(ctx, image, config)
	if err != nil {
		return err
	}
	if p := conf.GetConfig().Platform; p.OS != "" {
		c.platforms = append(c.platforms, p.String())
	}
	return nil
}

func tooLarge(image ref.Ref) error {
	return plugin.Errorf(fairlead.ReasonImageDamaged, "the image %s has more than %d manifests, more than %d that refer to it, or indexes more than %d deep: it is not copied", image.CommonName(), maxManifests, maxExtras, maxDepth)
}

// digestTags are the endings of the tags in which cosign before version 3 keeps what belongs to a digest.
var digestTags = []string{".sig", ".att", ".sbom"}

func digestTag(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// extras lists what belongs to the image in its registry: the manifests that refer to it or to one of its platforms, what refers to
// those, and digest tags. The order is stable; a subject comes before what refers to it.
func (e *Engine) extras(ctx context.Context, image ref.Ref, c *content) ([]extra, error) {
	var mu sync.Mutex
	var found []leveled
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, subject := range c.subjects {
		group.Go(func() error {
			x, err := e.extrasOf(inner, image.SetDigest(subject), 0)
			mu.Lock()
			defer mu.Unlock()
			found = append(found, x...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if len(found) > maxExtras {
		return nil, tooLarge(image)
	}
	slices.SortFunc(found, func(a, b leveled) int {
		return cmp.Or(a.level-b.level, strings.Compare(a.Digest, b.Digest), strings.Compare(a.Tag, b.Tag))
	})
	var all []extra
	for _, x := range found {
		if !slices.Contains(all, x.extra) {
			all = append(all, x.extra)
		}
	}
	return all, nil
}

// leveled is an extra with the number of subjects between it and the image.
type leveled struct {
	extra
	level int
}

func (e *Engine) extrasOf(ctx context.Context, subject ref.Ref, depth int) ([]leveled, error) {
	var found []leveled
	if depth == 0 {
		for _, ending := range digestTags {
			tag := digestTag(subject.Digest) + ending
			digest, err := e.resolve(ctx, subject.SetTag(tag))
			if isMissing(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = append(found, leveled{extra{Digest: digest, Tag: tag}, depth})
		}
	}
	list, err := e.Client.ReferrerList(ctx, subject)
	if err != nil && !isAbsent(err) {
		return nil, err
	}
	for _, d := range list.Descriptors {
		found = append(found, leveled{extra{Digest: string(d.Digest)}, depth})
		if depth < maxDepth {
			more, err := e.extrasOf(ctx, subject.SetDigest(string(d.Digest)), depth+1)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	}
	return found, nil
}

func isMissing(err error) bool {
	return err != nil && plugin.ReasonOf(err) == fairlead.ReasonImageMissing
}

// lacking returns the extras that the target does not have.
func (e *Engine) lacking(ctx context.Context, extras []extra) ([]extra, error) {
	var lost []extra
	for _, x := range extras {
		r := e.Target.ref().SetDigest(x.Digest)
		if x.Tag != "" {
			r = e.Target.ref().SetTag(x.Tag)
		}
		m, err := e.Client.ManifestHead(ctx, r)
		switch {
		case isAbsent(err) || err == nil && string(m.GetDescriptor().Digest) != x.Digest:
			lost = append(lost, x)
		case err != nil:
			return nil, e.Client.failure(ctx, err, e.Target.Host(), "looking for "+r.CommonName())
		}
	}
	return lost, nil
}

// signed is the signature that was verified.
type signed struct {
	key  string
	form signature.Form
}

// verify finds a signature of the image by one of the keys. It returns the zero signed if there are no keys.
func (e *Engine) verify(ctx context.Context, image ref.Ref, extras []extra, keys []signature.Key) (signed, error) {
	if len(keys) == 0 {
		return signed{}, nil
	}
	var refused []string
	for _, x := range extras {
		if x.Tag != "" && x.Tag != digestTag(image.Digest)+".sig" {
			continue
		}
		s, why, err := e.verifyExtra(ctx, image, x, keys)
		if err != nil {
			return signed{}, e.Client.failure(ctx, err, image.Registry, "reading the signatures of the image "+image.CommonName())
		}
		if s.key != "" {
			return s, nil
		}
		refused = append(refused, why...)
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	why := "it has no signature"
	if len(refused) > 0 {
		why = strings.Join(refused, "; ")
	}
	return signed{}, plugin.Errorf(fairlead.ReasonSignatureInvalid, "the image %s is not signed by %s: %s. Nothing was copied",
		image.CommonName(), strings.Join(names, " or "), fairlead.Clip(why, 1000))
}

// verifyExtra verifies the signatures in a manifest. why has the reasons of those that do not verify.
func (e *Engine) verifyExtra(ctx context.Context, image ref.Ref, x extra, keys []signature.Key) (_ signed, why []string, _ error) {
	at := image.SetDigest(x.Digest)
	m, err := e.Client.ManifestGet(ctx, at)
	if err != nil {
		return signed{}, nil, err
	}
	img, ok := m.(manifest.Imager)
	if !ok {
		return signed{}, nil, nil
	}
	layers, err := img.GetLayers()
	if err != nil {
		return signed{}, nil, nil
	}
	for _, layer := range layers {
		var form signature.Form
		switch {
		case x.Tag != "" && layer.MediaType == signature.PayloadType:
			form = signature.Payload
		case x.Tag == "" && strings.HasPrefix(layer.MediaType, signature.BundleType):
			form = signature.Bundle
		default:
			continue
		}
		if layer.Size > maxSigned {
			why = append(why, fmt.Sprintf("the signature %s is larger than %d bytes", layer.Digest, maxSigned))
			continue
		}
		text, err := e.blob(ctx, at, layer)
		if err != nil {
			return signed{}, nil, err
		}
		for _, k := range keys {
			var err error
			if form == signature.Payload {
				err = k.VerifyPayload(text, layer.Annotations[signature.Annotation], image.Digest)
			} else {
				err = k.VerifyBundle(text, image.Digest)
			}
			if err == nil {
				return signed{k.Name, form}, nil, nil
			}
			why = append(why, fmt.Sprintf("%s: %v", k.Name, err))
		}
	}
	return signed{}, why, nil
}

func (e *Engine) blob(ctx context.Context, at ref.Ref, d descriptor.Descriptor) ([]byte, error) {
	r, err := e.Client.BlobGet(ctx, at, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxSigned+1)) // the reader verifies the digest at its end
}

// change is what a plan found out about an image.
type change struct {
	image   ref.Ref
	digest  string
	content *content
	there   bool // the target has the image's manifest
	had     []copied
	lost    []extra
	signed  signed
	removed []string
}

func (e *Engine) changes(ctx context.Context, c change) ([]changeset.Change, error) {
	missing, err := e.missing(ctx, c.content)
	if err != nil {
		return nil, err
	}
	after := map[string]any{"source": c.image.CommonName(), "digest": c.digest, "platforms": c.content.platforms, "bytes": c.content.size(), "bytes_to_copy": missing, "signature": "not verified"}
	if c.signed.key != "" {
		after["signature"] = fmt.Sprintf("verified with %s (%s)", c.signed.key, c.signed.form)
	}
	if len(c.lost) > 0 {
		after["signatures_to_copy"] = len(c.lost)
	}
	ch := changeset.Change{Address: e.address(), Kind: component.Image, Action: changeset.Create, After: after}
	if len(c.had) > 0 {
		ch.Action, ch.Before = changeset.Update, map[string]any{"digest": c.had[0].digest}
		if ch.Changed = []string{"/digest"}; c.had[0].digest == c.digest {
			ch.Changed, ch.Reason = nil, "the copy is not complete"
		}
	}
	all := []changeset.Change{ch}
	for _, digest := range c.removed {
		all = append(all, e.removal(digest))
	}
	return all, nil
}

// missing returns the bytes of the layers that the target does not have.
func (e *Engine) missing(ctx context.Context, c *content) (int64, error) {
	var mu sync.Mutex
	var n int64
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for digest, size := range c.blobs {
		group.Go(func() error {
			r := e.Target.ref().SetDigest(digest)
			d, err := descriptorOf(digest, size)
			if err != nil {
				return err
			}
			b, err := e.Client.BlobHead(inner, r, d)
			if err == nil {
				return b.Close()
			}
			if !isAbsent(err) {
				return e.Client.failure(inner, err, e.Target.Host(), "looking for the layer "+digest)
			}
			mu.Lock()
			n += size
			mu.Unlock()
			return nil
		})
	}
	return n, group.Wait()
}
