package remote_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes/remote"
)

const (
	provider = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/fairlead/providers/aws"
	account  = "fairlead-runner@my-gcp-project.iam.gserviceaccount.com"
)

// google is Google Cloud with a GKE cluster, and AWS with the control plane's role.
type google struct {
	*cloudtest.Google
	clock *clock
	sts   *ststest.Server
	cfg   aws.Config // of the control plane
}

func newGoogle(t *testing.T) *google {
	g := &google{clock: &clock{}}
	g.sts = ststest.New(time.Now) // the library signs with the real time
	g.Google = cloudtest.NewGoogle(t, cloudtest.Hosts{"sts." + region + ".amazonaws.com": g.sts}, g.clock.now, whoami)
	g.Audience, g.Account, g.Role = provider, "999999999999", "arn:aws:iam::999999999999:role/control-plane"
	g.Email, g.User, g.Path = account, account, "projects/my-gcp-project/locations/europe-west3/clusters/my-cluster"
	g.is("control-plane")
	return g
}

// is sets the control plane's role.
func (g *google) is(role string) {
	self := g.sts.AssumeRole("aws", "999999999999", role, "AROACONTROLPLANE00001", "server")
	g.cfg = aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
}

func (g *google) of() runnerspec.GKECluster {
	return runnerspec.GKECluster{Name: "my-cluster", ProjectID: "my-gcp-project", Location: "europe-west3",
		Auth: runnerspec.GCPAuth{Audience: provider, ServiceAccount: account}}
}

func (g *google) client(t *testing.T, c runnerspec.GKECluster) *rest.Config {
	t.Helper()
	cfg, err := remote.Config(&runnerspec.GKERunner{Cluster: &c}, remote.Options{AWS: g.cfg, HTTP: &http.Client{Transport: g.Hosts()}, Now: g.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The runner finds a GKE cluster by its name. The cluster maps the agent to the service account, which the control plane's AWS
// role can impersonate in Google. AWS itself confirms to Google who signed the request. A token is replaced before its hour is over.
func TestGKEClusterAcceptsTheServiceAccount(t *testing.T) {
	for _, tc := range []struct {
		name     string
		internal bool
	}{{"at its public address", false}, {"at its private address", true}} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGoogle(t)
			g.Private = tc.internal
			of := g.of()
			of.InternalIP = tc.internal
			lastsAnHour(t, g.client(t, of), g.clock, g.Front, account, g.Requests, 0)
		})
	}
}

// Every failure to access a cluster has a hint. Failures that a retry cannot fix are reported at once.
func TestEveryGKEFailureHasAHint(t *testing.T) {
	for _, tc := range []struct {
		name      string
		of        func(*google, *runnerspec.GKECluster)
		want      []string
		temporary bool // a retry may succeed
	}{
		{"the control plane has no AWS credentials", func(g *google, _ *runnerspec.GKECluster) { g.cfg.Credentials = nil }, []string{"no AWS credentials"}, true},
		{"no AWS region is set", func(g *google, _ *runnerspec.GKECluster) { g.cfg.Region = "" }, []string{"set AWS_REGION"}, true},
		{"the provider accepts another role", func(g *google, _ *runnerspec.GKECluster) { g.is("billing") }, []string{"gcp_audience", "attribute condition"}, false},
		{"AWS does not know the key", func(g *google, _ *runnerspec.GKECluster) {
			g.cfg.Credentials = credentials.NewStaticCredentialsProvider("ASIA0000000000000000", "k", "t")
		}, []string{"gcp_audience", "InvalidClientTokenId"}, false},
		{"a guessed secret key", func(g *google, _ *runnerspec.GKECluster) {
			c, err := g.cfg.Credentials.Retrieve(context.Background())
			if err != nil {
				panic(err)
			}
			g.cfg.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKeyID, "guessed", c.SessionToken)
		}, []string{"SignatureDoesNotMatch"}, false},
		{"another provider", func(_ *google, c *runnerspec.GKECluster) {
			c.Auth.Audience = strings.Replace(provider, "providers/aws", "providers/other", 1)
		}, []string{"gcp_audience"}, false},
		{"impersonation is not allowed", func(g *google, _ *runnerspec.GKECluster) { g.May.Impersonate = false }, []string{account, "roles/iam.workloadIdentityUser"}, false},
		{"another service account", func(_ *google, c *runnerspec.GKECluster) {
			c.Auth.ServiceAccount = "x@my-gcp-project.iam.gserviceaccount.com"
		}, []string{"impersonate x@my-gcp-project.iam", "gcp_service_account"}, false},
		{"the service account may not get the cluster's address", func(g *google, _ *runnerspec.GKECluster) { g.May.Describe = false },
			[]string{"roles/container.clusterViewer", "container.clusters.get"}, false},
		{"no such cluster", func(_ *google, c *runnerspec.GKECluster) { c.Name = "my-clutser" }, []string{"GKE cluster my-clutser in europe-west3 of project my-gcp-project", "cluster.location"}, false},
		{"another location", func(_ *google, c *runnerspec.GKECluster) { c.Location = "europe-west1" }, []string{"cluster.location"}, false},
		{"a name with another path", func(_ *google, c *runnerspec.GKECluster) { c.Name = "my-cluster/../other" }, []string{"cluster.name"}, false},
		{"the cluster is being created", func(g *google, _ *runnerspec.GKECluster) { g.Status = "PROVISIONING" }, []string{"when it is RUNNING"}, true},
		{"the cluster could not be created", func(g *google, _ *runnerspec.GKECluster) { g.Status = "ERROR" }, []string{"ERROR", "configure another"}, false},
		{"the cluster is being deleted", func(g *google, _ *runnerspec.GKECluster) { g.Status = "STOPPING" }, []string{"STOPPING", "configure another"}, false},
		{"the cluster has no private address", func(_ *google, c *runnerspec.GKECluster) { c.InternalIP = true }, []string{"cluster.internal_ip is true"}, false},
		{"the cluster does not know the service account", func(g *google, _ *runnerspec.GKECluster) { g.User = "" }, []string{account, "docs/reference/executors.md"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGoogle(t)
			of := g.of()
			tc.of(g, &of)
			refuses(t, g.client(t, of), tc.temporary, tc.want)
		})
	}
}
