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
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

const (
	// entraAudience is the audience of tokens that Entra accepts instead of a secret. signedBy is the only algorithm that
	// both Entra and AWS support.
	entraAudience = "api://AzureADTokenExchange"
	signedBy      = "RS256"
	// Scopes of tokens: Azure's API, and every AKS cluster with Entra.
	azureScope   = "https://management.azure.com/.default"
	clusterScope = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"
	// azureVersion is the version of the API of clusters.
	azureVersion = "2025-01-01"
)

// aksCluster is an AKS cluster that an application of Microsoft Entra can access. The control plane proves its identity with
// AWS. It sends Entra a token that AWS issued to the control plane's role, and Entra verifies the token with AWS's keys.
type aksCluster struct {
	of  runnerspec.AKSCluster
	api *sts.Client
	hc  *http.Client
	now func() time.Time
}

func newAKS(c runnerspec.AKSCluster, o Options) *aksCluster {
	return &aksCluster{of: c, api: sts.NewFromConfig(o.AWS), hc: cmp.Or(o.HTTP, http.DefaultClient), now: o.Now}
}

func (c *aksCluster) String() string {
	return fmt.Sprintf("AKS cluster %s in %s of subscription %s", c.of.Name, c.of.ResourceGroup, c.of.SubscriptionID)
}

// bearer returns an access token of the application for the cluster.
func (c *aksCluster) bearer(ctx context.Context) (string, time.Time, error) {
	return c.token(ctx, clusterScope)
}

func (c *aksCluster) token(ctx context.Context, scope string) (string, time.Time, error) {
	self, err := c.api.GetWebIdentityToken(ctx, &sts.GetWebIdentityTokenInput{Audience: []string{entraAudience}, SigningAlgorithm: aws.String(signedBy)})
	if err != nil {
		return "", time.Time{}, c.noIdentity(err)
	}
	assertion := aws.ToString(self.WebIdentityToken)
	entra := clientcredentials.Config{ClientID: c.of.Auth.ClientID, Scopes: []string{scope}, AuthStyle: oauth2.AuthStyleInParams,
		TokenURL: "https://login.microsoftonline.com/" + url.PathEscape(c.of.Auth.TenantID) + "/oauth2/v2.0/token",
		EndpointParams: url.Values{"client_assertion": {assertion},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}}}
	token, err := entra.Token(context.WithValue(ctx, oauth2.HTTPClient, c.hc))
	if err != nil {
		return "", time.Time{}, c.notKnown(assertion, err)
	}
	return token.AccessToken, c.now().Add(time.Until(token.Expiry) - replaceBefore), nil
}

func (c *aksCluster) noIdentity(err error) error {
	switch code(err) {
	case "OutboundWebIdentityFederationDisabled", "OutboundWebIdentityFederationDisabledException":
		return misconfigured(err, "the control plane's AWS account does not issue tokens: enable outbound identity federation in the account (aws iam enable-outbound-web-identity-federation)")
	case "AccessDenied", "AccessDeniedException":
		return misconfigured(err, "the control plane's AWS role may not get a token: allow sts:GetWebIdentityToken")
	}
	return fmt.Errorf("get an AWS token of the control plane, which authenticates to Azure by its AWS role: %w", err)
}

// notKnown returns the error if Entra issues no token. Its hint has the issuer and subject of the assertion. Only the
// signature of an assertion is secret.
func (c *aksCluster) notKnown(assertion string, err error) error {
	why, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || why.Response == nil || why.Response.StatusCode == http.StatusTooManyRequests || why.Response.StatusCode >= 500 {
		return fmt.Errorf("get an Entra token for %s: %w", c.of.Auth.ClientID, err)
	}
	var who struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if part := strings.Split(assertion, "."); len(part) == 3 {
		b, _ := base64.RawURLEncoding.DecodeString(part[1])
		_ = json.Unmarshal(b, &who) // what cannot be read is left out of the hint
	}
	return misconfigured(fmt.Errorf("%s, %s", why.ErrorCode, why.ErrorDescription),
		"Entra does not accept the control plane's AWS role as the application %s of the tenant %s: give the application a federated credential with the issuer %q, the subject %q and the audience %s",
		c.of.Auth.ClientID, c.of.Auth.TenantID, who.Issuer, who.Subject, entraAudience)
}

// locate requests the kubeconfig of the cluster's users and reads the cluster's address from it. It ignores the credentials
// in the kubeconfig, because they may name a program to run.
func (c *aksCluster) locate(ctx context.Context, _ string) (location, error) {
	token, _, err := c.token(ctx, azureScope)
	if err != nil {
		return location{}, err
	}
	kubeconfig, err := c.kubeconfig(ctx, token)
	if err != nil {
		return location{}, err
	}
	k, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return location{}, errors.New("AKS's description of the cluster is not a kubeconfig") // not wrapped: err may quote secrets
	}
	current := k.Contexts[k.CurrentContext]
	if current == nil || k.Clusters[current.Cluster] == nil {
		return location{}, errors.New("AKS's kubeconfig names no cluster")
	}
	at := k.Clusters[current.Cluster]
	return location{server: at.Server, authority: at.CertificateAuthorityData}, nil
}

func (c *aksCluster) kubeconfig(ctx context.Context, token string) ([]byte, error) {
	at := "https://management.azure.com/subscriptions/" + url.PathEscape(c.of.SubscriptionID) + "/resourceGroups/" + url.PathEscape(c.of.ResourceGroup) +
		"/providers/Microsoft.ContainerService/managedClusters/" + url.PathEscape(c.of.Name) + "/listClusterUserCredential?api-version=" + azureVersion
	status, body, err := question(ctx, c.hc, http.MethodPost, at, token)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, c.notDescribed(status, body)
	}
	var answer struct {
		Kubeconfigs []struct{ Value []byte }
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Kubeconfigs) == 0 {
		return nil, errors.New("get the cluster's address: Azure's answer has no kubeconfig")
	}
	return answer.Kubeconfigs[0].Value, nil
}

func (c *aksCluster) notDescribed(status int, body []byte) error {
	var answer struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(body, &answer) // Azure's text is only for people; without it, the status remains
	err := fmt.Errorf("the Azure API answered %d, %s, %s", status, answer.Error.Code, answer.Error.Message)
	switch status {
	case http.StatusNotFound:
		return misconfigured(err, "no such cluster: check cluster.name, cluster.resource_group and cluster.subscription_id")
	case http.StatusUnauthorized, http.StatusForbidden:
		return misconfigured(err, "the application %s may not get the cluster's address: give it the role Azure Kubernetes Service Cluster User Role on the cluster", c.of.Auth.ClientID)
	case http.StatusBadRequest:
		return misconfigured(err, "Azure does not find the cluster's address: check cluster.name, cluster.resource_group and cluster.subscription_id")
	}
	return fmt.Errorf("get the cluster's address: %w", err)
}

func (c *aksCluster) permissionHint() string {
	return fmt.Sprintf("enable Microsoft Entra in the cluster (az aks update --enable-aad), and grant the rules of docs/reference/executors.md to a user with the object id of the application %s", c.of.Auth.ClientID)
}
