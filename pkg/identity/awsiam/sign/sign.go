// Package sign makes the runner's half of an AWS identity proof: it signs the request that the control plane will send
// to STS. It sends nothing itself.
package sign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// Proof returns the proof for challenge c at endpoint e with the credentials of a role. It reads the provider's
// credentials at each call; wrap the provider in aws.CredentialsCache to cache them. Safe for concurrent use if the
// provider is.
func Proof(ctx context.Context, provider aws.CredentialsProvider, e awsiam.Endpoint, c awsiam.Challenge, now time.Time) (awsiam.Proof, error) {
	creds, err := provider.Retrieve(ctx)
	if err != nil {
		return awsiam.Proof{}, fmt.Errorf("get the credentials of the runner's role: %w", err)
	}
	if creds.SessionToken == "" {
		return awsiam.Proof{}, fmt.Errorf("the credentials (%s) are a user's static key: a runner must use a role", creds.Source)
	}
	r, err := awsiam.NewRequest(ctx, e, c, now, creds.SessionToken)
	if err != nil {
		return awsiam.Proof{}, err
	}
	digest := sha256.Sum256([]byte(awsiam.Body))
	if err := v4.NewSigner().SignHTTP(ctx, creds, r, hex.EncodeToString(digest[:]), awsiam.Service, e.Region, now); err != nil {
		return awsiam.Proof{}, fmt.Errorf("sign the identity proof: %w", err)
	}
	_, signature, ok := strings.Cut(r.Header.Get("Authorization"), ", SignedHeaders="+awsiam.SignedHeaders+", Signature=")
	if !ok {
		// The SDK signs other headers than the control plane will send. Report that here: STS would only report a wrong
		// signature.
		return awsiam.Proof{}, fmt.Errorf("sign the identity proof: the signer signed other headers than %s", awsiam.SignedHeaders)
	}
	return awsiam.Proof{Host: e.Host, AccessKeyID: creds.AccessKeyID, SessionToken: creds.SessionToken,
		Date: r.Header.Get("X-Amz-Date"), Signature: signature}, nil
}
