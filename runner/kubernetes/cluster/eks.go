package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// EKS names a cluster of Amazon EKS, to which a job proves its AWS role.
type EKS struct{ Cluster, Region string }

const (
	// eksHeader binds a token to one cluster. EKS accepts only tokens that sign its own name.
	eksHeader = "X-K8s-Aws-Id"
	eksPrefix = "k8s-aws-v1."
	// eksValid is how long EKS accepts a token, whatever the URL in it states. A new token is made a minute earlier.
	eksValid = 15 * time.Minute
	// eksURLValid is the validity of the signed URL. EKS calls it at once.
	eksURLValid = time.Minute
)

// eksTokens makes tokens for an EKS cluster: signed URLs of the request by which AWS STS reports the caller's role. Safe for
// concurrent use.
type eksTokens struct {
	ctx     context.Context
	cluster string
	client  *sts.PresignClient
	now     func() time.Time
}

// newEKSTokens returns the tokens for the AWS credentials of the environment. It sends no request, but the credentials may need some.
func newEKSTokens(ctx context.Context, of EKS, now func() time.Time) (oauth2.TokenSource, error) {
	var with []func(*awsconfig.LoadOptions) error
	if of.Region != "" {
		with = append(with, awsconfig.WithRegion(of.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err == nil && cfg.Region == "" {
		err = fmt.Errorf("no region is set")
	}
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the environment has no usable configuration of AWS for the cluster %s: %v. Set the option eks_region, and run the job with an AWS role", of.Cluster, err)}
	}
	return oauth2.ReuseTokenSource(nil, &eksTokens{ctx, of.Cluster, sts.NewPresignClient(sts.NewFromConfig(cfg)), now}), nil
}

// Token implements oauth2.TokenSource.
func (e *eksTokens) Token() (*oauth2.Token, error) {
	made := e.now()
	req, err := e.client.PresignGetCallerIdentity(e.ctx, &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue(eksHeader, e.cluster))
		})
		o.Presigner = expiring{o.Presigner}
	})
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the job has no AWS credentials for the cluster %s: %v", e.cluster, err)}
	}
	return &oauth2.Token{AccessToken: eksPrefix + base64.RawURLEncoding.EncodeToString([]byte(req.URL)), Expiry: made.Add(eksValid - time.Minute)}, nil
}

// expiring signs URLs that are valid for eksURLValid.
type expiring struct{ sts.HTTPPresignerV4 }

// PresignHTTP implements sts.HTTPPresignerV4.
func (e expiring) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, payload, service, region string, at time.Time, options ...func(*v4.SignerOptions)) (string, http.Header, error) {
	query := r.URL.Query()
	query.Set("X-Amz-Expires", strconv.Itoa(int(eksURLValid.Seconds())))
	r.URL.RawQuery = query.Encode()
	return e.HTTPPresignerV4.PresignHTTP(ctx, creds, r, payload, service, region, at, options...)
}
