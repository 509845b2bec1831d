package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/manifest"
	"github.com/regclient/regclient/types/ref"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/runner/plugin"
)

// keptSets is how many earlier sets stay: what uses the images still runs those of the earlier set until it is deployed too.
const keptSets = 1

// member is an image of a set that the apply copies.
type member struct {
	Source string  `json:"source"` // repository
	Digest string  `json:"digest"`
	Extras []extra `json:"extras,omitempty"`
}

// Copies are the outputs of a component that copies the images of a lock. They hold no secret.
type Copies struct {
	Digest   string            `json:"digest"`   // of the index that names all images
	Images   map[string]string `json:"images"`   // the copies by digest, by the references of the lock
	Named    map[string]string `json:"named"`    // the copies of the images that app.yaml names, by name
	Registry string            `json:"registry"` // the begin of the references to all images of the install
}

// ReadLock reads the lock of a component's folder. Problems name the file and the line; the reason is artifact-invalid.
func ReadLock(folder fs.FS) (bundle.Lock, error) {
	text, err := readFile(folder, bundle.File, bundle.MaxFile)
	if err != nil {
		return bundle.Lock{}, invalid("the component has no file %s that can be read: %v", bundle.File, err)
	}
	lock, problems := bundle.Read(bundle.File, text)
	if len(problems) > 0 {
		return bundle.Lock{}, invalid("%s", yamlnode.Lines(problems))
	}
	return lock, nil
}

// Mirrored returns the repository of the target's registry that can have the images of all apps.
func (t Target) Mirrored() Target {
	return Target{URL: t.URL, Repository: path.Join(path.Dir(path.Dir(t.Repository)), bundle.Mirror)}
}

// copiesOf returns the outputs of a lock.
func (e *Engine) copiesOf(l bundle.Lock) *Copies {
	_, index := l.Index()
	c := &Copies{Digest: index, Images: map[string]string{}, Named: map[string]string{}, Registry: path.Dir(e.address()) + "/"}
	for _, i := range l.Images {
		c.Images[i.Reference] = e.address() + "@" + i.Digest
	}
	for name, reference := range l.Named {
		c.Named[name] = c.Images[reference]
	}
	return c
}

// Sources returns the repositories from which the images of a lock can come.
func Sources(l bundle.Lock) ([]ref.Ref, error) {
	var all []ref.Ref
	for _, i := range l.Images {
		r, err := ref.New(i.Reference)
		if err != nil {
			return nil, invalid("%s: %q is no reference of an image", bundle.File, i.Reference)
		}
		all = append(all, r)
	}
	return all, nil
}

// PlanSet compares the images of a lock with what the target has. A set that is complete needs no other registry: its
// images are named by digest. The others are copied from the mirror in the target's registry, or else from where the lock names them.
func (e *Engine) PlanSet(ctx context.Context, l bundle.Lock) (Planned, error) {
	had, tags, err := e.copies(ctx)
	if err != nil {
		return Planned{}, err
	}
	index, named := l.Index()
	s := saved{V: savedVersion, Target: e.Target, Digest: named, Found: tags, Copies: e.copiesOf(l)}
	out := Planned{Outputs: e.outputs(named), Before: e.newest(had), Copies: s.Copies}
	here, err := e.complete(ctx, had)
	if err != nil {
		return Planned{}, err
	}
	if len(had) > 0 && had[0].digest == named && here[named] {
		out.NoOp = true
		out.Saved, err = json.Marshal(s)
		return out, err
	}
	s.Index, s.Tag, s.Removed = string(index), tagOf(next(had), named), surplus(had, named, keptSets)
	found, err := e.findMembers(ctx, l, here)
	if err != nil {
		return Planned{}, err
	}
	all := &content{blobs: map[string]int64{}}
	var rows []changeset.Change
	for _, f := range found {
		s.Members = append(s.Members, f.member)
		maps.Copy(all.blobs, f.content.blobs)
		rows = append(rows, changeset.Change{Address: e.address() + "@" + f.Digest, Kind: component.Image, Action: changeset.Create,
			After: map[string]any{"image": f.image.Reference, "source": f.Source, "platforms": f.content.platforms, "bytes": f.content.size()}})
	}
	missing, err := e.missing(ctx, all)
	if err != nil {
		return Planned{}, err
	}
	row := changeset.Change{Address: e.address(), Kind: component.Bundle, Action: changeset.Create,
		After: map[string]any{"digest": named, "images": len(s.Copies.Images), "images_to_copy": len(found), "bytes_to_copy": missing}}
	if len(had) > 0 {
		row.Action, row.Before, row.Changed = changeset.Update, map[string]any{"digest": had[0].digest}, []string{"/digest"}
		if had[0].digest == named {
			row.Changed, row.Reason = nil, "the copies are not complete"
		}
	}
	out.Changes = append([]changeset.Change{row}, rows...)
	for _, digest := range s.Removed {
		out.Changes = append(out.Changes, e.removal(digest))
	}
	out.Saved, err = json.Marshal(s)
	return out, err
}

// complete returns the digests of the sets that the target has completely, and of all images that it has completely.
func (e *Engine) complete(ctx context.Context, had []copied) (map[string]bool, error) {
	here := map[string]bool{}
	for _, set := range had {
		at := e.Target.ref().SetDigest(set.digest)
		members, err := e.members(ctx, at)
		if err != nil {
			return nil, e.Client.failure(ctx, err, at.Registry, "reading the images of "+e.address())
		}
		var mu sync.Mutex
		whole := members != nil
		group, inner := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, digest := range members {
			group.Go(func() error {
				_, err := e.walk(inner, at.SetDigest(digest))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					here[digest] = true
				case isAbsent(err):
					whole = false
				default:
					return e.Client.failure(inner, err, at.Registry, "reading the images of "+e.address())
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		here[set.digest] = whole
	}
	return here, nil
}

// members returns the digests of the images of a set; nil if the target does not have the set.
func (e *Engine) members(ctx context.Context, set ref.Ref) ([]string, error) {
	m, err := e.Client.ManifestGet(ctx, set)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	digests := []string{}
	index, ok := m.(manifest.Indexer)
	if !ok {
		return digests, nil
	}
	children, err := index.GetManifestList()
	for _, child := range children {
		digests = append(digests, string(child.Digest))
	}
	return digests, err
}

// foundMember is an image that the target does not have, as a registry has it.
type foundMember struct {
	member
	image   bundle.Image
	content *content
}

// findMembers finds the images of the lock that are not here.
func (e *Engine) findMembers(ctx context.Context, l bundle.Lock, here map[string]bool) ([]foundMember, error) {
	wanted := map[string]bundle.Image{}
	for _, i := range l.Images {
		if _, known := wanted[i.Digest]; !known && !here[i.Digest] {
			wanted[i.Digest] = i
		}
	}
	mirrored, err := e.mirrored(ctx, l)
	if err != nil {
		return nil, err
	}
	digests := slices.Sorted(maps.Keys(wanted))
	found := make([]foundMember, len(digests))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for n, digest := range digests {
		group.Go(func() (err error) {
			found[n], err = e.findMember(inner, wanted[digest], mirrored)
			return err
		})
	}
	return found, group.Wait()
}

// mirrored reports whether the mirror has the images of the lock. Its index is written last, so one request is enough.
func (e *Engine) mirrored(ctx context.Context, l bundle.Lock) (bool, error) {
	if e.Mirror == (Target{}) {
		return false, nil
	}
	_, index := l.Index()
	there, err := e.has(ctx, e.Mirror.ref().SetDigest(index))
	if plugin.ReasonOf(err) == fairlead.ReasonRegistryForbidden { // a registry can refuse to tell that a repository does not exist
		e.Client.forget()
		return false, nil
	}
	return there, err
}

// findMember finds an image in the mirror, or where the lock names it.
func (e *Engine) findMember(ctx context.Context, i bundle.Image, mirrored bool) (foundMember, error) {
	from := e.Mirror.ref().SetDigest(i.Digest)
	if !mirrored {
		source, err := ref.New(i.Reference)
		if err != nil {
			return foundMember{}, invalid("%s: %q is no reference of an image", bundle.File, i.Reference)
		}
		from = source.SetTag("").SetDigest(i.Digest)
	}
	c, err := e.walk(ctx, from)
	if err != nil {
		return foundMember{}, e.Client.failure(ctx, err, from.Registry, "reading the image "+i.Reference+" by its digest "+i.Digest)
	}
	extras, err := e.extras(ctx, from, c)
	if err != nil {
		return foundMember{}, e.Client.failure(ctx, err, from.Registry, "reading what refers to the image "+i.Reference)
	}
	return foundMember{member{Source: from.SetDigest("").CommonName(), Digest: i.Digest, Extras: extras}, i, c}, nil
}

// copySet copies the members of a set, then the index that names all of them, and writes the tag last.
func (e *Engine) copySet(ctx context.Context, s saved, begin func() error) error {
	if err := begin(); err != nil {
		return err
	}
	for _, m := range s.Members {
		source, err := ref.New(m.Source)
		if err != nil {
			return plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan names no image: plan again")
		}
		if _, err := e.copyImage(ctx, source, m.Digest, m.Extras); err != nil {
			return err
		}
	}
	d := descriptor.Descriptor{MediaType: bundle.IndexType, Digest: digest.FromString(s.Index), Size: int64(len(s.Index))}
	if string(d.Digest) != s.Digest {
		return plugin.Errorf(fairlead.ReasonPlanStale, "the saved plan is damaged: plan again")
	}
	m, err := manifest.New(manifest.WithRaw([]byte(s.Index)), manifest.WithDesc(d))
	if err != nil {
		return fmt.Errorf("make the index of the images: %w", err)
	}
	if err := e.Client.ManifestPut(ctx, e.Target.ref().SetTag(s.Tag), m); err != nil {
		return e.Client.failure(ctx, err, e.Target.Host(), "tagging the copied images in "+e.address())
	}
	fmt.Fprintf(e.Log, "%s@%s\n", e.address(), s.Digest)
	return nil
}

// CopySet copies all images of the lock to the target, with the index that names them, and removes nothing.
func (e *Engine) CopySet(ctx context.Context, l bundle.Lock) (reference string, err error) {
	p, err := e.PlanSet(ctx, l)
	if err != nil {
		return "", err
	}
	var s saved
	if err := json.Unmarshal(p.Saved, &s); err != nil {
		return "", fmt.Errorf("read the plan: %w", err)
	}
	if !p.NoOp {
		if err := e.copySet(ctx, s, func() error { return nil }); err != nil {
			return "", err
		}
	}
	return p.Outputs.Reference, nil
}

// Resolve returns the image that a reference names now.
func (e *Engine) Resolve(ctx context.Context, reference string) (bundle.Image, error) {
	at, err := parseImage(reference)
	if err != nil {
		return bundle.Image{}, err
	}
	digest, err := e.resolve(ctx, at)
	if err != nil {
		return bundle.Image{}, err
	}
	at = at.SetDigest(digest)
	m, err := e.Client.ManifestGet(ctx, at)
	if err != nil {
		return bundle.Image{}, e.Client.failure(ctx, err, at.Registry, "reading the image "+reference)
	}
	c, err := e.walk(ctx, at)
	if err != nil {
		return bundle.Image{}, e.Client.failure(ctx, err, at.Registry, "reading the image "+reference)
	}
	d := m.GetDescriptor()
	return bundle.Image{Reference: reference, Digest: digest, MediaType: d.MediaType, Manifest: int(d.Size), Bytes: int(c.size()), Platforms: slices.DeleteFunc(c.platforms, func(p string) bool {
		return strings.HasPrefix(p, "unknown")
	})}, nil
}
