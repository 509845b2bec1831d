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

// api is the API server behind a cloud's door: who was let in is its user.
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
			p.Out.Header.Del("Authorization") // the administrator's takes its place
			p.Out.Header.Set("Impersonate-User", user)
		}}).ServeHTTP(w, r)
	}
}

// way is a cluster of a cloud, and who the control plane is to it.
type way struct {
	kind, cluster string // of the configuration
	who           clouds.Identity
	door          *cloudtest.Front
}

// role is that of the control plane itself.
const role = "arn:aws:iam::999999999999:role/control-plane"

// self is the control plane to an AWS that is at those hosts.
func self(sts *ststest.Server, hosts cloudtest.Hosts) aws.Config {
	c := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	return aws.Config{Region: region, HTTPClient: &http.Client{Transport: hosts}, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

// ways are the three clouds, each with a cluster of that name, behind whose door
// is the API server.
func ways(t *testing.T, name string, api cloudtest.API) []way {
	t.Helper()
	return []way{amazon(t, name, api), google(t, name, api), azure(t, name, api)}
}

func amazon(t *testing.T, name string, api cloudtest.API) way {
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
	e.Enter(manager, user)
	cfg := self(sts, e.Hosts())
	if _, err := eks.NewFromConfig(cfg).CreateCluster(t.Context(), &eks.CreateClusterInput{Name: &name, RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: []string{"subnet-1"}}}); err != nil {
		t.Fatal(err)
	}
	return way{"aws-eks", "{name: " + name + ", region: " + region + ", auth: {role_arn: '" + manager + "', external_id: acme}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}, e.Front}
}

func google(t *testing.T, name string, api cloudtest.API) way {
	t.Helper()
	sts := ststest.New(time.Now)
	hosts := cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts}
	g := cloudtest.NewGoogle(t, hosts, time.Now, api)
	g.Audience, g.Account, g.Role = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/aws", "999999999999", role
	g.Email, g.User, g.Path = "manager@project.iam.gserviceaccount.com", user, "projects/project/locations/europe-west3/clusters/"+name
	cfg := self(sts, hosts)
	return way{"gcp-gke", "{name: " + name + ", project_id: project, location: europe-west3, auth: {gcp_audience: '" + g.Audience + "', gcp_service_account: " + g.Email + "}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: g.Hosts()}}, g.Front}
}

func azure(t *testing.T, name string, api cloudtest.API) way {
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
	return way{"azure-aks", "{name: " + name + ", resource_group: eu, subscription_id: " + a.Client + ", auth: {tenant_id: " + a.Tenant + ", client_id: " + a.Client + "}}",
		clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: a.Hosts()}}, a.Front}
}

const ofACloud = `
runner_configuration:
  type: %s
%s  job: {namespace: %s, service_account: jobs, image: %s}
state_storage_configuration: {type: http}
`

// The same job runs as a pod of a cloud's cluster that an agent beside the control
// plane has started, with nothing but who it is to the cloud, and as one that an
// agent in the cluster has.
func TestPodsOfACloudsClusterEndTheSame(t *testing.T) {
	k := newPods(t)
	all := ways(t, k.ns, k.api(t))
	for _, tc := range []struct {
		name, image, state, says string
		ways                     []way
	}{
		{"a job that has nothing to complain of", image, "succeeded", "", all},
		// The reason is ErrImagePull, and between two tries ImagePullBackOff.
		{"a job whose image cannot be had", "registry.example/nobody/nothing:1", "failed", "ImagePull", shortrun.OneOf(t, 0, all...)},
	} {
		for _, w := range tc.ways {
			t.Run(w.kind+", "+tc.name, func(t *testing.T) {
				p := newPlaneOf(t, w.who, file("kubernetes", fmt.Sprintf("data: %q, kubeconfig: %q", t.TempDir(), k.kubeconfig)))
				p.make("near", fmt.Sprintf(ofACloud, w.kind, "  cluster: "+w.cluster+"\n", k.ns, tc.image))
				p.make("far", fmt.Sprintf(ofACloud, w.kind, "", k.ns, tc.image))
				p.install("far")
				p.same(tc.state, tc.says)
				if len(w.door.Tokens()) == 0 || len(w.door.Refused()) > 0 {
					t.Errorf("by the door came %d, and were not let in: %q", len(w.door.Tokens()), w.door.Refused())
				}
			})
		}
	}
}

// From the file of a runner a cluster of each cloud is found, and its API server
// hears of a job from the user that the cloud says the agent is. This takes no
// API server: one that forbids all is enough. It is told whom it has forbidden
// it, and nothing that was shown to it is kept.
func TestAJobComesToACloudsDoorAsTheUser(t *testing.T) {
	forbids := func(w http.ResponseWriter, r *http.Request, user string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s may not %s %s"}`, user, r.Method, r.URL.Path)
	}
	for _, w := range ways(t, "forbidding", forbids) {
		t.Run(w.kind, func(t *testing.T) {
			p := newPlaneOf(t, w.who)
			p.make("near", fmt.Sprintf(ofACloud, w.kind, "  cluster: "+w.cluster+"\n", "jobs", image))
			j := p.ends("near")
			if says := user + " may not POST /api/v1/namespaces/jobs/secrets"; j.State != "failed" || !strings.Contains(j.Message, says) {
				t.Errorf("the job is %s, %s: %s", j.State, j.Reason, j.Message)
			}
			tokens := w.door.Tokens()
			if len(tokens) != 1 || len(w.door.Refused()) > 0 {
				t.Fatalf("%d tokens were shown, and refused: %q", len(tokens), w.door.Refused())
			}
			p.nowhere(tokens[0])
		})
	}
}

// A job of a cluster that is shut to the agent fails, and says what is to be done;
// so does the runner, before there is a job.
func TestAClusterThatIsShutIsTold(t *testing.T) {
	sts := ststest.New(time.Now)
	sts.LetAssume(func(url.Values) (time.Duration, string) { return 0, "AccessDenied" })
	cfg := self(sts, cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts})
	who := clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}
	p := newPlaneOf(t, who)
	p.make("near", `
runner_configuration:
  type: aws-eks
  cluster: {name: jobs, region: eu-west-1, auth: {role_arn: 'arn:aws:iam::123456789012:role/manager'}}
  job: {namespace: jobs, service_account: jobs, image: 'registry.example/runner:1'}
state_storage_configuration: {type: http}
`)
	j := p.ends("near")
	const says = "EKS cluster jobs in eu-west-1: the role arn:aws:iam::123456789012:role/manager cannot be assumed: its trust policy must name who the control plane is to AWS"
	if j.State != "failed" || !strings.Contains(j.Message, says) || len(j.Deaths) == 0 {
		t.Errorf("the job is %s, %s: %s", j.State, j.Reason, j.Message)
	}
	for _, d := range j.Deaths {
		if d.Reason != "step-misconfigured" {
			t.Errorf("an attempt ended with %s", d.Reason)
		}
	}
	p.told("near", says)
}
