package remote_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes/remote"
)

const (
	tenant       = "11111111-2222-3333-4444-555555555555"
	application  = "66666666-7777-8888-9999-000000000000"
	subscription = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
	issuer       = "https://0123.tokens.sts.global.api.aws"
	ourRole      = "arn:aws:iam::999999999999:role/control-plane"
)

// azure is Azure with an AKS cluster, and AWS with the control plane's role.
type azure struct {
	*cloudtest.Azure
	clock    *clock
	sts      *ststest.Server
	identity *cloudtest.WebIdentity
	keys     *oidctest.Issuer
	cfg      aws.Config // of the control plane
}

func newAzure(t *testing.T) *azure {
	a := &azure{clock: &clock{}, sts: ststest.New(time.Now), keys: oidctest.Unserved(issuer, time.Now)}
	a.keys.AddKey("RS256")
	a.identity = &cloudtest.WebIdentity{STS: a.sts, Sign: a.keys.Token, ARN: func(key string) (string, bool) {
		who, ok := a.sts.Principal(key)
		return who.ARN, ok
	}}
	a.Azure = cloudtest.NewAzure(t, cloudtest.Hosts{strings.TrimPrefix(issuer, "https://"): a.keys}, a.clock.now, whoami)
	a.Tenant, a.Client, a.Issuer, a.Subject, a.User = tenant, application, issuer, ourRole, "the-application"
	a.Path = "subscriptions/" + subscription + "/resourceGroups/eu/providers/Microsoft.ContainerService/managedClusters/jobs"
	a.is("control-plane")
	return a
}

// is sets the control plane's role.
func (a *azure) is(role string) {
	self := a.sts.AssumeRole("aws", "999999999999", role, "AROACONTROLPLANE00001", "server")
	a.cfg = aws.Config{Region: region, RetryMaxAttempts: 1, HTTPClient: &http.Client{Transport: cloudtest.Hosts{"sts." + region + ".amazonaws.com": a.identity}},
		Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
}

func (a *azure) of() runnerspec.AKSCluster {
	return runnerspec.AKSCluster{Name: "jobs", ResourceGroup: "eu", SubscriptionID: subscription, Auth: runnerspec.AzureAuth{TenantID: tenant, ClientID: application}}
}

func (a *azure) client(t *testing.T, c runnerspec.AKSCluster) *rest.Config {
	t.Helper()
	cfg, err := remote.Config(&runnerspec.AKSRunner{Cluster: &c}, remote.Options{AWS: a.cfg, HTTP: &http.Client{Transport: a.Hosts()}, Now: a.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The runner finds an AKS cluster by its name. The cluster maps the agent to the application, which the control plane's AWS
// role can assume in Entra. The program in the cluster's kubeconfig is not run. A token is replaced before its hour is over.
func TestAKSClusterAcceptsTheApplication(t *testing.T) {
	a := newAzure(t)
	lastsAnHour(t, a.client(t, a.of()), a.clock, a.Front, "the-application", a.Requests, 1)
}

// Every failure to access a cluster has a hint. Failures that a retry cannot fix are reported at once.
func TestEveryAKSFailureHasAHint(t *testing.T) {
	for _, tc := range []struct {
		name      string
		of        func(*azure, *runnerspec.AKSCluster)
		want      []string
		temporary bool // a retry may succeed
	}{
		{"the control plane has no AWS identity", func(a *azure, _ *runnerspec.AKSCluster) { a.cfg.Credentials = nil }, []string{"by its AWS role"}, true},
		{"the account issues no tokens", func(a *azure, _ *runnerspec.AKSCluster) {
			a.identity.Refuse = "OutboundWebIdentityFederationDisabled"
		}, []string{"enable-outbound-web-identity-federation"}, false},
		{"the role may not get a token", func(a *azure, _ *runnerspec.AKSCluster) { a.identity.Refuse = "AccessDenied" }, []string{"sts:GetWebIdentityToken"}, false},
		{"the application trusts another role", func(a *azure, _ *runnerspec.AKSCluster) { a.is("billing") },
			[]string{`the issuer "` + issuer + `", the subject "arn:aws:iam::999999999999:role/billing"`, "api://AzureADTokenExchange", "AADSTS700213"}, false},
		{"another issuer signed", func(a *azure, _ *runnerspec.AKSCluster) {
			other := oidctest.Unserved(issuer, time.Now)
			other.AddKey("RS256")
			a.identity.Sign = other.Token
		}, []string{"AADSTS5002736"}, false},
		{"no such application", func(_ *azure, c *runnerspec.AKSCluster) { c.Auth.ClientID = subscription }, []string{subscription, "AADSTS700016"}, false},
		{"no such tenant", func(_ *azure, c *runnerspec.AKSCluster) { c.Auth.TenantID = subscription }, []string{subscription, "AADSTS90002"}, false},
		{"the application may not get the cluster's address", func(a *azure, _ *runnerspec.AKSCluster) { a.DenyDescribe = true }, []string{"Cluster User Role", application}, false},
		{"no such cluster", func(_ *azure, c *runnerspec.AKSCluster) { c.Name = "jbos" }, []string{"AKS cluster jbos in eu", "cluster.resource_group"}, false},
		{"a name with another path", func(_ *azure, c *runnerspec.AKSCluster) { c.ResourceGroup = "eu/../us" }, []string{"cluster.name"}, false},
		{"the cluster does not know the application", func(a *azure, _ *runnerspec.AKSCluster) { a.User = "" }, []string{"--enable-aad", application}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAzure(t)
			of := a.of()
			tc.of(a, &of)
			refuses(t, a.client(t, of), tc.temporary, tc.want)
		})
	}
}
