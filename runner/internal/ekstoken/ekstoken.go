// Package ekstoken makes tokens for clusters of Amazon EKS: signed URLs of the request by which AWS STS reports the caller's
// role. The cluster sends the request to STS, which answers who signed it.
package ekstoken

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// usedFor is how long a token is used. EKS accepts a token for 15 minutes, and the credentials that sign the token are
	// valid for at least 15 minutes.
	usedFor = 10 * time.Minute
	// header binds a token to one cluster. EKS accepts only tokens that sign its own name.
	header = "x-k8s-aws-id"
	prefix = "k8s-aws-v1."
)

// Maker makes the tokens of one cluster. Safe for concurrent use.
type Maker struct {
	client *sts.PresignClient
	now    func() time.Time
}

// New returns a Maker for the cluster with the name, in the region and with the credentials of cfg. It sends no request.
func New(cfg aws.Config, cluster string, now func() time.Time) *Maker {
	client := sts.NewFromConfig(cfg, func(o *sts.Options) {
		// 60 is the value of EKS's own client; the signature is valid for 15 minutes anyway.
		o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue(header, cluster), smithyhttp.SetHeaderValue("X-Amz-Expires", "60"))
	})
	return &Maker{sts.NewPresignClient(client, func(o *sts.PresignOptions) { o.Presigner = clocked{v4.NewSigner(), now} }), now}
}

// Token returns a token and the time until which it should be used. The credentials may need a request.
func (m *Maker) Token(ctx context.Context) (token string, until time.Time, err error) {
	made := m.now()
	r, err := m.client.PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", time.Time{}, err
	}
	return prefix + base64.RawURLEncoding.EncodeToString([]byte(r.URL)), made.Add(usedFor), nil
}

// clocked is a signer that uses the time of its clock.
type clocked struct {
	signer *v4.Signer
	now    func() time.Time
}

// PresignHTTP calls the signer with the clock's time.
func (c clocked) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, hash, service, region string, _ time.Time, o ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return c.signer.PresignHTTP(ctx, creds, r, hash, service, region, c.now(), o...)
}
