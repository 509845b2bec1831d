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
	"github.com/fairlead/fairlead/runner/executor/assume"
)

const (
	// tokenFor is how long a token is used. EKS takes one for 15 minutes, and the
	// credentials that sign it last as long.
	tokenFor = 10 * time.Minute
	// clusterHeader binds a token to one cluster.
	clusterHeader = "x-k8s-aws-id"
	tokenPrefix   = "k8s-aws-v1."
)

// eksCluster is a cluster of EKS, as a role of its account knows it.
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
		// 60 is what EKS' own client sends; a signature is good for 15 minutes all the same.
		so.APIOptions = append(so.APIOptions, smithyhttp.SetHeaderValue(clusterHeader, c.Name), smithyhttp.SetHeaderValue("X-Amz-Expires", "60"))
	}), func(po *sts.PresignOptions) { po.Presigner = clocked{v4.NewSigner(), o.Now} })
	return e
}

// clocked signs at the time that its clock shows.
type clocked struct {
	signer *v4.Signer
	now    func() time.Time
}

// PresignHTTP is that of the signer.
func (c clocked) PresignHTTP(ctx context.Context, creds aws.Credentials, r *http.Request, hash, service, region string, _ time.Time, o ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return c.signer.PresignHTTP(ctx, creds, r, hash, service, region, c.now(), o...)
}

func (c *eksCluster) String() string {
	return fmt.Sprintf("EKS cluster %s in %s", c.of.Name, c.of.Region)
}

// bearer makes a token: a request to STS that says who has signed it, for the
// cluster to send.
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
	if code(err) != "AccessDenied" {
		return fmt.Errorf("assume the role %s: %w", c.of.Auth.RoleARN, err)
	}
	asks := "ask for no external id, as the configuration gives none"
	if id := c.of.Auth.ExternalID; id != "" {
		asks = "ask for no other external id than " + id
	}
	return misconfigured(err, "the role %s cannot be assumed: its trust policy must name who the control plane is to AWS, and %s", c.of.Auth.RoleARN, asks)
}

// locate describes the cluster.
func (c *eksCluster) locate(ctx context.Context, _ string) (location, error) {
	out, err := c.api.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &c.of.Name})
	if err != nil {
		return location{}, c.notDescribed(err)
	}
	cluster := out.Cluster
	switch cluster.Status {
	case types.ClusterStatusActive, types.ClusterStatusUpdating: // it answers while it is updated
	case types.ClusterStatusCreating, types.ClusterStatusPending:
		return location{}, fmt.Errorf("the cluster is %s: jobs can be started when it is ACTIVE", cluster.Status)
	default:
		return location{}, misconfigured(nil, "the cluster is %s, not ACTIVE: name another, or delete the runner", cluster.Status)
	}
	if cluster.CertificateAuthority == nil {
		return location{}, errors.New("EKS names no authority of the API server")
	}
	authority, err := base64.StdEncoding.DecodeString(aws.ToString(cluster.CertificateAuthority.Data))
	if err != nil {
		return location{}, fmt.Errorf("EKS' authority of the API server: %w", err)
	}
	return location{server: strings.TrimSuffix(aws.ToString(cluster.Endpoint), "/"), authority: authority}, nil
}

func (c *eksCluster) notDescribed(err error) error {
	switch code(err) {
	case "ResourceNotFoundException":
		return misconfigured(err, "the account of %s has no cluster of that name in that region: look at cluster.name, cluster.region and cluster.auth.role_arn", c.of.Auth.RoleARN)
	case "AccessDeniedException":
		return misconfigured(err, "the role %s may not ask where the cluster is: allow it eks:DescribeCluster", c.of.Auth.RoleARN)
	case "UnrecognizedClientException":
		return misconfigured(err, "the region does not know the account of %s: look at cluster.region, or enable it", c.of.Auth.RoleARN)
	}
	return fmt.Errorf("ask where the cluster is, by cluster.region %s: %w", c.of.Region, err)
}

func (c *eksCluster) stranger() string {
	return fmt.Sprintf("make an access entry of the cluster for %s (aws eks create-access-entry), and give its group or user the rules of docs/reference/executors.md", c.of.Auth.RoleARN)
}

// code is the code of AWS' answer, "" if it has not answered.
func code(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}
