// Package eks proves the AWS role of a job to a cluster of Amazon EKS.
package eks

import (
	"context"
	"errors"
	"fmt"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/ekstoken"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Tokens returns the tokens of the cluster in the region, for the AWS credentials of the environment. "" is the region of the
// environment. Tokens sends no request, but a token may need one for its credentials. A token is kept until it should not be used
// any more.
func Tokens(ctx context.Context, cluster, region string, now func() time.Time) (oauth2.TokenSource, error) {
	var with []func(*awsconfig.LoadOptions) error
	if region != "" {
		with = append(with, awsconfig.WithRegion(region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err == nil && cfg.Region == "" {
		err = errors.New("no region is set")
	}
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the environment has no usable configuration of AWS for the cluster %s: %v. Set the option eks_region, and run the job with an AWS role", cluster, err)}
	}
	return oauth2.ReuseTokenSource(nil, &source{ctx, cluster, ekstoken.New(cfg, cluster, now)}), nil
}

// source makes the tokens of one operation.
type source struct {
	ctx     context.Context // of the operation; oauth2 passes none
	cluster string
	maker   *ekstoken.Maker
}

// Token implements oauth2.TokenSource.
func (s *source) Token() (*oauth2.Token, error) {
	token, until, err := s.maker.Token(s.ctx)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonEnvInvalid, Err: err, Message: fmt.Sprintf("the job has no AWS credentials for the cluster %s: %v", s.cluster, err)}
	}
	return &oauth2.Token{AccessToken: token, Expiry: until}, nil
}
