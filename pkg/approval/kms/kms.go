// Package kms signs approvals with a key in AWS KMS, which never leaves the service.
package kms

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// maxMessage is the size of the largest message that KMS signs as a whole, in bytes.
const maxMessage = 4096

// Key is a signing key in KMS of the key spec ECC_NIST_P256 or ECC_NIST_EDWARDS25519. Safe for concurrent use.
type Key struct {
	client *kms.Client
	arn    string
	public approval.Public
	ecdsa  bool
}

// Open reads the public key of a KMS key. Its region is that of the ARN.
func Open(ctx context.Context, cfg aws.Config, arn string) (*Key, error) {
	parts := strings.Split(arn, ":")
	if len(parts) < 6 || parts[0] != "arn" || parts[2] != "kms" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidApprovalKey, "%.200q is not the ARN of a key in KMS: arn:aws:kms:REGION:ACCOUNT:key/ID", arn)
	}
	k := &Key{arn: arn, client: kms.NewFromConfig(cfg, func(o *kms.Options) { o.Region = parts[3] })}
	out, err := k.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &arn})
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "read the public key of "+arn, err)
	}
	public, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("read the public key of %s: %w", arn, err)
	}
	_, k.ecdsa = public.(*ecdsa.PublicKey)
	k.public, err = approval.PublicOf(public)
	return k, err
}

// Public implements approval.Signer.
func (k *Key) Public() approval.Public { return k.public }

// Sign implements approval.Signer. An Ed25519 key signs at most 4,096 bytes. For an ECDSA key, a longer message is hashed
// here.
func (k *Key) Sign(ctx context.Context, message []byte) ([]byte, error) {
	in := kms.SignInput{KeyId: &k.arn, Message: message, MessageType: types.MessageTypeRaw, SigningAlgorithm: types.SigningAlgorithmSpecEd25519Sha512}
	switch {
	case k.ecdsa && len(message) > maxMessage:
		sum := sha256.Sum256(message)
		in.Message, in.MessageType, in.SigningAlgorithm = sum[:], types.MessageTypeDigest, types.SigningAlgorithmSpecEcdsaSha256
	case k.ecdsa:
		in.SigningAlgorithm = types.SigningAlgorithmSpecEcdsaSha256
	case len(message) > maxMessage:
		return nil, fmt.Errorf("sign with %s: the document has %d bytes, and KMS signs at most %d with an Ed25519 key", k.arn, len(message), maxMessage)
	}
	out, err := k.client.Sign(ctx, &in)
	if err != nil {
		return nil, awsapi.Classify(ctx, "KMS", "sign with "+k.arn, err)
	}
	return out.Signature, nil
}
