package kms

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
)

// MaxMessage is the maximum length of a message that KMS signs, in bytes.
const MaxMessage = 4096

// Signing is an Ed25519 key in KMS (key spec ECC_NIST_EDWARDS25519). Safe for
// concurrent use.
type Signing struct {
	client *kms.Client
	key    string
	public ed25519.PublicKey
}

// NewSigning requests the public key of the KMS key from KMS. The parameter key is the ARN.
func NewSigning(ctx context.Context, cfg aws.Config, key string) (*Signing, error) {
	s := &Signing{client: newClient(cfg), key: key}
	out, err := s.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &key})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "read the public key of "+key, err)
	}
	public, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("read the public key of %s: %w", key, err)
	}
	var ok bool
	if s.public, ok = public.(ed25519.PublicKey); !ok {
		return nil, fmt.Errorf("key %s has type %T, but signing job specs needs key spec ECC_NIST_EDWARDS25519", key, public)
	}
	return s, nil
}

// Lost reports whether the error of NewSigning means that the key was deleted, is to be
// deleted, or is disabled.
func Lost(err error) bool {
	switch awsapi.Code(err) {
	case "NotFoundException", "DisabledException", "KMSInvalidStateException":
		return true
	}
	return false
}

// Public returns the public key, which verifies the signatures of s.
func (s *Signing) Public() ed25519.PublicKey { return s.public }

// Sign returns the Ed25519 signature of message. If the message has more than MaxMessage
// bytes, Sign returns an error.
func (s *Signing) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("sign with %s: the message has %d bytes: at most %d are allowed", s.key, len(message), MaxMessage)
	}
	out, err := s.client.Sign(ctx, &kms.SignInput{KeyId: &s.key, Message: message,
		MessageType: types.MessageTypeRaw, SigningAlgorithm: types.SigningAlgorithmSpecEd25519Sha512})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "sign with "+s.key, err)
	}
	return out.Signature, nil
}

// Derive returns 32 bytes that are derived from the label and an HMAC key in KMS (key spec
// HMAC_256). The parameter key is the ARN. The bytes are the same in every process. Only a
// role that may use the key can derive them.
func Derive(ctx context.Context, cfg aws.Config, key, label string) ([]byte, error) {
	out, err := newClient(cfg).GenerateMac(ctx, &kms.GenerateMacInput{KeyId: &key, Message: []byte(label), MacAlgorithm: types.MacAlgorithmSpecHmacSha256})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "derive from "+key, err)
	}
	if len(out.Mac) != 32 {
		return nil, errors.New("derive from " + key + ": the response is not an HMAC with SHA-256")
	}
	return out.Mac, nil
}
