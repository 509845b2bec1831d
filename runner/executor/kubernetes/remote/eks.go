package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
	"github.com/fairlead/fairlead/runner/internal/ekstoken"
)

// eksCluster is an EKS cluster that a role of the cluster's AWS account can access.
type eksCluster struct {
	of     runnerspec.EKSCluster
	role   aws.CredentialsProvider
	tokens *ekstoken.Maker
	api    *eks.Client
}

func newEKS(c runnerspec.EKSCluster, o Options) *eksCluster {
	cfg := assume.Role(o.AWS, c.Auth, c.Region, o.Session)
	cfg.Region = c.Region
	return &eksCluster{of: c, role: cfg.Credentials, api: eks.NewFromConfig(cfg), tokens: ekstoken.New(cfg, c.Name, o.Now)}
}

func (c *eksCluster) String() string {
	return fmt.Sprintf("EKS cluster %s in %s", c.of.Name, c.of.Region)
}

// bearer returns a token and the time until which it should be used.
func (c *eksCluster) bearer(ctx context.Context) (string, time.Time, error) {
	if _, err := c.role.Retrieve(ctx); err != nil {
		return "", time.Time{}, c.notAssumed(err)
	}
	token, until, err := c.tokens.Token(ctx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a token as %s: %w", c.of.Auth.RoleARN, err)
	}
	return token, until, nil
}

func (c *eksCluster) notAssumed(err error) error {
	if refused, ok := errors.AsType[*executor.LaunchError](err); ok {
		return refused
	}
	return fmt.Errorf("assume the role %s: %w", c.of.Auth.RoleARN, err)
}

// locate returns the address of the cluster.
func (c *eksCluster) locate(ctx context.Context, _ string) (location, error) {
	out, err := c.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &c.of.Name})
	if err != nil {
		return location{}, c.notDescribed(err)
	}
	cluster := out.Cluster
	switch cluster.Status {
	case types.ClusterStatusActive, types.ClusterStatusUpdating: // an updating cluster answers
	case types.ClusterStatusCreating, types.ClusterStatusPending:
		return location{}, fmt.Errorf("the cluster is %s: jobs can be started when it is ACTIVE", cluster.Status)
	default:
		return location{}, misconfigured(nil, "the cluster is %s, not ACTIVE: configure another cluster, or delete the runner", cluster.Status)
	}
	if cluster.CertificateAuthority == nil {
		return location{}, errors.New("EKS's answer has no certificate authority of the API server")
	}
	authority, err := base64.StdEncoding.DecodeString(aws.ToString(cluster.CertificateAuthority.Data))
	if err != nil {
		return location{}, fmt.Errorf("certificate authority of the API server in EKS's answer: %w", err)
	}
	return location{server: strings.TrimSuffix(aws.ToString(cluster.Endpoint), "/"), authority: authority}, nil
}

func (c *eksCluster) notDescribed(err error) error {
	switch code(err) {
	case "ResourceNotFoundException":
		return misconfigured(err, "the account of %s has no cluster of that name in that region: check cluster.name, cluster.region and cluster.auth.role_arn", c.of.Auth.RoleARN)
	case "AccessDeniedException":
		return misconfigured(err, "the role %s may not get the cluster's address: allow eks:DescribeCluster", c.of.Auth.RoleARN)
	case "UnrecognizedClientException":
		return misconfigured(err, "the region does not know the account of %s: check cluster.region, or enable the region", c.of.Auth.RoleARN)
	}
	return fmt.Errorf("get the cluster's address in cluster.region %s: %w", c.of.Region, err)
}

func (c *eksCluster) permissionHint() string {
	return fmt.Sprintf("create an access entry of the cluster for %s (aws eks create-access-entry), and give its group or user the rules of docs/reference/executors.md", c.of.Auth.RoleARN)
}

// code returns the error code of AWS's answer, or "" if AWS has not answered.
func code(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}
