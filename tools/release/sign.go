package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/aws"
)

// signer signs with the key of the releases: ECDSA with P-256 over SHA-256, which cosign and openssl verify.
type signer struct {
	key    signature.Signer
	public []byte // PEM
}

// openSigner returns the signer of a key: a file in PEM, or awskms:///ARN. Errors do not contain the key.
func openSigner(ctx context.Context, key string) (*signer, error) {
	s, err := load(ctx, key)
	if err != nil {
		return nil, err
	}
	public, err := s.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read the public key of %s: %w", key, err)
	}
	if k, ok := public.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the key %s is a %T: a release is signed by ECDSA with P-256", key, public)
	}
	text, err := cryptoutils.MarshalPublicKeyToPEM(public)
	return &signer{key: s, public: text}, err
}

func load(ctx context.Context, key string) (signature.Signer, error) {
	if strings.HasPrefix(key, aws.ReferenceScheme) {
		s, err := aws.LoadSignerVerifier(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("open the key %s: %w", key, err)
		}
		return s, nil
	}
	text, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.SkipPassword)
	if err != nil {
		return nil, errors.New("the key " + key + " is no private key in PEM without a passphrase")
	}
	s, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("load the key %s: %w", key, err)
	}
	return s, nil
}

// sign returns the signature of a text in base64, as cosign writes it.
func (s *signer) sign(_ context.Context, text []byte) (string, error) {
	raw, err := s.key.SignMessage(bytes.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}
