package signature_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/runner/images/signature"
)

const (
	digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	other  = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func payload(of, kind string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"r/web"},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`, of, kind)
}

const kind = "cosign container image signature"

func keyOf(t *testing.T, public crypto.PublicKey) signature.Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	k, err := signature.ParseKey("cosign.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The signatures are made by Go's own packages, as cosign makes them: over the SHA-256 of the payload, and over the payload itself for
// Ed25519.
func TestPayloadIsVerifiedByKeyAndDigest(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, signer := range map[string]crypto.Signer{"ECDSA": ec, "RSA": rs, "Ed25519": ed} {
		sign := func(text []byte) string {
			input, hash := text, crypto.Hash(0)
			if name != "Ed25519" {
				sum := sha256.Sum256(text)
				input, hash = sum[:], crypto.SHA256
			}
			raw, err := signer.Sign(rand.Reader, input, hash)
			if err != nil {
				t.Fatal(err)
			}
			return base64.StdEncoding.EncodeToString(raw)
		}
		k := keyOf(t, signer.Public())
		for what, tc := range map[string]struct {
			text      []byte
			signature string
			want      string // part of the error; "": it verifies
		}{
			"a signature of the image":       {payload(digest, kind), sign(payload(digest, kind)), ""},
			"one of another image":           {payload(other, kind), sign(payload(other, kind)), "is for the image"},
			"one of another kind of content": {payload(digest, "atomic"), sign(payload(digest, "atomic")), "is for the image"},
			"one of another payload":         {payload(digest, kind), sign(payload(other, kind)), "of another key"},
			"one that is not base64":         {payload(digest, kind), "?", "not base64"},
			"none":                           {payload(digest, kind), "", "not base64"},
			"a signed text that is not JSON": {[]byte("no"), sign([]byte("no")), "not JSON"},
		} {
			err := k.VerifyPayload(tc.text, tc.signature, digest)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %s: got %v, want %q", name, what, err, tc.want)
			}
		}
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(payload(digest, kind))
	raw, err := ec.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyOf(t, stranger.Public()).VerifyPayload(payload(digest, kind), base64.StdEncoding.EncodeToString(raw), digest); err == nil {
		t.Error("a signature of another key verifies")
	}
}

func TestBundleIsVerifiedByKeyDigestAndStatement(t *testing.T) {
	s, stranger := imagetest.NewSigner(t), imagetest.NewSigner(t)
	k, err := signature.ParseKey("cosign.pub", []byte(s.PEM))
	if err != nil {
		t.Fatal(err)
	}
	good := s.Bundle(t, digest, imagetest.Predicate)
	for what, tc := range map[string]struct {
		text []byte
		want string // part of the error; "": it verifies
	}{
		"a signature of the image":           {good, ""},
		"one of another image":               {s.Bundle(t, other, imagetest.Predicate), "does not verify"},
		"one of another key":                 {stranger.Bundle(t, digest, imagetest.Predicate), "does not verify"},
		"a signed SBOM of the image":         {s.Bundle(t, digest, "https://spdx.dev/Document"), "no signature of the image"},
		"one whose payload has been changed": {[]byte(strings.Replace(string(good), `"payload":"`, `"payload":"e30g`, 1)), "does not verify"},
		"a text that is no bundle":           {[]byte(`{"mediaType":"x"}`), "cannot be read"},
	} {
		err := k.VerifyBundle(tc.text, digest)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", what, err, tc.want)
		}
	}
	if err := k.VerifyBundle(good, "sha512:aa"); err == nil {
		t.Error("a digest of another algorithm is accepted")
	}
}

func TestKeyThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"", "no", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := signature.ParseKey("cosign.pub", []byte(text)); err == nil || !strings.Contains(err.Error(), "cosign.pub") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
