// Package eks proves the AWS role of a job to a cluster of Amazon EKS.
package eks

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

const (
	// header binds a token to one cluster. EKS accepts only tokens that sign its own name.
	header = "X-K8s-Aws-Id"
	prefix = "k8s-aws-v1."
	// valid is how long EKS accepts a token, whatever the URL in it states. A new token is made a minute earlier.
	valid = 15 * time.Minute
	// urlValid is the validity of the signed URL. EKS calls it at once.
	urlValid = time.Minute
)

// source makes tokens for a cluster: signed URLs of the request by which AWS STS reports the caller's role. Safe for concurrent
// use.
type source struct {
	ctx     context.Context
	cluster string
	client  *sts.PresignClient
	now     func() time.Time
}

// Tokens returns the tokens of the cluster in the region, for the AWS credentials of the environment. "" is the region of the
// environment. Tokens sends no request, but a token may need one for its credentials. A token is kept until a minute before its end.
func Tokens(ctx context.Context, cluster, region string, now func() time.Time) (oauth2.TokenSource, error) {
	var with []func(*awsconfig.LoadOptions) error
	if region != "" {
		with = append(with, awsconfig.WithRegion(region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err == nil && cfg.Region == "" {
		err = fmt.Errorf("no region is set")
	}
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the environment has no usable configuration of AWS for the cluster %s: %v. Set the option eks_region, and run the job with an AWS role", cluster, err)}
	}
	return oauth2.ReuseTokenSource(nil, &source{ctx, cluster, sts.NewPresignClient(sts.NewFromConfig(cfg)), now}), nil
}

// Token implements oauth2.TokenSource.
func (e *source) Token() (*oauth2.Token, error) {
	made := e.now()
	req, err := e.client.PresignGetCallerIdentity(e.ctx, &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue(header, e.cluster))
		})
		o.Presigner = expiring{o.Presigner}
	})
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the job has no AWS credentials for the cluster %s: %v", e.cluster, err)}
	}
	return &oauth2.Token{AccessToken: prefix + base64.RawURLEncoding.EncodeToString([]byte(req.URL)), Expiry: made.Add(valid - time.Minute)}, nil
}

// expiring signs URLs that are valid for urlValid.
type expiring struct{ sts.HTTPPresignerV4 }

// PresignHTTP implements sts.HTTPPresignerV4.
func (e expiring) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, payload, service, region string, at time.Time, options ...func(*v4.SignerOptions)) (string, http.Header, error) {
	query := r.URL.Query()
	query.Set("X-Amz-Expires", strconv.Itoa(int(urlValid.Seconds())))
	r.URL.RawQuery = query.Encode()
	return e.HTTPPresignerV4.PresignHTTP(ctx, creds, r, payload, service, region, at, options...)
}
