package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/dockerfile"
)

// basesFolder is the folder of a workspace with the layout of the private base images.
const basesFolder = "bases"

// maxDockerfile limits a Dockerfile, in bytes.
const maxDockerfile = 1 << 20

// machinePlatforms returns the platforms that a machine of CodeBuild can have. The step does not know which one the project has.
func machinePlatforms() []string { return []string{"linux/amd64", "linux/arm64"} }

// bases fetches the base images of the Dockerfile from the registries for which the build has a login.
func (p *Plugin) bases(ctx context.Context, spec plugin.Spec, env plugin.Env, source string) (imagebuild.Bases, error) {
	if len(spec.Build.Logins) == 0 {
		return imagebuild.Bases{}, nil
	}
	text, err := readDockerfile(source, spec.Build.Image.Dockerfile)
	if err != nil {
		return imagebuild.Bases{}, err
	}
	b := baseFetch{spec: spec, env: env, fetcher: p.fetcher(spec, env), left: imagebuild.MaxBases,
		bases: imagebuild.Bases{Layout: filepath.Join(env.Workspace, basesFolder), Digests: map[string]string{}}}
	if b.layout, err = layout.Write(b.bases.Layout, empty.Index); err != nil {
		return imagebuild.Bases{}, fmt.Errorf("create the layout of base images: %w", err)
	}
	image := spec.Build.Image
	targets := image.Platforms
	if len(targets) == 0 {
		targets = machinePlatforms()
	}
	found, unread := dockerfile.Bases(text, dockerfile.Options{Target: image.Target, Args: image.Args, Targets: targets, Machines: machinePlatforms()})
	for _, u := range unread {
		fmt.Fprintf(env.Log, "[fairlead: line %d of the Dockerfile has %s: an image with this name is not fetched with a login. Use only $NAME, ${NAME}, ${NAME:-DEFAULT} and ${NAME:+VALUE} there]\n", u.Line, u.Text)
	}
	err = within(ctx, modulesFor, func(ctx context.Context) error {
		for _, base := range found {
			if err := b.base(ctx, base); err != nil {
				return err
			}
		}
		return nil
	})
	return b.bases, err
}

// readDockerfile returns the Dockerfile of the build context. Its check before found it.
func readDockerfile(source, at string) (string, error) {
	root, err := os.OpenRoot(source)
	if err != nil {
		return "", fmt.Errorf("open the build context: %w", err)
	}
	defer root.Close()
	f, err := root.Open(filepath.FromSlash(at))
	if err != nil {
		return "", fmt.Errorf("open the Dockerfile: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDockerfile+1))
	if err != nil {
		return "", fmt.Errorf("read the Dockerfile: %w", err)
	}
	if len(text) > maxDockerfile {
		return "", plugin.Errorf(fairlead.ReasonSourceInvalid, "the Dockerfile has more than %d MiB", maxDockerfile>>20)
	}
	return string(text), nil
}

// baseFetch fetches base images into a layout.
type baseFetch struct {
	spec    plugin.Spec
	env     plugin.Env
	fetcher fetcher
	layout  layout.Path
	left    int64 // bytes that the layout may still get
	bases   imagebuild.Bases
}

// base fetches an image, if the build has a login for its registry.
func (b *baseFetch) base(ctx context.Context, base dockerfile.Base) error {
	named, err := reference.ParseNormalizedNamed(base.Name)
	if err != nil {
		return nil // the image builder reports it
	}
	host := reference.Domain(named)
	if b.spec.Build.Logins[host] == "" {
		return nil
	}
	ref, err := name.ParseReference(reference.TagNameOnly(named).String(), name.StrictValidation)
	if err != nil {
		return nil // the image builder reports it
	}
	before := b.left
	d, err := remote.Get(ref, b.fetcher.registryOptions(ctx, host)...)
	if err == nil {
		err = b.write(d, base.Platforms)
	}
	if err != nil {
		return b.failed(ctx, base.Name, host, err)
	}
	b.bases.Digests[strings.TrimSuffix(reference.FamiliarString(named), ":latest")] = d.Digest.String()
	fmt.Fprintf(b.env.Log, "fetched the base image %s with the login for %s: %s, %d bytes\n", base.Name, host, d.Digest, before-b.left)
	return nil
}

// failed returns the error of an image that was not fetched.
func (b *baseFetch) failed(ctx context.Context, image, host string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("fetch the base image %s: %w", image, ctx.Err())
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	advice := "Publish the app again"
	if e, ok := errors.AsType[*transport.Error](err); ok {
		switch e.StatusCode {
		case http.StatusNotFound:
			advice = "Correct its name in the Dockerfile"
		case http.StatusUnauthorized, http.StatusForbidden:
			advice = fmt.Sprintf("Find out whether the secret %s of the build runner is a valid login for %s that may read the image", b.spec.Build.Logins[host], host)
		}
	}
	return unavailable(err, "the base image %s cannot be fetched with the login for %s: %v. %s", image, host, err, advice)
}

// write stores the image in the layout. Of an index it stores only the images of the platforms.
func (b *baseFetch) write(d *remote.Descriptor, platforms []string) error {
	if !d.MediaType.IsIndex() {
		img, err := d.Image()
		if err != nil {
			return err
		}
		return b.image(img)
	}
	index, err := d.ImageIndex()
	if err != nil {
		return err
	}
	m, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, entry := range m.Manifests {
		if !entry.MediaType.IsImage() || entry.Platform != nil && !serves(*entry.Platform, platforms) {
			continue
		}
		img, err := index.Image(entry.Digest)
		if err != nil {
			return err
		}
		if err := b.image(img); err != nil {
			return err
		}
	}
	return b.layout.WriteBlob(d.Digest, io.NopCloser(bytes.NewReader(d.Manifest)))
}

// serves reports whether the image of the platform can serve one of the platforms. The image builder chooses among variants.
func serves(has v1.Platform, platforms []string) bool {
	return slices.ContainsFunc(platforms, func(text string) bool {
		p, err := v1.ParsePlatform(text)
		return err == nil && p.OS == has.OS && p.Architecture == has.Architecture
	})
}

// image stores an image of one platform in the layout, unless it is too large. A negative size would raise the limit, and the
// client of registries reads a layer of the size -1 without a limit.
func (b *baseFetch) image(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	for _, part := range append(slices.Clone(m.Layers), m.Config) {
		if part.Size < 0 {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "the registry names %d bytes as the size of %s, a part of a base image: push the image again", part.Size, part.Digest)
		}
		if b.left -= part.Size; b.left >= 0 {
			continue
		}
		return plugin.Errorf(fairlead.ReasonSourceInvalid, "the base images that need a login have more than %d GiB: use smaller ones, or name fewer platforms", imagebuild.MaxBases>>30)
	}
	return b.layout.WriteImage(img)
}
