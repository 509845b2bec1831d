package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/regclient/regclient/types/descriptor"
	"github.com/regclient/regclient/types/manifest"
	"github.com/regclient/regclient/types/mediatype"
	v1 "github.com/regclient/regclient/types/oci/v1"
	"github.com/regclient/regclient/types/platform"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Archive is the archive of a provider for a platform, in a file.
type Archive struct {
	Platform string // such as linux/amd64
	File     string
	Digest   string
	Size     int64
}

// Archives finds the archives of a provider. absent has the reason for each platform without one.
type Archives func(ctx context.Context, item bundle.Item) (found []Archive, absent []string, err error)

// The media types of a provider: those of OpenTofu's mirrors in OCI registries.
const (
	providerType = "application/vnd.opentofu.provider"
	targetType   = "application/vnd.opentofu.provider-target"
	archiveType  = "archive/zip"
)

// The files of an image layout of OCI besides the blobs.
const (
	indexFile     = "index.json"
	layoutFile    = "oci-layout"
	layoutVersion = `{"imageLayoutVersion":"1.0.0"}`
)

// MakeLayout makes an image layout of OCI without content in an empty folder, or leaves the one that is there.
func MakeLayout(dir string) error {
	for name, text := range map[string]string{layoutFile: layoutVersion, indexFile: `{"schemaVersion":2,"mediaType":"` + bundle.IndexType + `","manifests":[]}`} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if os.IsExist(err) {
			continue
		}
		if err == nil {
			_, err = f.WriteString(text)
			if closed := f.Close(); err == nil {
				err = closed
			}
		}
		if err != nil {
			return fmt.Errorf("make the layout: %w", err)
		}
	}
	return nil
}

// CopyWhole copies everything of a bundle to the target, with the index that names it. It removes nothing.
func (e *Engine) CopyWhole(ctx context.Context, b bundle.Bundle, archives Archives) (bundle.CopyAnswer, error) {
	entries, err := e.copyLocked(ctx, b.Images)
	if err != nil {
		return bundle.CopyAnswer{}, err
	}
	var absent []string
	for _, item := range b.Items {
		var entry bundle.Entry
		if item.Kind == bundle.Provider {
			var none []string
			entry, none, err = e.copyProvider(ctx, item, archives)
			absent = append(absent, none...)
		} else {
			entry, err = e.copyArtifact(ctx, item)
		}
		if err != nil {
			return bundle.CopyAnswer{}, err
		}
		entries = append(entries, entry)
	}
	text, _ := bundle.Whole(b.App, b.Version, entries)
	out, err := e.nameAll(ctx, text, entries)
	out.Absent = absent
	return out, err
}

// CopyFrom copies the bundle of a layout to the target. It asks no registry but the target's.
func (e *Engine) CopyFrom(ctx context.Context, from Target) (bundle.CopyAnswer, error) {
	text, entries, err := e.readWhole(ctx, from)
	if err != nil {
		return bundle.CopyAnswer{}, err
	}
	inside := *e // takes images from the layout
	inside.Mirror = from
	var images []bundle.Image
	for _, entry := range entries {
		if entry.Kind == bundle.Locked {
			images = append(images, bundle.Image{Reference: entry.Name, Digest: entry.Digest, MediaType: entry.MediaType, Manifest: entry.Size, UsedBy: entry.UsedBy})
		}
	}
	if _, err := inside.copyLocked(ctx, images); err != nil {
		return bundle.CopyAnswer{}, err
	}
	for _, entry := range entries {
		at, to := from.ref().SetDigest(entry.Digest), e.Target.ref().SetDigest(entry.Digest)
		switch entry.Kind {
		case bundle.Artifact:
			_, err = e.copyObject(ctx, at)
		case bundle.Provider:
			err = e.copyOne(ctx, at, to.SetTag(bundle.ProviderTag(entry.Name, entry.Version)))
		}
		if err != nil {
			return bundle.CopyAnswer{}, err
		}
	}
	return e.nameAll(ctx, text, entries)
}

// readWhole reads the index of the only bundle of a layout.
func (e *Engine) readWhole(ctx context.Context, from Target) ([]byte, []bundle.Entry, error) {
	list, err := e.Client.TagList(ctx, from.ref())
	if err != nil {
		return nil, nil, fmt.Errorf("the folder is no image layout of OCI: %w", err)
	}
	tags, err := list.GetTags()
	if err != nil {
		return nil, nil, fmt.Errorf("read the layout: %w", err)
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, bundle.WholeTag) })
	if len(tags) != 1 {
		return nil, nil, fmt.Errorf("the layout has %d bundles, and not one", len(tags))
	}
	m, err := e.Client.ManifestGet(ctx, from.ref().SetTag(tags[0]))
	if err != nil {
		return nil, nil, fmt.Errorf("read the index of the bundle: %w", err)
	}
	text, err := m.RawBody()
	if err != nil {
		return nil, nil, fmt.Errorf("read the index of the bundle: %w", err)
	}
	_, _, entries, err := bundle.ReadWhole(text)
	return text, entries, err
}

// copyLocked copies the images of a lock, and returns their entries.
func (e *Engine) copyLocked(ctx context.Context, images []bundle.Image) ([]bundle.Entry, error) {
	if _, err := e.CopySet(ctx, bundle.Lock{Images: images}); err != nil {
		return nil, err
	}
	var entries []bundle.Entry
	for _, i := range images {
		entries = append(entries, bundle.Entry{Kind: bundle.Locked, Name: i.Reference, UsedBy: i.UsedBy, Digest: i.Digest, MediaType: i.MediaType, Size: i.Manifest})
	}
	return entries, nil
}

func (e *Engine) copyArtifact(ctx context.Context, item bundle.Item) (bundle.Entry, error) {
	from, err := ref.New(item.From + "@" + item.Digest)
	if err != nil {
		return bundle.Entry{}, fmt.Errorf("the artifact of %s has no valid address: %w", item.Name, err)
	}
	d, err := e.copyObject(ctx, from)
	return bundle.Entry{Kind: bundle.Artifact, Name: item.Name, UsedBy: item.UsedBy, Digest: item.Digest, MediaType: d.MediaType, Size: int(d.Size)}, err
}

// copyObject copies an artifact, or an image with what refers to it.
func (e *Engine) copyObject(ctx context.Context, from ref.Ref) (descriptor.Descriptor, error) {
	m, err := e.Client.ManifestGet(ctx, from)
	if err != nil {
		return descriptor.Descriptor{}, e.Client.failure(ctx, err, from.Registry, "reading the artifact "+from.CommonName())
	}
	if isArtifact(m) {
		return m.GetDescriptor(), e.copyOne(ctx, from, e.Target.ref().SetDigest(from.Digest))
	}
	c, err := e.walk(ctx, from)
	if err != nil {
		return descriptor.Descriptor{}, e.Client.failure(ctx, err, from.Registry, "reading the image "+from.CommonName())
	}
	extras, err := e.extras(ctx, from, c)
	if err != nil {
		return descriptor.Descriptor{}, e.Client.failure(ctx, err, from.Registry, "reading what refers to the image "+from.CommonName())
	}
	_, err = e.copyImage(ctx, from, from.Digest, extras)
	return m.GetDescriptor(), err
}

// isArtifact reports whether a manifest has no configuration of an image.
func isArtifact(m manifest.Manifest) bool {
	img, ok := m.(manifest.Imager)
	if !ok {
		return false
	}
	config, err := img.GetConfig()
	return err == nil && config.MediaType == mediatype.OCI1Empty
}

// copyProvider stores the archives of a provider under its tag. absent is as in Archives.
func (e *Engine) copyProvider(ctx context.Context, item bundle.Item, archives Archives) (entry bundle.Entry, absent []string, err error) {
	at := e.Target.ref().SetTag(bundle.ProviderTag(item.Name, item.Version))
	found, absent, err := archives(ctx, item)
	if err != nil {
		return bundle.Entry{}, nil, err
	}
	index := v1.Index{Versioned: v1.IndexSchemaVersion, MediaType: mediatype.OCI1ManifestList, ArtifactType: providerType}
	for _, a := range found {
		d, err := e.putArchive(ctx, a)
		if err != nil {
			return bundle.Entry{}, nil, err
		}
		index.Manifests = append(index.Manifests, d)
	}
	d, err := e.putObject(ctx, at, index)
	if err != nil {
		return bundle.Entry{}, nil, err
	}
	fmt.Fprintf(e.Log, "provider %s %s: copied\n", item.Name, item.Version)
	return bundle.Entry{Kind: bundle.Provider, Name: item.Name, Version: item.Version, UsedBy: item.UsedBy, Digest: d.Digest.String(), MediaType: d.MediaType, Size: int(d.Size)}, absent, nil
}

// putArchive stores an archive with its manifest, and returns the manifest's descriptor.
func (e *Engine) putArchive(ctx context.Context, a Archive) (descriptor.Descriptor, error) {
	target := e.Target.ref()
	content := descriptor.Descriptor{MediaType: archiveType, Digest: digest.Digest(a.Digest), Size: a.Size, Annotations: map[string]string{"org.opencontainers.image.title": filepath.Base(a.File)}}
	config := descriptor.Descriptor{MediaType: mediatype.OCI1Empty, Digest: descriptor.EmptyDigest, Size: int64(len(descriptor.EmptyData))}
	err := e.putFile(ctx, a.File, content)
	if err == nil {
		_, err = e.Client.BlobPut(ctx, target, config, bytes.NewReader(descriptor.EmptyData))
	}
	if err != nil {
		return descriptor.Descriptor{}, e.Client.failure(ctx, err, e.Target.Host(), "storing the archive "+filepath.Base(a.File))
	}
	d, err := e.putObject(ctx, target, v1.Manifest{Versioned: v1.ManifestSchemaVersion, MediaType: mediatype.OCI1Manifest, ArtifactType: targetType,
		Config: config, Layers: []descriptor.Descriptor{content}})
	system, processor, _ := strings.Cut(a.Platform, "/")
	d.ArtifactType, d.Platform = targetType, &platform.Platform{Architecture: processor, OS: system}
	return d, err
}

// putFile stores the file as a blob, unless the target has it.
func (e *Engine) putFile(ctx context.Context, file string, d descriptor.Descriptor) error {
	if b, err := e.Client.BlobHead(ctx, e.Target.ref(), d); err == nil {
		return b.Close()
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = e.Client.BlobPut(ctx, e.Target.ref(), d, f)
	return err
}

// putObject stores a manifest or an index under a tag, or else under its digest.
func (e *Engine) putObject(ctx context.Context, at ref.Ref, object any) (descriptor.Descriptor, error) {
	m, err := manifest.New(manifest.WithOrig(object))
	if err != nil {
		return descriptor.Descriptor{}, fmt.Errorf("make a manifest: %w", err)
	}
	d := m.GetDescriptor()
	return d, e.putManifest(ctx, at, m)
}

func (e *Engine) putManifest(ctx context.Context, at ref.Ref, m manifest.Manifest) error {
	if at.Tag == "" {
		at = at.SetDigest(m.GetDescriptor().Digest.String())
	}
	if err := e.Client.ManifestPut(ctx, at, m); err != nil {
		return e.Client.failure(ctx, err, e.Target.Host(), "storing "+at.CommonName())
	}
	return nil
}

// nameAll stores the index that names everything, as the last write.
func (e *Engine) nameAll(ctx context.Context, text []byte, entries []bundle.Entry) (bundle.CopyAnswer, error) {
	d := descriptor.Descriptor{MediaType: bundle.IndexType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	m, err := manifest.New(manifest.WithRaw(text), manifest.WithDesc(d))
	if err != nil {
		return bundle.CopyAnswer{}, fmt.Errorf("make the index of the bundle: %w", err)
	}
	if err := e.putManifest(ctx, e.Target.ref().SetTag(bundle.WholeTag+d.Digest.Encoded()), m); err != nil {
		return bundle.CopyAnswer{}, err
	}
	out := bundle.CopyAnswer{Digest: d.Digest.String(), Entries: entries}
	if e.Target.Layout != "" {
		return out, tidy(e.Target.Layout)
	}
	out.Reference = e.address() + "@" + out.Digest
	return out, nil
}

// tidy writes the index of a layout again, without times and in one order, so that the same bundle has the same files.
func tidy(dir string) error {
	file := filepath.Join(dir, indexFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the index of the layout: %w", err)
	}
	var index v1.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return fmt.Errorf("read the index of the layout: %w", err)
	}
	for i := range index.Manifests {
		delete(index.Manifests[i].Annotations, "org.opencontainers.image.created")
	}
	name := func(d descriptor.Descriptor) string {
		return d.Annotations["org.opencontainers.image.ref.name"] + " " + d.Digest.String()
	}
	slices.SortFunc(index.Manifests, func(a, b descriptor.Descriptor) int { return strings.Compare(name(a), name(b)) })
	index.Annotations = nil
	if text, err = json.Marshal(index); err != nil {
		return fmt.Errorf("encode the index of the layout: %w", err)
	}
	if err := os.WriteFile(file, text, 0o666); err != nil {
		return fmt.Errorf("write the index of the layout: %w", err)
	}
	return nil
}

// ErrAbsent reports that a mirror does not have the archive of a provider.
var ErrAbsent = errors.New("the mirror does not have the archive")

// Archive writes the archive of a provider in a mirror to w. The error is ErrAbsent if the mirror does not have it.
func (e *Engine) Archive(ctx context.Context, from Target, address, version, platform string, w io.Writer) error {
	at := from.ref().SetTag(bundle.ProviderTag(address, version))
	m, err := e.Client.ManifestGet(ctx, at)
	failed := func(err error) error {
		failed := e.Client.failure(ctx, err, from.Host(), "reading provider "+address+" "+version)
		if isMissing(failed) || plugin.ReasonOf(failed) == fairlead.ReasonRegistryForbidden { // a registry can refuse to tell that a repository does not exist
			return fmt.Errorf("%w: %w", ErrAbsent, failed)
		}
		return failed
	}
	if err != nil {
		return failed(err)
	}
	index, ok := m.(manifest.Indexer)
	if !ok {
		return ErrAbsent
	}
	list, err := index.GetManifestList()
	if err != nil {
		return failed(err)
	}
	for _, d := range list {
		if d.Platform == nil || d.Platform.OS+"/"+d.Platform.Architecture != platform {
			continue
		}
		m, err := e.Client.ManifestGet(ctx, at.SetDigest(string(d.Digest)))
		if err != nil {
			return failed(err)
		}
		img, ok := m.(manifest.Imager)
		if !ok {
			return ErrAbsent
		}
		layers, err := img.GetLayers()
		if err != nil || len(layers) != 1 {
			return errors.Join(ErrAbsent, err)
		}
		content, err := e.Client.BlobGet(ctx, at, layers[0])
		if err != nil {
			return failed(err)
		}
		defer content.Close()
		if _, err := io.Copy(w, content); err != nil { // the reader verifies the digest at its end
			return failed(err)
		}
		return nil
	}
	return ErrAbsent
}
