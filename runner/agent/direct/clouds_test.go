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
	"github.com/fairlead/fairlead/runner/internal/executor/cloudtest"
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

// amazon is AWS, with the API server behind the door of a cluster of EKS.
func (k *pods) amazon(t *testing.T) (clouds.Identity, *cloudtest.EKS) {
	t.Helper()
	const role = "arn:aws:iam::123456789012:role/manager"
	sts := ststest.New(time.Now)
	sts.LetAssume(func(form url.Values) (time.Duration, string) {
		if form.Get("RoleArn") != role || form.Get("ExternalId") != "acme" {
			return 0, "AccessDenied"
		}
		return time.Hour, ""
	})
	e := cloudtest.NewEKS(t, region, k.ns, others.Endpoint(t), sts, time.Now, k.api(t))
	e.Enter(role, user)
	self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	cfg := aws.Config{Region: region, HTTPClient: &http.Client{Transport: e.Hosts()},
		Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
	if _, err := eks.NewFromConfig(cfg).CreateCluster(t.Context(), &eks.CreateClusterInput{Name: &k.ns, RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: []string{"subnet-1"}}}); err != nil {
		t.Fatal(err)
	}
	return clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}, e
}

// google is Google Cloud, with the API server behind the door of a cluster of
// GKE, and AWS, where the control plane is somebody.
func (k *pods) google(t *testing.T) (clouds.Identity, *cloudtest.Google) {
	t.Helper()
	sts := ststest.New(time.Now)
	g := cloudtest.NewGoogle(t, cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts}, time.Now, k.api(t))
	g.Audience, g.Account, g.Role = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/aws", "999999999999", "arn:aws:iam::999999999999:role/control-plane"
	g.Email, g.User, g.Path = "manager@project.iam.gserviceaccount.com", user, "projects/project/locations/europe-west3/clusters/"+k.ns
	self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	cfg := aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
	return clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: g.Hosts()}}, g
}

// azure is Azure, with the API server behind the door of a cluster of AKS, and
// AWS, where the control plane is somebody.
func (k *pods) azure(t *testing.T) (clouds.Identity, *cloudtest.Azure) {
	t.Helper()
	const issuer = "0123.tokens.sts.global.api.aws"
	sts, keys := ststest.New(time.Now), oidctest.Unserved("https://"+issuer, time.Now)
	keys.AddKey("RS256")
	a := cloudtest.NewAzure(t, cloudtest.Hosts{issuer: keys}, time.Now, k.api(t))
	a.Tenant, a.Client = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
	a.Issuer, a.Subject, a.User = "https://"+issuer, "arn:aws:iam::999999999999:role/control-plane", user
	a.Path = "subscriptions/" + a.Client + "/resourceGroups/eu/providers/Microsoft.ContainerService/managedClusters/" + k.ns
	self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	hosts := cloudtest.Hosts{"sts." + region + ".amazonaws.com": &cloudtest.WebIdentity{STS: sts, Sign: keys.Token, ARN: func(key string) (string, bool) {
		who, ok := sts.Principal(key)
		return who.ARN, ok
	}}}
	cfg := aws.Config{Region: region, HTTPClient: &http.Client{Transport: hosts}, Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
	return clouds.Identity{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }, HTTP: &http.Client{Transport: a.Hosts()}}, a
}

// The same job runs as a pod of a cloud's cluster that an agent beside the control
// plane has started, with nothing but who it is to the cloud, and as one that an
// agent in the cluster has.
func TestPodsOfACloudsClusterEndTheSame(t *testing.T) {
	k := newPods(t)
	eksIdentity, eksDoor := k.amazon(t)
	gkeIdentity, gkeDoor := k.google(t)
	aksIdentity, aksDoor := k.azure(t)
	for _, cloud := range []struct {
		kind, cluster string
		who           clouds.Identity
		door          *cloudtest.Front
	}{
		{"aws-eks", "{name: " + k.ns + ", region: " + region + ", auth: {role_arn: 'arn:aws:iam::123456789012:role/manager', external_id: acme}}", eksIdentity, eksDoor.Front},
		{"gcp-gke", "{name: " + k.ns + ", project_id: project, location: europe-west3, auth: {gcp_audience: '" + gkeDoor.Audience + "', gcp_service_account: " + gkeDoor.Email + "}}", gkeIdentity, gkeDoor.Front},
		{"azure-aks", "{name: " + k.ns + ", resource_group: eu, subscription_id: " + aksDoor.Client + ", auth: {tenant_id: " + aksDoor.Tenant + ", client_id: " + aksDoor.Client + "}}", aksIdentity, aksDoor.Front},
	} {
		for _, tc := range []struct{ name, image, state, says string }{
			{"a job that has nothing to complain of", image, "succeeded", ""},
			{"a job whose image cannot be had", "registry.example/nobody/nothing:1", "failed", "ErrImagePull"},
		} {
			t.Run(cloud.kind+", "+tc.name, func(t *testing.T) {
				p := newPlaneOf(t, cloud.who, "FAIRLEAD_KUBERNETES_DATA="+t.TempDir())
				const runner = `
runner_configuration:
  type: %s
%s  job: {namespace: %s, service_account: jobs, image: %s}
state_storage_configuration: {type: http}
`
				p.make("near", fmt.Sprintf(runner, cloud.kind, "  cluster: "+cloud.cluster+"\n", k.ns, tc.image))
				p.make("far", fmt.Sprintf(runner, cloud.kind, "", k.ns, tc.image))
				p.install("far", "FAIRLEAD_KUBECONFIG="+k.kubeconfig)
				p.same(tc.state, tc.says)
				if len(cloud.door.Tokens()) == 0 || len(cloud.door.Refused()) > 0 {
					t.Errorf("by the door came %d, and were not let in: %q", len(cloud.door.Tokens()), cloud.door.Refused())
				}
			})
		}
	}
}

// A job of a cluster that is shut to the agent fails, and says what is to be done;
// so does the runner, before there is a job.
func TestAClusterThatIsShutIsTold(t *testing.T) {
	sts := ststest.New(time.Now)
	sts.LetAssume(func(url.Values) (time.Duration, string) { return 0, "AccessDenied" })
	self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	cfg := aws.Config{Region: region, HTTPClient: &http.Client{Transport: cloudtest.Hosts{"sts." + region + ".amazonaws.com": sts}},
		Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
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
