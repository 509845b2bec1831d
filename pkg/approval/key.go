package approval

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Public is a key that verifies approvals: Ed25519, or ECDSA with P-256 and SHA-256, which key services of clouds have.
type Public struct {
	key crypto.PublicKey
	der []byte
}

// ParsePublic reads a public key in PEM (PKIX), as `openssl pkey -pubout` and key services write it.
func ParsePublic(text []byte) (Public, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the key is not a public key in PEM: it begins with -----BEGIN PUBLIC KEY-----")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the public key cannot be read: %v", err)
	}
	return PublicOf(key)
}

// PublicOf returns the key of a crypto.PublicKey.
func PublicOf(key crypto.PublicKey) (Public, error) {
	switch k := key.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return Public{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the key uses the curve %s: an ECDSA key must use P-256", k.Params().Name)
		}
	default:
		return Public{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the key is a %T: it must be Ed25519, or ECDSA with P-256", key)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	return Public{key: key, der: der}, err
}

// Ed25519 returns the key, if it is an Ed25519 key.
func (p Public) Ed25519() (ed25519.PublicKey, bool) {
	key, ok := p.key.(ed25519.PublicKey)
	return key, ok
}

// PEM returns the key in PEM (PKIX).
func (p Public) PEM() []byte { return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: p.der}) }

// ID returns the text by which people compare a key: "SHA256:" and the SHA-256 of its DER in base64.
func (p Public) ID() string {
	sum := sha256.Sum256(p.der)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func (p Public) verify(message, signature []byte) bool {
	switch k := p.key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(k, message, signature)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(message)
		return ecdsa.VerifyASN1(k, sum[:], signature)
	}
	return false
}

// Signer signs with a key of the customer: a key file, or a key in a key service. Safe for concurrent use.
type Signer interface {
	Public() Public
	// Sign returns the signature of a message of at most 96 KiB: of Ed25519, or the ASN.1 form of ECDSA over its SHA-256.
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// FileKey is a private key in memory.
type FileKey struct {
	key    crypto.Signer
	public Public
}

// ParseKey reads a private key in PEM (PKCS #8), as `openssl genpkey` writes it. The error does not contain the key.
func ParseKey(text []byte) (FileKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return FileKey{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the key is not a private key in PEM without a passphrase: it begins with -----BEGIN PRIVATE KEY-----")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return FileKey{}, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "the private key cannot be read: it must be PKCS #8 with Ed25519, or ECDSA with P-256")
	}
	public, err := PublicOf(signer.Public())
	return FileKey{key: signer, public: public}, err
}

// NewFileKey makes an Ed25519 key and returns it with its PEM (PKCS #8).
func NewFileKey() (FileKey, []byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return FileKey{}, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return FileKey{}, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	key, err := ParseKey(text)
	return key, text, err
}

// Public implements Signer.
func (k FileKey) Public() Public { return k.public }

// Sign implements Signer.
func (k FileKey) Sign(_ context.Context, message []byte) ([]byte, error) {
	if _, ok := k.key.(ed25519.PrivateKey); ok {
		return k.key.Sign(nil, message, crypto.Hash(0))
	}
	sum := sha256.Sum256(message)
	return k.key.Sign(rand.Reader, sum[:], crypto.SHA256)
}

// dsseSigner adapts a Signer to package dsse.
type dsseSigner struct{ key Signer }

func (s dsseSigner) Sign(ctx context.Context, data []byte) ([]byte, error) {
	signature, err := s.key.Sign(ctx, data)
	if err == nil && !s.key.Public().verify(data, signature) {
		err = errors.New("the key service returned a signature that its public key does not verify") // each step would refuse it
	}
	return signature, err
}

func (s dsseSigner) KeyID() (string, error) { return s.key.Public().ID(), nil }

// dsseVerifier adapts a Public to package dsse.
type dsseVerifier struct{ key Public }

func (v dsseVerifier) Verify(_ context.Context, data, signature []byte) error {
	if !v.key.verify(data, signature) {
		return fmt.Errorf("the signature does not verify with key %s", v.key.ID())
	}
	return nil
}

func (v dsseVerifier) KeyID() (string, error) { return v.key.ID(), nil }

func (v dsseVerifier) Public() crypto.PublicKey { return v.key.key }
