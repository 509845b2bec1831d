package awstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	kubernetesexecutor "github.com/fairlead/fairlead/runner/executor/kubernetes"
	"github.com/fairlead/fairlead/runner/images/imagetest"
	"github.com/fairlead/fairlead/test/alltypes"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/test/proxy"
	"github.com/fairlead/fairlead/tools/kubeserver/kube"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// TestStoryOfAllTypesOnTheStacks runs the story of one install of examples/all-types through the resources of the two templates: each
// job in a task of its own with the role of its operation, states in the customer's bucket, and images in the customer's ECR. A person
// approves each plan. At the end nothing is left.
func TestStoryOfAllTypesOnTheStacks(t *testing.T) {
	skipIfShort(t)
	w := newStacksStory(t, false)
	defer w.end()
	w.checkApproved(w.Run())
}

// TestStoryOfAllTypesOnTheStacksSurvivesKills kills the container of each job's task when the job has done its work and has not
// reported it, as the loss of its host does: once for each operation on each component. The person follows the offered commands. The
// story ends as it does without a kill, and nothing is left.
func TestStoryOfAllTypesOnTheStacksSurvivesKills(t *testing.T) {
	skipIfShort(t)
	w := newStacksStory(t, false)
	defer w.end()
	w.kill()
	t.Logf("the person ran %v", w.Run())
}

// TestStoryWithSandboxOnTheStacks begins with an install that has no cluster. The runner of the customer's stack creates the sandbox
// and deploys a second runner there, of kind aws-eks, with the chart. The pods of that runner run all other jobs. They have no login:
// each proves its service account to STS, takes the role that the chart gives the account, and copies images into the customer's ECR
// with it. The roles are those that the page shows. A person approves each plan, five times for a first deployment. The teardown goes
// the other way, and nothing is left.
func TestStoryWithSandboxOnTheStacks(t *testing.T) {
	skipIfShort(t)
	w := newStacksStory(t, true)
	defer w.end()
	w.checkApproved(w.Run())
}

// TestStoryWithSandboxOnTheStacksSurvivesKills is TestStoryOfAllTypesOnTheStacksSurvivesKills for an install with a sandbox: it kills
// the tasks of the stack's runner and the pods of the runner in the sandbox.
func TestStoryWithSandboxOnTheStacksSurvivesKills(t *testing.T) {
	skipIfShort(t)
	w := newStacksStory(t, true)
	defer w.end()
	w.kill()
	t.Logf("the person ran %v", w.Run())
}

// stacksStory is the story of one install of examples/all-types on the resources of the two templates.
type stacksStory struct {
	*alltypes.Story
	w     *world
	c     *customer
	stop  func() // ends the runner of the stack
	front *proxy.Proxy
	warm  *warmSteps
	node  *kubelettest.Kubelet // of the sandbox; nil: the install has none
}

// The runner in the sandbox: its namespace, its Helm release, and the roles of AWS that its chart gives to the service accounts of jobs.
const (
	inSandbox    = "fairlead"
	innerRunner  = "agent"
	planRole     = "arn:aws:iam::" + accountID + ":role/acme-plans"
	jobRole      = "arn:aws:iam::" + accountID + ":role/acme-jobs"
	jobsAccount  = "system:serviceaccount:" + inSandbox + ":" + innerRunner + "-fairlead-runner-jobs"
	rolesOfJobs  = "../../../docs/vendor/runner-kinds.md"
	rolesHeading = "### AWS roles of jobs\n"
)

// newStacksStory publishes the app, and creates the install and its stack. With a sandbox, only a second runner, which the install
// deploys, is in the cluster. Without one, the tasks of the stack reach the cluster by a kubeconfig.
func newStacksStory(t *testing.T, sandbox bool) *stacksStory {
	needTofu(t)
	server := kube.Server{Private: true} // the story compares all objects of the cluster
	t.Cleanup(server.Stop)
	kubeconfig := server.Kubeconfig(t)
	cluster, err := kube.NewClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	a := deploy(t, releasedTemplate(t, released()))
	st := &stacksStory{warm: &warmSteps{}}
	st.front = proxy.New(st.warm.front(a.front()))
	w := connect(t, a, map[string]http.Handler{planeHost: st.front, "api.ecr." + region + ".amazonaws.com": a.gates["ECR"].handler}).operated()
	st.w = w

	api, err := client.New("https://"+planeHost, w.token, client.Options{HTTP: &http.Client{Transport: hosts.Transport(t, w.authority, w.proxy)}})
	w.ok("make a client", err)
	s := &alltypes.Story{T: t, Name: "acme", CLI: func(args ...string) string { return string(w.cli(args...)) }, API: api, Cluster: cluster,
		Vendor: imagetest.Start(t), Folder: filepath.Join(t.TempDir(), "files"),
		HasImage: func(in, digest string) bool { return w.registry.hasImage("fairlead/"+in+"/web", digest) }}
	st.Story = s
	// What the image of a step has.
	image := []string{"FAIRLEAD_PLUGINS=" + program.Copies(t, "runner/kubernetes", "runner/images")}
	if sandbox {
		image = append(image, "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY")
		st.makeSandbox(kubeconfig, append(image, "FAIRLEAD_TOFU="+os.Getenv("FAIRLEAD_TOFU"), "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY,KUBECONFIG"))
	} else {
		image = append(image, "KUBECONFIG="+kubeconfig, "FAIRLEAD_PASS_ENV=SSL_CERT_FILE,HTTPS_PROXY,KUBECONFIG")
	}
	w.tasks.Environ = append(w.tasks.Environ, image...)
	s.Publish("../../..")
	s.Create("--account", accountID, "--region", region)
	st.c, st.stop = w.installStack(s.Name, image...)
	w.eventually("the stack is online", func() bool { return ask[wire.Stack](w, "install", "stack", s.Name).State == "online" })
	s.SetSecrets()
	return st
}

// makeSandbox starts a node for the runner in the sandbox, whose containers have the variables environ, and a registry in its network.
func (st *stacksStory) makeSandbox(kubeconfig string, environ []string) {
	w := st.w
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.ok("read the kubeconfig", err)
	cfg.QPS, cfg.Burst = 200, 400
	admin, err := kubernetes.NewForConfig(cfg)
	w.ok("make a client of the cluster", err)
	_, err = admin.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inSandbox}}, metav1.CreateOptions{})
	w.ok("make a namespace", err)
	st.node = kubelettest.Start(w.t, admin, inSandbox, kubelettest.Options{Image: runnerOf, Program: program.Build(w.t, "runner", "-tags=clusters"), Cluster: cfg, Region: region,
		Environ: slices.Concat([]string{"AWS_EC2_METADATA_DISABLED=true"}, w.environ, environ)})
	port, err := testserver.FreePort()
	w.ok("find a port", err)
	st.makeRoles(admin)
	st.Sandbox = &alltypes.Sandbox{Kind: "aws-eks", Runner: "aws-eks", Namespace: inSandbox, Image: runnerOf, Port: port, PlanRole: planRole, JobRole: jobRole,
		Registry: fmt.Sprintf("{type: ecr, account: %q, region: %s, prefix: fairlead}", accountID, region)}
}

// makeRoles makes the cluster's issuer an identity provider of the account, and the roles of jobs, as the page shows them.
func (st *stacksStory) makeRoles(admin kubernetes.Interface) {
	w := st.w
	get := func(path string) []byte {
		text, err := admin.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(w.t.Context())
		w.ok("get "+path, err)
		return text
	}
	var about struct{ Issuer string }
	w.ok("read the cluster's issuer", json.Unmarshal(get("/.well-known/openid-configuration"), &about))
	provider := iamtest.Provider{Issuer: about.Issuer, Keys: get("/openid/v1/jwks")}
	w.guard.AddProvider(provider)

	page, err := os.ReadFile(rolesOfJobs)
	w.ok("read the page", err)
	_, section, _ := strings.Cut(string(page), rolesHeading)
	section = strings.NewReplacer("oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE", strings.TrimPrefix(about.Issuer, "https://"),
		"system:serviceaccount:fairlead-jobs:acme-fairlead-runner-jobs", jobsAccount).Replace(section)
	var shown []string // the trust policy, the permissions of plans, and those of other jobs
	for range 3 {
		_, after, _ := strings.Cut(section, "```json\n")
		text, rest, _ := strings.Cut(after, "```")
		shown, section = append(shown, text), rest
	}
	policy := func(text string) (p iamtest.Policy) {
		w.ok("read a policy of the page", json.Unmarshal([]byte(text), &p))
		return p
	}
	ofPlans := subjects.ReplaceAllString(shown[0], `${1}"`+jobsAccount+`-read-only"`)
	w.guard.AddRole(iamtest.Role{ARN: planRole, Trust: policy(ofPlans), Policies: []iamtest.Policy{policy(shown[1])}})
	w.guard.AddRole(iamtest.Role{ARN: jobRole, Trust: policy(shown[0]), Policies: []iamtest.Policy{policy(shown[1]), policy(shown[2])}})
}

// subjects finds the service accounts in a trust policy.
var subjects = regexp.MustCompile(`(:sub": )\[[^\]]*\]`)

// checkRoles fails the test if a job in the sandbox took the role of another operation, or if no job used a role.
func (st *stacksStory) checkRoles() {
	w := st.w
	taken := map[string]map[string]bool{planRole: {}, jobRole: {}} // accounts by role
	for _, a := range w.guard.Assumed() {
		if of := taken[a.Role]; of != nil {
			of[strings.TrimPrefix(a.Subject, jobsAccount)] = true
		}
	}
	want := map[string]map[string]bool{planRole: {"-read-only": true}, jobRole: {"-deploy": true, "-deprovision": true}}
	if !reflect.DeepEqual(taken, want) {
		w.t.Errorf("the roles in the sandbox were taken by the accounts %v, want %v", taken, want)
	}
	for _, used := range []struct{ role, action string }{{planRole, "ecr:BatchGetImage"}, {jobRole, "ecr:CreateRepository"}, {jobRole, "ecr:PutImage"}, {jobRole, "ecr:BatchDeleteImage"}} {
		if w.guard.Uses(used.role, used.action) == 0 {
			w.t.Errorf("no job in the sandbox used %s with the role %s", used.action, used.role)
		}
	}
}

// kill kills the container of each job when the job has done its work and has not reported it.
func (st *stacksStory) kill() {
	k := &alltypes.Killer{At: alltypes.AtTheEnd, Drop: true}
	k.Kill = func(j wire.Job) {
		step := fmt.Sprintf("%s-%d", j.ID, j.Epoch)
		if id, ahead := st.warm.of(step); ahead {
			step = id
		}
		if st.node == nil || !st.node.Kill(kubernetesexecutor.LabelAttempt, step) {
			st.w.tasks.Kill(step)
		}
	}
	k.Join(st.Story, st.front)
}

// checkApproved fails the test if the person ran other commands than the approvals of each phase.
func (st *stacksStory) checkApproved(did map[string][]string) {
	for phase, want := range map[string]int{"create": len(st.Approvals()), "change": len(st.Approvals()), "run": 0, "teardown": len(st.Approvals())} {
		if got := did[phase]; len(got) != want || slices.ContainsFunc(got, func(name string) bool { return name != alltypes.Approve }) {
			st.T.Errorf("in the phase %s the person ran %q, want %d approvals", phase, got, want)
		}
	}
}

// end checks what the story left in the customer's account and at the control plane, and ends the runner and the functions.
func (st *stacksStory) end() {
	w, c := st.w, st.c
	defer w.close()
	defer st.stop()
	if w.t.Failed() {
		return
	}
	if st.Sandbox != nil {
		st.checkRoles()
	}
	for _, role := range []string{"ReadOnlyRole", "ProvisionRole", "DeprovisionRole"} {
		if len(w.sessionsOf(c.attribute(role, "Arn"))) == 0 {
			w.t.Errorf("no job took the %s", role)
		}
	}
	objects := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	for _, bucket := range []string{c.ref("StateBucket"), w.ref("Blobs")} {
		out, err := objects.ListObjectsV2(w.t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
		w.ok("list the bucket", err)
		for _, o := range out.Contents {
			if !strings.Contains(*o.Key, st.ID) || strings.HasPrefix(*o.Key, "plans/") { // the bucket removes saved plans after 30 days
				continue
			}
			// A tool that destroyed everything leaves a state without resources in a bucket.
			got, err := objects.GetObject(w.t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: o.Key})
			w.ok("get "+*o.Key, err)
			var state struct {
				Resources []any
				Outputs   map[string]any
			}
			w.ok("read "+*o.Key, json.NewDecoder(got.Body).Decode(&state))
			if bucket != c.ref("StateBucket") || len(state.Resources)+len(state.Outputs) > 0 {
				w.t.Errorf("the bucket %s still has %s with %d resources and %d outputs", bucket, *o.Key, len(state.Resources), len(state.Outputs))
			}
		}
	}
}
