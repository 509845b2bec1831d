package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
)

const (
	// tokenFor is how long a token is used. EKS accepts a token for 15 minutes, and the credentials that sign the token are
	// valid for at least 15 minutes.
	tokenFor = 10 * time.Minute
	// clusterHeader binds a token to one cluster.
	clusterHeader = "x-k8s-aws-id"
	tokenPrefix   = "k8s-aws-v1."
)

// eksCluster is an EKS cluster that a role of the cluster's AWS account can access.
type eksCluster struct {
	of      runnerspec.EKSCluster
	role    aws.CredentialsProvider
	presign *sts.PresignClient
	api     *eks.Client
	now     func() time.Time
}

func newEKS(c runnerspec.EKSCluster, o Options) *eksCluster {
	cfg := assume.Role(o.AWS, c.Auth, c.Region, o.Session)
	cfg.Region = c.Region
	e := &eksCluster{of: c, role: cfg.Credentials, api: eks.NewFromConfig(cfg), now: o.Now}
	e.presign = sts.NewPresignClient(sts.NewFromConfig(cfg, func(so *sts.Options) {
		// 60 is the value of EKS's own client; the signature is valid for 15 minutes anyway.
		so.APIOptions = append(so.APIOptions, smithyhttp.SetHeaderValue(clusterHeader, c.Name), smithyhttp.SetHeaderValue("X-Amz-Expires", "60"))
	}), func(po *sts.PresignOptions) { po.Presigner = clocked{v4.NewSigner(), o.Now} })
	return e
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

func (c *eksCluster) String() string {
	return fmt.Sprintf("EKS cluster %s in %s", c.of.Name, c.of.Region)
}

// bearer returns a token: a presigned request to STS. The cluster sends the request to STS, which answers who signed it.
func (c *eksCluster) bearer(ctx context.Context) (string, time.Time, error) {
	if _, err := c.role.Retrieve(ctx); err != nil {
		return "", time.Time{}, c.notAssumed(err)
	}
	r, err := c.presign.PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a token as %s: %w", c.of.Auth.RoleARN, err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(r.URL)), c.now().Add(tokenFor), nil
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
