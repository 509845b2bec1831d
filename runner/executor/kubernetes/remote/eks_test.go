package remote_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
	"github.com/fairlead/fairlead/runner/executor/kubernetes/remote"
)

// manager is the role that has an access entry of the cluster.
const manager = "arn:aws:iam::123456789012:role/manager"

// amazon is AWS with an EKS cluster.
type amazon struct {
	*cloudtest.EKS
	clock   *clock
	sts     *ststest.Server
	name    string
	assumed int
	cfg     aws.Config // of the control plane
}

func newAmazon(t *testing.T) *amazon {
	endpoint := aMoto.Endpoint(t)
	a := &amazon{clock: &clock{}, name: strings.NewReplacer("/", "-", "'", "").Replace(t.Name())}
	a.sts = ststest.New(a.clock.now)
	var mu sync.Mutex
	a.sts.LetAssume(func(form url.Values) (time.Duration, string) {
		mu.Lock()
		defer mu.Unlock()
		a.assumed++
		if form.Get("ExternalId") != "acme" || !strings.HasPrefix(form.Get("RoleArn"), "arn:aws:iam::123456789012:role/") {
			return 0, "AccessDenied"
		}
		return time.Hour, ""
	})
	a.EKS = cloudtest.NewEKS(t, region, a.name, endpoint, a.sts, a.clock.now, whoami)
	a.AddAccessEntry(manager, "the-manager")
	self := a.sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
	a.cfg = aws.Config{Region: "us-east-1", HTTPClient: &http.Client{Transport: a.Hosts("eu-central-1")}, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
	in := a.cfg.Copy()
	in.Region = region
	if _, err := eks.NewFromConfig(in).CreateCluster(t.Context(), &eks.CreateClusterInput{Name: &a.name, RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"),
		ResourcesVpcConfig: &types.VpcConfigRequest{SubnetIds: []string{"subnet-1"}}}); err != nil {
		t.Fatal(err)
	}
	return a
}

// of returns the configuration of the cluster.
func (a *amazon) of() runnerspec.EKSCluster {
	return runnerspec.EKSCluster{Name: a.name, Region: region, Auth: runnerspec.AWSAuth{RoleARN: manager, ExternalID: "acme"}}
}

func (a *amazon) client(t *testing.T, c runnerspec.EKSCluster) *rest.Config {
	t.Helper()
	cfg, err := remote.Config(&runnerspec.EKSRunner{Cluster: &c}, remote.Options{Session: "fairlead-run_1", AWS: a.cfg, Now: a.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The runner finds an EKS cluster by its name. The cluster maps the agent to the role that the agent assumed. A token is used
// only while it is valid, and only this cluster accepts it: another cluster refuses the token.
func TestEKSClusterAcceptsTheRole(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.client(t, a.of()))
	for _, step := range []struct {
		name   string
		pass   time.Duration
		tokens int // so far
	}{
		{"at first", 0, 1},
		{"a moment later nothing is requested again", time.Second, 1},
		{"a token is replaced before it expires", 11 * time.Minute, 2},
		{"a token that expired during a sleep is replaced", 16 * time.Minute, 3},
	} {
		a.clock.pass(step.pass)
		user, err := ask(t, c)
		if err != nil || user != "the-manager" {
			t.Fatalf("%s: the cluster answered %q, %v; it refused %q", step.name, user, err, a.Refused())
		}
		if len(a.Tokens()) != step.tokens || a.assumed != 1 || a.Described() != 1 {
			t.Errorf("%s: %d tokens used, the role assumed %d times, the cluster described %d times", step.name, len(a.Tokens()), a.assumed, a.Described())
		}
	}
	if refused := a.Refused(); len(refused) > 0 {
		t.Errorf("refused requests: %q", refused)
	}
	token := a.Tokens()[2]
	other := cloudtest.NewEKS(t, region, "another", "http://127.0.0.1:1", a.sts, a.clock.now, whoami)
	other.AddAccessEntry(manager, "the-manager")
	if user, err := other.Authenticate(token); err == nil {
		t.Errorf("another cluster maps its token to %s", user)
	}
	a.clock.pass(16 * time.Minute)
	if user, err := a.Authenticate(token); err == nil {
		t.Errorf("a token from 16 minutes ago is mapped to %s", user)
	}
}

// A cluster that was created again with the same name has another address and another certificate. The runner finds it
// again.
func TestMovedClusterIsFound(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.client(t, a.of()))
	if _, err := ask(t, c); err != nil {
		t.Fatal(err)
	}
	a.Recreate(t)
	for range 3 {
		if user, err := ask(t, c); err == nil || a.Described() != 1 {
			t.Errorf("the old address answered %q, and EKS was asked %d times", user, a.Described())
		}
	}
	a.clock.pass(2 * time.Minute)
	if _, err := ask(t, c); err == nil {
		t.Error("the old address answers")
	}
	if user, err := ask(t, c); err != nil || user != "the-manager" || a.Described() != 2 {
		t.Errorf("the cluster answered %q, %v; EKS was asked %d times", user, err, a.Described())
	}
}

// If the cluster refuses a token early, because a clock is wrong, the token is replaced once and the whole request is sent
// again.
func TestRefusedTokenIsReplaced(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.client(t, a.of()))
	if _, err := ask(t, c); err != nil {
		t.Fatal(err)
	}
	a.Revoke(a.Tokens()[0])
	a.clock.pass(time.Minute)
	if user, err := ask(t, c); err != nil || user != "the-manager" || len(a.Tokens()) != 2 || len(a.Refused()) != 1 {
		t.Errorf("the cluster answered %q, %v, after %d tokens: %q", user, err, len(a.Tokens()), a.Refused())
	}
}

// Every failure to access a cluster has a hint. Failures that a retry cannot fix are reported at once.
func TestEveryEKSFailureHasAHint(t *testing.T) {
	for _, tc := range []struct {
		name      string
		of        func(*amazon, *runnerspec.EKSCluster)
		want      []string
		temporary bool // a retry may succeed
	}{
		{"the role may not be assumed", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.RoleARN = "arn:aws:iam::210987654321:role/others" },
			[]string{"arn:aws:iam::210987654321:role/others cannot be assumed", "trust policy"}, false},
		{"another external id", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.ExternalID = "bcme" }, []string{manager + " cannot be assumed with the external id bcme", "sts:ExternalId"}, false},
		{"no external id", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.ExternalID = "" }, []string{manager + " cannot be assumed without an external id", "sts:ExternalId"}, false},
		{"the cluster does not know the role", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.RoleARN = "arn:aws:iam::123456789012:role/others" },
			[]string{"access entry", "arn:aws:iam::123456789012:role/others"}, false},
		{"no such cluster", func(_ *amazon, c *runnerspec.EKSCluster) { c.Name = "jbos" }, []string{"EKS cluster jbos in eu-west-1", "cluster.name"}, false},
		{"the cluster is in another region", func(_ *amazon, c *runnerspec.EKSCluster) { c.Region = "eu-central-1"; c.Auth.STSRegion = region },
			[]string{"in eu-central-1", "cluster.region"}, false},
		{"no such region", func(_ *amazon, c *runnerspec.EKSCluster) { c.Region = "eu-nowhere-1"; c.Auth.STSRegion = region },
			[]string{"cluster.region eu-nowhere-1", "no such host"}, true},
		{"the region is not enabled", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("", "UnrecognizedClientException") }, []string{"cluster.region"}, false},
		{"the role may not get the cluster's address", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("", "AccessDeniedException") }, []string{"eks:DescribeCluster"}, false},
		{"EKS throttles", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("", "ThrottlingException") }, []string{"ThrottlingException"}, true},
		{"the cluster is being created", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("CREATING", "") }, []string{"CREATING", "when it is ACTIVE"}, true},
		{"the cluster could not be created", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("FAILED", "") }, []string{"FAILED", "configure another"}, false},
		{"the cluster is being deleted", func(a *amazon, _ *runnerspec.EKSCluster) { a.Set("DELETING", "") }, []string{"DELETING", "configure another"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAmazon(t)
			of := a.of()
			tc.of(a, &of)
			refuses(t, a.client(t, of), tc.temporary, tc.want)
		})
	}
}

// An updating cluster answers, so the runner uses it.
func TestUpdatingClusterIsUsed(t *testing.T) {
	a := newAmazon(t)
	a.Set("UPDATING", "")
	c := through(t, a.client(t, a.of()))
	if user, err := ask(t, c); err != nil || user != "the-manager" {
		t.Errorf("the cluster answered %q, %v", user, err)
	}
}

// The cluster's proxy is used for requests to the cluster, not to AWS.
func TestClusterProxyIsNotUsedForAWS(t *testing.T) {
	a := newAmazon(t)
	of := a.of()
	of.ProxyURL = "http://127.0.0.1:1"
	c := through(t, a.client(t, of))
	if _, err := ask(t, c); err == nil || !strings.Contains(err.Error(), "proxyconnect") || a.Described() != 1 {
		t.Errorf("EKS was asked %d times: %v", a.Described(), err)
	}
}

// Steps that start at once ask the cloud once.
func TestConcurrentStepsAskTheCloudOnce(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.client(t, a.of()))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if user, err := ask(t, c); err != nil || user != "the-manager" {
				t.Errorf("the cluster answered %q, %v", user, err)
			}
		})
	}
	all.Wait()
	if len(a.Tokens()) != 1 || a.assumed != 1 || a.Described() != 1 {
		t.Errorf("%d tokens used, the role assumed %d times, the cluster described %d times", len(a.Tokens()), a.assumed, a.Described())
	}
}

// Repeated requests do not ask the cloud again for two seconds after the cloud's refusal.
func TestRefusalIsCached(t *testing.T) {
	a := newAmazon(t)
	of := a.of()
	of.Auth.ExternalID = "bcme"
	c := through(t, a.client(t, of))
	for range 50 {
		if _, err := ask(t, c); err == nil {
			t.Fatal("the request was accepted")
		}
	}
	if a.assumed != 1 {
		t.Errorf("STS was asked %d times in a moment", a.assumed)
	}
	a.clock.pass(3 * time.Second)
	if _, err := ask(t, c); err == nil || a.assumed != 2 {
		t.Errorf("later STS was asked %d times: %v", a.assumed, err)
	}
}
