package artifact

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// imagesAtOnce is how many blobs of an image are sent at the same time.
const imagesAtOnce = 2

// PushImage pushes the image with the digest from an image layout of OCI, in the folder dir, to the repository,
// "host[:port]/path". The caller has checked the layout. The registry gets the image under its digest, without a tag. Of
// what the registry already has, PushImage sends nothing. It reads blobs while it sends them. Its errors are those of Push.
func PushImage(ctx context.Context, repository string, access Access, dir, digest string) error {
	repo, err := name.NewRepository(repository, access.nameOptions(repository)...)
	if err != nil || strings.Contains(repository, "//") {
		return tree.Invalid(fairlead.CodeInvalidRepository, "Write host[:port]/path.", "%q is not a repository", repository)
	}
	ref := repo.Digest(digest)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("push image %s: %w", ref, err)
	}
	names, err := top.IndexManifest()
	if err != nil {
		return fmt.Errorf("push image %s: %w", ref, err)
	}
	options := append(access.options(ctx), remote.WithJobs(imagesAtOnce))
	for _, d := range names.Manifests {
		if d.Digest.String() != digest {
			continue
		}
		if err := pushEntry(top, d, ref, options); err != nil {
			return remoteError("push", ref.String(), err)
		}
		return nil
	}
	return fmt.Errorf("push image %s: %w", ref, errors.New("the layout does not have it"))
}

// pushEntry pushes an entry of a layout's index.json.
func pushEntry(top v1.ImageIndex, d v1.Descriptor, ref name.Digest, options []remote.Option) error {
	if d.MediaType.IsIndex() {
		index, err := top.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, index, options...)
	}
	image, err := top.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, options...)
}
