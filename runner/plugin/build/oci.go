package build

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// ociPrefix begins the URL of a repository in an OCI registry.
const ociPrefix = "oci://"

// The annotations of a layer that ORAS and other tools for artifacts write
// (https://oras.land/docs/how_to_guides/pushing_and_pulling).
const (
	titleAnnotation  = "org.opencontainers.image.title"
	unpackAnnotation = "io.deis.oras.content.unpack"
)

// registryOptions are the options of requests to the OCI registry with the host. The library logs in by itself, and sends the login only to
// the registry and to the server that the registry names for tokens.
func (f fetcher) registryOptions(ctx context.Context, host string) []remote.Option {
	auth := authn.Anonymous
	if l, ok := f.logins[host]; ok {
		auth = &authn.Basic{Username: l.user, Password: l.password}
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(f.transport),
		remote.WithRetryBackoff(remote.Backoff{Duration: 500 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4})}
}

// fetchOCI writes the files of the artifact to the empty folder. The library verifies the manifest and each layer against
// the digest of the spec.
func (p *Plugin) fetchOCI(ctx context.Context, spec plugin.Spec, env plugin.Env, folder string) error {
	from := spec.Build.From
	fmt.Fprintf(env.Log, "fetching artifact %s of %s\n", from.Ref, from.URL)
	ref, err := name.NewDigest(strings.TrimPrefix(from.URL, ociPrefix)+"@"+from.Ref, name.StrictValidation)
	if err != nil {
		return unavailable(err, "%s has no valid address of an artifact: %v", from.URL, err)
	}
	found, err := remote.Get(ref, p.fetcher(spec, env).registryOptions(ctx, originHost(from))...)
	if err != nil {
		return unavailable(err, "the registry does not return artifact %s: %v", ref, err)
	}
	if found.MediaType.IsIndex() {
		return plugin.Errorf(fairlead.ReasonSourceInvalid, "%s is an index of several artifacts. Name the digest of one of them", ref)
	}
	img, err := found.Image()
	if err != nil {
		return unavailable(err, "the registry's manifest of %s cannot be read: %v", ref, err)
	}
	t, _ := component.Of(spec.Build.Type)
	a := ociArtifact{name: ref.String(), image: img, executable: t.Executable}
	manifest, err := img.Manifest()
	if err != nil {
		return unavailable(err, "the registry's manifest of %s cannot be read: %v", ref, err)
	}
	for _, l := range manifest.Layers {
		if _, ok := formatOf(l); !ok {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "the artifact %s has a layer of type %s. Its layers must be tar archives, compressed by gzip or not, or files with the annotation %s",
				ref, l.MediaType, titleAnnotation)
		}
	}
	return unpackEntries("the artifact "+a.name, folder, func(w *tar.Writer) error {
		for _, l := range manifest.Layers {
			if err := a.layer(w, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// ociArtifact is an artifact of a registry. Each of its layers is a file with a title, or an archive of files.
type ociArtifact struct {
	name       string // with its registry and digest
	image      v1.Image
	executable string // name of the files that are made executable, because a file with a title has no mode; "": none
}

// The formats of a layer.
const (
	layerFile  = "file"
	layerTar   = "tar"
	layerTarGz = "tar.gz"
)

// formatOf returns the format of a layer. ok is false if the layer is of no known format.
func formatOf(l v1.Descriptor) (format string, ok bool) {
	kind := string(l.MediaType)
	switch {
	case l.Annotations[titleAnnotation] != "" && l.Annotations[unpackAnnotation] != "true":
		return layerFile, true
	case strings.HasSuffix(kind, "tar+gzip"), strings.HasSuffix(kind, "tar.gzip"):
		return layerTarGz, true
	case strings.HasSuffix(kind, "tar"):
		return layerTar, true
	}
	return "", false
}

// layer writes the entries of one layer.
func (a *ociArtifact) layer(w *tar.Writer, d v1.Descriptor) (err error) {
	l, err := a.image.LayerByDigest(d.Digest)
	if err != nil {
		return fmt.Errorf("layer %s: %w", d.Digest, err)
	}
	content, err := l.Compressed() // it verifies the digest at its end
	if err != nil {
		return unavailable(err, "the registry does not return layer %s of %s: %v", d.Digest, a.name, err)
	}
	defer func() { err = cmp.Or(err, content.Close()) }()
	switch format, _ := formatOf(d); format {
	case layerFile:
		err = a.file(w, d, content)
	case layerTarGz:
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(content); err != nil {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "layer %s of the artifact %s is not compressed by gzip", d.Digest, a.name)
		}
		err = copyTar(w, plain)
	default:
		err = copyTar(w, content)
	}
	if err == nil {
		_, err = atMost(content, maxRest) // to its end, at which the digest is verified
	}
	if err != nil {
		return unavailable(err, "layer %s of %s cannot be read: %v", d.Digest, a.name, err)
	}
	return nil
}

// file writes the file of a layer with a title.
func (a *ociArtifact) file(w *tar.Writer, d v1.Descriptor, content io.Reader) error {
	at := strings.TrimPrefix(d.Annotations[titleAnnotation], "./")
	mode := int64(0o644)
	if a.executable != "" && path.Base(at) == a.executable {
		mode = 0o755
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: at, Size: d.Size, Mode: mode}); err != nil {
		return err
	}
	_, err := io.CopyN(w, content, d.Size)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("layer %s ends early: %w", d.Digest, io.ErrUnexpectedEOF)
	}
	return err
}
