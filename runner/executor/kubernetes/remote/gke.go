package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

const (
	// awsSubject is the type of a token that is a signed request to AWS's STS.
	awsSubject = "urn:ietf:params:aws:token-type:aws4_request"
	// cloudScope is the scope of the service account's tokens. IAM and the cluster decide about its permissions.
	cloudScope = "https://www.googleapis.com/auth/cloud-platform"
)

// gkeCluster is a GKE cluster that a service account of its project can access. The control plane proves its identity with
// AWS. It signs a request to AWS's STS with its own role and sends the signed request to Google. Google sends it to STS.
type gkeCluster struct {
	of  runnerspec.GKECluster
	aws aws.Config
	hc  *http.Client
	now func() time.Time
}

func newGKE(c runnerspec.GKECluster, o Options) *gkeCluster {
	return &gkeCluster{of: c, aws: o.AWS, hc: cmp.Or(o.HTTP, http.DefaultClient), now: o.Now}
}

func (c *gkeCluster) String() string {
	return fmt.Sprintf("GKE cluster %s in %s of project %s", c.of.Name, c.of.Location, c.of.ProjectID)
}

// bearer returns an access token of the service account.
func (c *gkeCluster) bearer(ctx context.Context) (string, time.Time, error) {
	answers := &lastAnswer{via: cmp.Or(c.hc.Transport, http.DefaultTransport)}
	source, err := externalaccount.NewTokenSource(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: answers}), externalaccount.Config{
		Audience: c.of.Auth.Audience, SubjectTokenType: awsSubject, AwsSecurityCredentialsSupplier: awsIdentity{c.aws}, Scopes: []string{cloudScope},
		ServiceAccountImpersonationURL: "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + url.PathEscape(c.of.Auth.ServiceAccount) + ":generateAccessToken",
	})
	if err != nil {
		return "", time.Time{}, misconfigured(err, "cluster.auth")
	}
	token, err := source.Token()
	if err != nil {
		return "", time.Time{}, c.notKnown(answers, err)
	}
	return token.AccessToken, token.Expiry.Add(-replaceBefore), nil
}

// notKnown returns the error if Google issues no token. err has Google's text.
func (c *gkeCluster) notKnown(answers *lastAnswer, err error) error {
	if answers.status == 0 || answers.status == http.StatusTooManyRequests || answers.status >= 500 {
		return fmt.Errorf("get a Google token for %s: %w", c.of.Auth.ServiceAccount, err)
	}
	if answers.host == "sts.googleapis.com" {
		return misconfigured(err, "Google does not accept the control plane's AWS role: cluster.auth.gcp_audience must be a provider of type aws for the control plane's account, "+
			"whose attribute condition accepts its role")
	}
	return misconfigured(err, "Google does not let the control plane impersonate %s: check cluster.auth.gcp_service_account, grant the control plane's principal of the pool roles/iam.workloadIdentityUser on it, "+
		"and enable the API iamcredentials.googleapis.com", c.of.Auth.ServiceAccount)
}

// description is the part of Google's description of a cluster that is used here.
type description struct {
	Status     string `json:"status"`
	Endpoint   string `json:"endpoint"`
	MasterAuth struct {
		Authority string `json:"clusterCaCertificate"`
	} `json:"masterAuth"`
	Private struct {
		Endpoint string `json:"privateEndpoint"`
	} `json:"privateClusterConfig"`
	Endpoints struct {
		IP struct {
			Public  string `json:"publicEndpoint"`
			Private string `json:"privateEndpoint"`
		} `json:"ipEndpointsConfig"`
	} `json:"controlPlaneEndpointsConfig"`
}

// locate returns the address of the cluster.
func (c *gkeCluster) locate(ctx context.Context, token string) (location, error) {
	d, err := c.describe(ctx, token)
	if err != nil {
		return location{}, err
	}
	switch d.Status {
	case "RUNNING", "RECONCILING", "DEGRADED": // the cluster may answer
	case "PROVISIONING":
		return location{}, fmt.Errorf("the cluster is %s: jobs can be started when it is RUNNING", d.Status)
	default:
		return location{}, misconfigured(nil, "the cluster is %s, not RUNNING: configure another cluster, or delete the runner", d.Status)
	}
	address := cmp.Or(d.Endpoints.IP.Public, d.Endpoint)
	if c.of.InternalIP {
		address = cmp.Or(d.Endpoints.IP.Private, d.Private.Endpoint)
	}
	if address == "" {
		return location{}, misconfigured(nil, "the cluster has no address of this type: cluster.internal_ip is %t", c.of.InternalIP)
	}
	authority, err := base64.StdEncoding.DecodeString(d.MasterAuth.Authority)
	if err != nil || len(authority) == 0 {
		return location{}, fmt.Errorf("certificate authority of the API server in GKE's answer: %w", cmp.Or(err, errors.New("it is empty")))
	}
	return location{server: "https://" + address, authority: authority}, nil
}

func (c *gkeCluster) describe(ctx context.Context, token string) (description, error) {
	var d description
	at := "https://container.googleapis.com/v1/projects/" + url.PathEscape(c.of.ProjectID) + "/locations/" + url.PathEscape(c.of.Location) + "/clusters/" + url.PathEscape(c.of.Name)
	status, body, err := question(ctx, c.hc, http.MethodGet, at, token)
	if err != nil {
		return d, err
	}
	if status != http.StatusOK {
		return d, c.notDescribed(status, body)
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, fmt.Errorf("get the cluster's address: %w", err)
	}
	return d, nil
}

func (c *gkeCluster) notDescribed(status int, body []byte) error {
	var answer struct {
		Error struct{ Message string }
	}
	_ = json.Unmarshal(body, &answer) // Google's text is only for people; without it, the status remains
	err := fmt.Errorf("the Google API answered %d, %s", status, cmp.Or(answer.Error.Message, "without a message"))
	switch status {
	case http.StatusNotFound:
		return misconfigured(err, "the project has no cluster of that name there: check cluster.name, cluster.location and cluster.project_id")
	case http.StatusUnauthorized, http.StatusForbidden:
		return misconfigured(err, "%s may not get the cluster's address: grant it roles/container.clusterViewer in the project, and enable the API container.googleapis.com", c.of.Auth.ServiceAccount)
	case http.StatusBadRequest:
		return misconfigured(err, "Google does not accept this as a cluster's name: check cluster.name, cluster.location and cluster.project_id")
	}
	return fmt.Errorf("get the cluster's address: %w", err)
}

func (c *gkeCluster) permissionHint() string {
	return fmt.Sprintf("grant %s roles/container.clusterViewer in the project, and give that user the rules of docs/reference/executors.md", c.of.Auth.ServiceAccount)
}

// awsIdentity provides the control plane's AWS credentials.
type awsIdentity struct{ cfg aws.Config }

// AwsRegion returns the region of the STS that Google calls.
func (i awsIdentity) AwsRegion(context.Context, externalaccount.SupplierOptions) (string, error) {
	if i.cfg.Region == "" {
		return "", errors.New("no AWS region is configured: set AWS_REGION for the control plane")
	}
	return i.cfg.Region, nil
}

// AwsSecurityCredentials returns the credentials that sign the request.
func (i awsIdentity) AwsSecurityCredentials(ctx context.Context, _ externalaccount.SupplierOptions) (*externalaccount.AwsSecurityCredentials, error) {
	if i.cfg.Credentials == nil {
		return nil, errors.New("the control plane has no AWS credentials, but authenticates to Google with its AWS role")
	}
	creds, err := i.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, fmt.Errorf("the control plane has no AWS credentials, but authenticates to Google with its AWS role: %w", err)
	}
	return &externalaccount.AwsSecurityCredentials{AccessKeyID: creds.AccessKeyID, SecretAccessKey: creds.SecretAccessKey, SessionToken: creds.SessionToken}, nil
}

// lastAnswer records the host and status of the last answer.
type lastAnswer struct {
	via    http.RoundTripper
	host   string
	status int
}

// RoundTrip sends a request and records its answer.
func (l *lastAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	l.host, l.status = r.URL.Hostname(), 0
	resp, err := l.via.RoundTrip(r)
	if err == nil {
		l.status = resp.StatusCode
	}
	return resp, err
}
