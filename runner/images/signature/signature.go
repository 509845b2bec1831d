// Package signature verifies cosign's signatures of an image with public keys, and without any request: no transparency log and no
// certificate authority is asked. It knows both forms: the payload that names the digest, which cosign stored before version 3, and
// the bundle of Sigstore. It is pure.
package signature

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
)

// Form is a form in which cosign stores a signature.
type Form string

// The forms.
const (
	Payload Form = "payload" // a layer of the manifest under the tag sha256-….sig
	Bundle  Form = "bundle"  // a layer of a manifest that refers to the image
)

// The media types of the layers that hold signatures.
const (
	PayloadType = "application/vnd.dev.cosign.simplesigning.v1+json"
	BundleType  = "application/vnd.dev.sigstore.bundle" // its prefix; a version follows
)

// Annotation is the annotation of a payload's layer that has the signature in base64.
const Annotation = "dev.cosignproject.cosign/signature"

// Key is a public key.
type Key struct {
	Name     string // for messages, such as the name of its file
	verifier sigstore.Verifier
}

// ParseKey reads a public key in PEM: ECDSA, RSA or Ed25519.
func ParseKey(name string, text []byte) (Key, error) {
	public, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("read the public key %s: it is no public key in PEM", name)
	}
	v, err := sigstore.LoadDefaultVerifier(public)
	if err != nil {
		return Key{}, fmt.Errorf("read the public key %s: %w", name, err)
	}
	return Key{Name: name, verifier: v}, nil
}

// VerifyPayload returns nil if signature, in base64, is the key's signature of the payload, and if the payload is for the image with
// the digest. The payload is not of Sigstore's bundles, so sigstore-go does not read it: only the key's check is the library's.
func (k Key) VerifyPayload(payload []byte, signature, digest string) error {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || len(raw) == 0 {
		return errors.New("the signature is not base64")
	}
	if err := k.verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(payload)); err != nil {
		return errors.New("the signature is of another key, or of another content")
	}
	var signed struct {
		Critical struct {
			Type  string `json:"type"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &signed); err != nil {
		return errors.New("the signed payload is not JSON")
	}
	if signed.Critical.Type != "cosign container image signature" || signed.Critical.Image.Digest != digest {
		return fmt.Errorf("the signature is for the image %.80q", signed.Critical.Image.Digest)
	}
	return nil
}

// signaturePredicate is the type of a statement that is a signature. Others, such as an SBOM, are signed statements about an image, and do
// not state that the signer approves of it.
const signaturePredicate = "https://sigstore.dev/cosign/sign/v1"

// VerifyBundle returns nil if the bundle, in JSON, has the key's signature of the image with the digest.
func (k Key) VerifyBundle(text []byte, digest string) error {
	algorithm, digits, _ := strings.Cut(digest, ":")
	sum, err := hex.DecodeString(digits)
	if err != nil || algorithm != "sha256" {
		return fmt.Errorf("the digest %.80q is not of SHA-256", digest)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("the bundle cannot be read: %w", err)
	}
	v, err := verify.NewVerifier(root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		return root.NewExpiringKey(k.verifier, time.Time{}, time.Time{}), nil
	}), verify.WithNoObserverTimestamps())
	if err != nil {
		return fmt.Errorf("make a verifier: %w", err)
	}
	result, err := v.Verify(&b, verify.NewPolicy(verify.WithArtifactDigest("sha256", sum), verify.WithKey()))
	if err != nil {
		return fmt.Errorf("the bundle does not verify: %w", err)
	}
	if result.Statement != nil && result.Statement.GetPredicateType() != signaturePredicate {
		return fmt.Errorf("the signed statement is %.100q, which is no signature of the image", result.Statement.GetPredicateType())
	}
	return nil
}
