package direct_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/runner/agent/direct/clouds"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// api returns the real API server as the backend of a simulated cloud cluster. It impersonates the user that the cloud
// authenticated.
func (k *pods) api(t *testing.T) cloudtest.API {
	t.Helper()
	at, err := url.Parse(k.cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	via, err := rest.TransportFor(k.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, r *http.Request, user string) {
		(&httputil.ReverseProxy{Transport: via, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(at)
			p.Out.Header.Del("Authorization") // the transport adds the administrator's
			p.Out.Header.Set("Impersonate-User", user)
		}}).ServeHTTP(w, r)
	}
}

// cloudCluster is a cluster of a simulated cloud, and the control plane's identity in that cloud.
type cloudCluster struct {
	kind, cluster string // the runner kind and the cluster block of the configuration
	identity      clouds.Identity
	front         *cloudtest.Front // authenticates the requests to the cluster
}

// role is the AWS role of the control plane itself.
const role = "arn:aws:iam::999999999999:role/control-plane"

// self returns the control plane's AWS configuration for a simulated AWS at the hosts.
func self(sts *ststest.Server, hosts cloudtest.Hosts) aws.Config {
	c := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	return aws.Config{Region: region, HTTPClient: &http.Client{Transport: hosts}, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

// cloudClusters returns a cluster of that name in each of the three clouds. api answers the authenticated requests.
func cloudClusters(t *testing.T, name string, api cloudtest.API) []cloudCluster {
	t.Helper()
	return []cloudCluster{amazon(t, name, api), google(t, name, api), azure(t, name, api)}
}

func amazon(t *testing.T, name string, api cloudtest.API) cloudCluster {
	t.Helper()
	const manager = "arn:aws:iam::123456789012:role/manager"
	sts := ststest.New(time.Now)
	sts.LetAssume(func(form url.Values) (time.Duration, string) {
		if form.Get("RoleArn") != manager || form.Get("ExternalId") != "acme" {
			return 0, "AccessDenied"
		}
		return time.Hour, ""
	})
	e := cloudtest.NewEKS(t, region, name, others.Endpoint(t), sts, time.Now, api)
	e.AddAccessEntry(manager, user)
	cfg := self(sts, e.Hosts())
	if _, err := eks.NewFromConfig(cfg).CreateCluster(t.Context(), &eks.CreateClusterInput{Name: &name, RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: []string{"subnet-1"}}}); err != nil {
		t.Fatal(err)
	}
	return cloudCluster{"aws-eks", "{name: " + name + ", region: " + region + ", auth: {role_arn: '" + manager + "', external_id: acme}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}, e.Front}
}

func google(t *testing.T, name string, api cloudtest.API) cloudCluster {
	t.Helper()
	sts := ststest.New(time.Now)
	hosts := cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts}
	g := cloudtest.NewGoogle(t, hosts, time.Now, api)
	g.Audience, g.Account, g.Role = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/aws", "999999999999", role
	g.Email, g.User, g.Path = "manager@project.iam.gserviceaccount.com", user, "projects/project/locations/europe-west3/clusters/"+name
	cfg := self(sts, hosts)
	return cloudCluster{"gcp-gke", "{name: " + name + ", project_id: project, location: europe-west3, auth: {gcp_audience: '" + g.Audience + "', gcp_service_account: " + g.Email + "}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: g.Hosts()}}, g.Front}
}

func azure(t *testing.T, name string, api cloudtest.API) cloudCluster {
	t.Helper()
	const issuer = "0123.tokens.sts.global.api.aws"
	sts, keys := ststest.New(time.Now), oidctest.Unserved("https://"+issuer, time.Now)
	keys.AddKey("RS256")
	a := cloudtest.NewAzure(t, cloudtest.Hosts{issuer: keys}, time.Now, api)
	a.Tenant, a.Client = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
	a.Issuer, a.Subject, a.User = "https://"+issuer, role, user
	a.Path = "subscriptions/" + a.Client + "/resourceGroups/eu/providers/Microsoft.ContainerService/managedClusters/" + name
	cfg := self(sts, cloudtest.Hosts{"sts." + region + ".amazonaws.com": &cloudtest.WebIdentity{STS: sts, Sign: keys.Token, ARN: func(key string) (string, bool) {
		who, ok := sts.Principal(key)
		return who.ARN, ok
	}}})
	return cloudCluster{"azure-aks", "{name: " + name + ", resource_group: eu, subscription_id: " + a.Client + ", auth: {tenant_id: " + a.Tenant + ", client_id: " + a.Client + "}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: a.Hosts()}}, a.Front}
}

const cloudRunner = `
runner_configuration:
  type: %s
%s  job: {namespace: %s, service_account: jobs, image: %s}
state_storage_configuration: {type: http}
`

// An agent next to the control plane starts a job's pod in a cloud's cluster, with its cloud identity alone. An agent in
// the cluster starts the same job. Both jobs end the same.
func TestPodsOfACloudsClusterEndTheSame(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	k := newPods(t)
	all := cloudClusters(t, k.ns, k.api(t))
	for _, tc := range []struct {
		name, image, state, message string
		clusters                    []cloudCluster
	}{
		{"a job that succeeds", image, "succeeded", "", all},
		// The reason is ErrImagePull, and between two pulls ImagePullBackOff.
		{"a job whose image does not exist", "registry.example/none/nothing:1", "failed", "ImagePull", shortrun.OneOf(t, 0, all...)},
	} {
		for _, w := range tc.clusters {
			t.Run(w.kind+", "+tc.name, func(t *testing.T) {
				p := newPlaneOf(t, w.identity, file("kubernetes", fmt.Sprintf("data: %q, kubeconfig: %q", t.TempDir(), k.kubeconfig)))
				p.make("near", fmt.Sprintf(cloudRunner, w.kind, "  cluster: "+w.cluster+"\n", k.ns, tc.image))
				p.make("far", fmt.Sprintf(cloudRunner, w.kind, "", k.ns, tc.image))
				p.install("far")
				p.same(tc.state, tc.message)
				if len(w.front.Tokens()) == 0 || len(w.front.Refused()) > 0 {
					t.Errorf("the cluster accepted %d tokens, want at least 1; it refused %q, want none", len(w.front.Tokens()), w.front.Refused())
				}
			})
		}
	}
}

// An agent next to the control plane finds the cluster of a runner file in each cloud. The cluster's API server sees the
// user that the cloud authenticated. The API server of this test forbids every request. The job's message names the
// forbidden user, and no disk holds the token.
func TestAJobReachesACloudsClusterAsItsUser(t *testing.T) {
	forbids := func(w http.ResponseWriter, r *http.Request, user string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s may not %s %s"}`, user, r.Method, r.URL.Path)
	}
	for _, w := range cloudClusters(t, "forbidding", forbids) {
		t.Run(w.kind, func(t *testing.T) {
			p := newPlaneOf(t, w.identity)
			p.make("near", fmt.Sprintf(cloudRunner, w.kind, "  cluster: "+w.cluster+"\n", "jobs", image))
			j := p.ends("near")
			if want := user + " may not POST /api/v1/namespaces/jobs/secrets"; j.State != "failed" || !strings.Contains(j.Message, want) {
				t.Errorf("the job is %s, %s: %q, want failed with %q", j.State, j.Reason, j.Message, want)
			}
			tokens := w.front.Tokens()
			if len(tokens) != 1 || len(w.front.Refused()) > 0 {
				t.Fatalf("the cluster got %d tokens, want 1; it refused %q, want none", len(tokens), w.front.Refused())
			}
			p.isOnNoDisk(tokens[0])
		})
	}
}

// If the agent has no access to a cluster, its jobs fail with a message that names the fix. The runner shows the same
// message before it has a job.
func TestAMissingClusterPermissionIsReported(t *testing.T) {
	sts := ststest.New(time.Now)
	sts.LetAssume(func(url.Values) (time.Duration, string) { return 0, "AccessDenied" })
	cfg := self(sts, cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts})
	identity := clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}
	p := newPlaneOf(t, identity)
	p.make("near", `
runner_configuration:
  type: aws-eks
  cluster: {name: jobs, region: eu-west-1, auth: {role_arn: 'arn:aws:iam::123456789012:role/manager'}}
  job: {namespace: jobs, service_account: jobs, image: 'registry.example/runner:1'}
state_storage_configuration: {type: http}
`)
	j := p.ends("near")
	const want = "EKS cluster jobs in eu-west-1: the role arn:aws:iam::123456789012:role/manager cannot be assumed without an external id: its trust policy must name the control plane's AWS identity"
	if j.State != "failed" || !strings.Contains(j.Message, want) || len(j.Deaths) == 0 {
		t.Errorf("the job is %s, %s, with %d deaths: %q, want failed with %q", j.State, j.Reason, len(j.Deaths), j.Message, want)
	}
	for _, d := range j.Deaths {
		if d.Reason != "step-misconfigured" {
			t.Errorf("an attempt ended with reason %s, want step-misconfigured", d.Reason)
		}
	}
	p.isUnhealthy("near", want)
}
