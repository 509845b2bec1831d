package artifact

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The media types of statements about an image, which in-toto defines.
const (
	// StatementType is the type of an in-toto statement without a signature of its own.
	StatementType = "application/vnd.in-toto+json"
	// ProvenanceType is the type of the DSSE envelope of an in-toto statement with SLSA's provenance.
	ProvenanceType = "application/vnd.in-toto.provenance+dsse"
)

// SPDXDocument is the type of a statement with an SBOM in the format SPDX.
const SPDXDocument = "https://spdx.dev/Document"

// PredicateAnnotation is the annotation of a statement's manifest and layer with the type of the statement. Tools find the
// statement they look for without fetching it.
const PredicateAnnotation = "in-toto.io/predicate-type"

// platformAnnotation has the platform whose SBOM the statement is.
const platformAnnotation = "fairlead.platform"

// Statement is an in-toto statement about an image, as it is stored beside the image.
type Statement struct {
	mediaType   types.MediaType
	annotations map[string]string
	desc        v1.Descriptor
	open        func() (io.ReadCloser, error)
}

// SBOM returns the statement with the SBOM of one platform of an image. Its content has the digest and the size.
func SBOM(platform, digest string, size int64, open func() (io.ReadCloser, error)) Statement {
	hash, _ := v1.NewHash(digest) // Attach refuses the digest of a damaged one
	return Statement{mediaType: StatementType, annotations: map[string]string{PredicateAnnotation: SPDXDocument, platformAnnotation: platform},
		desc: v1.Descriptor{MediaType: StatementType, Digest: hash, Size: size}, open: open}
}

// SignedProvenance returns the statement in a DSSE envelope with SLSA's provenance.
func SignedProvenance(envelope []byte) Statement {
	l := rawLayer{describe(ProvenanceType, envelope), envelope}
	return Statement{mediaType: ProvenanceType, annotations: map[string]string{PredicateAnnotation: "https://slsa.dev/provenance/v1"}, desc: l.desc, open: l.Compressed}
}

// Attach makes each statement a referrer of the image with the digest, which the repository, "host[:port]/path", has. A
// statement that is there already is not sent again. Its errors are those of Push.
func Attach(ctx context.Context, repository string, access Access, digest string, statements ...Statement) error {
	repo, err := name.NewRepository(repository, access.nameOptions(repository)...)
	if err != nil {
		return tree.Invalid(fairlead.CodeInvalidRepository, "Write host[:port]/path.", "%q is not a repository", repository)
	}
	ref, options := repo.Digest(digest), access.options(ctx)
	if len(statements) == 0 {
		return nil
	}
	subject, err := remote.Head(ref, options...)
	if err != nil {
		return remoteError("attach a statement to", ref.String(), err)
	}
	for _, s := range statements {
		img, own, err := s.image(*subject)
		if err != nil {
			return fmt.Errorf("attach a statement to %s: %w", ref, err)
		}
		if err := remote.Write(repo.Digest(own), img, options...); err != nil {
			return remoteError("attach a statement to", ref.String(), err)
		}
	}
	return nil
}

// image returns the manifest of the statement, in the form that the library pushes, and its digest.
func (s Statement) image(subject v1.Descriptor) (v1.Image, string, error) {
	layer := s.desc
	layer.Annotations = s.annotations
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  string(s.mediaType),
		Config:        describe(emptyType, []byte(emptyConfig)),
		Layers:        []v1.Descriptor{layer},
		Subject:       &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations:   s.annotations,
	})
	if err != nil {
		return nil, "", err
	}
	img, err := partial.CompressedToImage(statementCore{s, manifest})
	return img, digestOf(manifest).String(), err
}

// statementCore is a statement's manifest with its blobs.
type statementCore struct {
	s        Statement
	manifest []byte
}

func (c statementCore) RawConfigFile() ([]byte, error)      { return []byte(emptyConfig), nil }
func (c statementCore) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c statementCore) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c statementCore) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	switch h {
	case c.s.desc.Digest:
		return statementLayer{c.s}, nil
	case digestOf([]byte(emptyConfig)):
		return rawLayer{describe(emptyType, []byte(emptyConfig)), []byte(emptyConfig)}, nil
	}
	return nil, fmt.Errorf("the statement has no blob %s", h)
}

type statementLayer struct{ s Statement }

func (l statementLayer) Digest() (v1.Hash, error)            { return l.s.desc.Digest, nil }
func (l statementLayer) Size() (int64, error)                { return l.s.desc.Size, nil }
func (l statementLayer) MediaType() (types.MediaType, error) { return l.s.desc.MediaType, nil }
func (l statementLayer) Compressed() (io.ReadCloser, error)  { return l.s.open() }
