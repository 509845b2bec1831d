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
	// entraAudience is for whom a token must be that Entra takes instead of a
	// secret, and signedBy the one algorithm that both it and AWS know.
	entraAudience = "api://AzureADTokenExchange"
	signedBy      = "RS256"
	// The scopes of tokens: of Azure's API, and of every AKS cluster that has Entra.
	azureScope   = "https://management.azure.com/.default"
	clusterScope = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"
	// azureVersion is that of the API of clusters.
	azureVersion = "2025-01-01"
)

// aksCluster is a cluster of AKS, as an application of Microsoft Entra knows it.
// Entra learns who the control plane is from AWS: it is shown a token that AWS
// has given the control plane's own role, and fetches AWS' keys.
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

// bearer returns an access token of the application for clusters.
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
		return misconfigured(err, "the control plane's AWS account gives out no tokens: enable outbound identity federation in it (aws iam enable-outbound-web-identity-federation)")
	case "AccessDenied", "AccessDeniedException":
		return misconfigured(err, "the control plane's AWS role may not get a token: allow it sts:GetWebIdentityToken")
	}
	return fmt.Errorf("get a token of AWS' for the control plane, as only by its AWS role can it be somebody to Azure: %w", err)
}

// notKnown says why Entra gives no token. What it must be told is in the
// assertion, and nothing of that is secret but its signature.
func (c *aksCluster) notKnown(assertion string, err error) error {
	why, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || why.Response == nil || why.Response.StatusCode == http.StatusTooManyRequests || why.Response.StatusCode >= 500 {
		return fmt.Errorf("get a token of Entra's for %s: %w", c.of.Auth.ClientID, err)
	}
	var who struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if part := strings.Split(assertion, "."); len(part) == 3 {
		b, _ := base64.RawURLEncoding.DecodeString(part[1])
		_ = json.Unmarshal(b, &who) // what cannot be read is not told
	}
	return misconfigured(fmt.Errorf("%s, %s", why.ErrorCode, why.ErrorDescription),
		"Entra does not take the control plane's AWS role for the application %s of the tenant %s: give that a federated credential with the issuer %q, the subject %q and the audience %s",
		c.of.Auth.ClientID, c.of.Auth.TenantID, who.Issuer, who.Subject, entraAudience)
}

// locate asks for the kubeconfig of the cluster's users, and takes from it where
// the cluster is. How one is to prove oneself by it is not heeded: it may name a
// program to run.
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
		return location{}, errors.New("AKS' description of the cluster is no kubeconfig") // not wrapped: it may quote what it read
	}
	current := k.Contexts[k.CurrentContext]
	if current == nil || k.Clusters[current.Cluster] == nil {
		return location{}, errors.New("AKS' description of the cluster names none")
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
		return nil, errors.New("ask where the cluster is: Azure answers with no kubeconfig")
	}
	return answer.Kubeconfigs[0].Value, nil
}

func (c *aksCluster) notDescribed(status int, body []byte) error {
	var answer struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(body, &answer) // what Azure says is for a person; without it there is the status
	err := fmt.Errorf("answer %d of Azure's, %s, %s", status, answer.Error.Code, answer.Error.Message)
	switch status {
	case http.StatusNotFound:
		return misconfigured(err, "there is no such cluster: look at cluster.name, cluster.resource_group and cluster.subscription_id")
	case http.StatusUnauthorized, http.StatusForbidden:
		return misconfigured(err, "the application %s may not ask where the cluster is: give it the role Azure Kubernetes Service Cluster User Role on the cluster", c.of.Auth.ClientID)
	case http.StatusBadRequest:
		return misconfigured(err, "Azure cannot say where the cluster is: look at cluster.name, cluster.resource_group and cluster.subscription_id")
	}
	return fmt.Errorf("ask where the cluster is: %w", err)
}

func (c *aksCluster) stranger() string {
	return fmt.Sprintf("have it take users of Microsoft Entra (az aks update --enable-aad), and give the object id of the application %s, as a user, the rules of docs/reference/executors.md", c.of.Auth.ClientID)
}
