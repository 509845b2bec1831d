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

// manager is the role that the cluster knows.
const manager = "arn:aws:iam::123456789012:role/manager"

// amazon is AWS with a cluster of EKS.
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
	a.Enter(manager, "the-manager")
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

// of is the configuration of the cluster.
func (a *amazon) of() runnerspec.EKSCluster {
	return runnerspec.EKSCluster{Name: a.name, Region: region, Auth: runnerspec.AWSAuth{RoleARN: manager, ExternalID: "acme"}}
}

func (a *amazon) way(t *testing.T, c runnerspec.EKSCluster) *rest.Config {
	t.Helper()
	way, err := remote.Config(&runnerspec.EKSRunner{Cluster: &c}, remote.Options{Session: "fairlead-run_1", AWS: a.cfg, Now: a.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return way
}

// A cluster of EKS is found by its name, and takes the agent for the role that it
// has assumed. A token is shown as long as it is good, and not for longer. It is
// one for that cluster: another, which is told of it, cannot use it.
func TestAClusterOfEKSKnowsTheRole(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.way(t, a.of()))
	for _, step := range []struct {
		name   string
		pass   time.Duration
		tokens int // so far
	}{
		{"at first", 0, 1},
		{"a moment later nobody is asked again", time.Second, 1},
		{"a token is replaced while it is good", 11 * time.Minute, 2},
		{"one that has grown old while the machine slept is replaced", 16 * time.Minute, 3},
	} {
		a.clock.pass(step.pass)
		said, err := ask(t, c)
		if err != nil || said != "the-manager" {
			t.Fatalf("%s: the cluster says %q, %v; it has refused %q", step.name, said, err, a.Refused())
		}
		if len(a.Tokens()) != step.tokens || a.assumed != 1 || a.Described() != 1 {
			t.Errorf("%s: %d tokens were shown, the role was assumed %d times, and the cluster described %d times", step.name, len(a.Tokens()), a.assumed, a.Described())
		}
	}
	if refused := a.Refused(); len(refused) > 0 {
		t.Errorf("it was refused: %q", refused)
	}
	token := a.Tokens()[2]
	other := cloudtest.NewEKS(t, region, "another", "http://127.0.0.1:1", a.sts, a.clock.now, whoami)
	other.Enter(manager, "the-manager")
	if user, err := other.Whois(token); err == nil {
		t.Errorf("another cluster takes its token for %s", user)
	}
	a.clock.pass(16 * time.Minute)
	if user, err := a.Whois(token); err == nil {
		t.Errorf("a token of 16 minutes ago is taken for %s", user)
	}
}

// A cluster that was made anew under its name has another address and another
// certificate, and is found again.
func TestAClusterThatHasMovedIsFound(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.way(t, a.of()))
	if _, err := ask(t, c); err != nil {
		t.Fatal(err)
	}
	a.Move(t)
	for range 3 {
		if said, err := ask(t, c); err == nil || a.Described() != 1 {
			t.Errorf("where nothing is %q answers, and EKS was asked %d times", said, a.Described())
		}
	}
	a.clock.pass(2 * time.Minute)
	if _, err := ask(t, c); err == nil {
		t.Error("where nothing is something answers")
	}
	if said, err := ask(t, c); err != nil || said != "the-manager" || a.Described() != 2 {
		t.Errorf("the cluster says %q, %v; EKS was asked %d times", said, err, a.Described())
	}
}

// A token that the cluster has stopped to take, as one of two clocks is wrong, is
// replaced once, and the request is made again with all that it says.
func TestATokenThatIsRefusedIsReplaced(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.way(t, a.of()))
	if _, err := ask(t, c); err != nil {
		t.Fatal(err)
	}
	a.Forget(a.Tokens()[0])
	a.clock.pass(time.Minute)
	if said, err := ask(t, c); err != nil || said != "the-manager" || len(a.Tokens()) != 2 || len(a.Refused()) != 1 {
		t.Errorf("the cluster says %q, %v, after %d tokens: %q", said, err, len(a.Tokens()), a.Refused())
	}
}

// What keeps a cluster shut is told with what to do about it, and at once where
// trying again is no use.
func TestWhatKeepsAClusterOfEKSShut(t *testing.T) {
	for _, tc := range []struct {
		name   string
		of     func(*amazon, *runnerspec.EKSCluster)
		says   []string
		passes bool // it may be otherwise in a moment
	}{
		{"the role may not be assumed", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.RoleARN = "arn:aws:iam::210987654321:role/others" },
			[]string{"arn:aws:iam::210987654321:role/others cannot be assumed", "trust policy"}, false},
		{"the external id is another", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.ExternalID = "bcme" }, []string{manager, "external id than bcme"}, false},
		{"there is no external id", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.ExternalID = "" }, []string{manager, "no external id"}, false},
		{"the cluster does not know the role", func(_ *amazon, c *runnerspec.EKSCluster) { c.Auth.RoleARN = "arn:aws:iam::123456789012:role/others" },
			[]string{"access entry", "arn:aws:iam::123456789012:role/others"}, false},
		{"there is no such cluster", func(_ *amazon, c *runnerspec.EKSCluster) { c.Name = "jbos" }, []string{"EKS cluster jbos in eu-west-1", "cluster.name"}, false},
		{"the cluster is in another region", func(_ *amazon, c *runnerspec.EKSCluster) { c.Region = "eu-central-1"; c.Auth.STSRegion = region },
			[]string{"in eu-central-1", "cluster.region"}, false},
		{"there is no such region", func(_ *amazon, c *runnerspec.EKSCluster) { c.Region = "eu-nowhere-1"; c.Auth.STSRegion = region },
			[]string{"cluster.region eu-nowhere-1", "no such host"}, true},
		{"the region is not enabled", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("", "UnrecognizedClientException") }, []string{"cluster.region"}, false},
		{"the role may not ask where the cluster is", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("", "AccessDeniedException") }, []string{"eks:DescribeCluster"}, false},
		{"EKS is asked too often", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("", "ThrottlingException") }, []string{"ThrottlingException"}, true},
		{"the cluster is being made", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("CREATING", "") }, []string{"CREATING", "when it is ACTIVE"}, true},
		{"the cluster could not be made", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("FAILED", "") }, []string{"FAILED", "name another"}, false},
		{"the cluster is going", func(a *amazon, _ *runnerspec.EKSCluster) { a.Say("DELETING", "") }, []string{"DELETING", "name another"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAmazon(t)
			of := a.of()
			tc.of(a, &of)
			shut(t, a.way(t, of), tc.passes, tc.says)
		})
	}
}

// An updating cluster answers, so it is used.
func TestAClusterThatIsUpdatedAnswers(t *testing.T) {
	a := newAmazon(t)
	a.Say("UPDATING", "")
	c := through(t, a.way(t, a.of()))
	if said, err := ask(t, c); err != nil || said != "the-manager" {
		t.Errorf("the cluster says %q, %v", said, err)
	}
}

// The cluster's proxy is on the way to the cluster, not on that to AWS.
func TestACloudsClusterIsReachedByItsProxy(t *testing.T) {
	a := newAmazon(t)
	of := a.of()
	of.ProxyURL = "http://127.0.0.1:1"
	c := through(t, a.way(t, of))
	if _, err := ask(t, c); err == nil || !strings.Contains(err.Error(), "proxyconnect") || a.Described() != 1 {
		t.Errorf("EKS was asked %d times: %v", a.Described(), err)
	}
}

// Steps that begin together ask the cloud once.
func TestACloudIsAskedOnceForAll(t *testing.T) {
	a := newAmazon(t)
	c := through(t, a.way(t, a.of()))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if said, err := ask(t, c); err != nil || said != "the-manager" {
				t.Errorf("the cluster says %q, %v", said, err)
			}
		})
	}
	all.Wait()
	if len(a.Tokens()) != 1 || a.assumed != 1 || a.Described() != 1 {
		t.Errorf("%d tokens were shown, the role was assumed %d times, and the cluster described %d times", len(a.Tokens()), a.assumed, a.Described())
	}
}

// What is asked again and again does not ask the cloud as often.
func TestARefusalIsHeeded(t *testing.T) {
	a := newAmazon(t)
	of := a.of()
	of.Auth.ExternalID = "bcme"
	c := through(t, a.way(t, of))
	for range 50 {
		if _, err := ask(t, c); err == nil {
			t.Fatal("it was let in")
		}
	}
	if a.assumed != 1 {
		t.Errorf("STS was asked %d times in a moment", a.assumed)
	}
	a.clock.pass(3 * time.Second)
	if _, err := ask(t, c); err == nil || a.assumed != 2 {
		t.Errorf("later it was asked %d times: %v", a.assumed, err)
	}
}
