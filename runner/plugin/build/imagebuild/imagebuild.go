// Package imagebuild builds images from a Dockerfile. A build job fetches the source, lets a Builder make the image, checks
// the result, and pushes it. The instructions of a Dockerfile are programs of the vendor, and of those who wrote the images
// that it begins with. So a Builder runs them where no login and no right to push is.
package imagebuild

import (
	"context"
	"io"
)

// Request is one image to build. None of it is secret.
type Request struct {
	// Context is the folder with the files that the Dockerfile can copy. A Builder changes nothing in it.
	Context string
	// Dockerfile is the path of the Dockerfile below Context, with slashes.
	Dockerfile string
	// Target is the stage of the Dockerfile that becomes the image; "": the last one.
	Target string
	// Args are the values of the Dockerfile's ARG instructions, by name.
	Args map[string]string
	// Platforms are the platforms of the image, such as linux/arm64, sorted. Empty: the platform of the Builder.
	Platforms []string
	// Bases are images that the Builder uses in place of those of registries.
	Bases Bases
	// Generator is the image of the generator of SBOMs. The Builder lets it write the SBOM of each platform, and stores the
	// SBOMs as attestations in the image's index. "": the image gets none.
	Generator string
	// Log gets the output of the build. A Builder makes one call at a time, and none after Build has returned.
	Log io.Writer
}

// MaxBases is the limit of the layout of Bases in bytes. An archive with it and with the context can still be stored in S3 by
// one request.
const MaxBases = 2 << 30

// Bases are base images on the disk of the step. The Builder needs no login for them.
type Bases struct {
	// Layout is a folder with blobs as in an image layout of OCI. It can lack the blobs of platforms for which nothing is built.
	Layout string
	// Digests are the digests of the images by the name that the Dockerfile uses, in its short form, without the tag latest.
	Digests map[string]string
}

// Builder builds the image of one job. It has no right to push. Every Builder passes imagebuildtest.
type Builder interface {
	// Build builds the image and writes it to the empty folder layout, as an image layout of OCI whose index.json has
	// exactly one entry: the image's manifest, or its index if the image has several platforms or attestations. The caller
	// trusts nothing in the folder.
	//
	// When ctx ends, Build ends all processes of the build and returns an error that wraps ctx's error. Each other error is
	// a *plugin.Error: with fairlead.ReasonBuildFailed if the Dockerfile cannot be built, and with
	// fairlead.ReasonBuilderUnavailable if what builds cannot be reached or ended early. After an error the content of the
	// folder has no meaning.
	Build(ctx context.Context, r Request, layout string) error
}
