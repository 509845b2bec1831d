package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/moto"
)

var others moto.Server

// awsTool is a program on the AWS SDK that a job runs. It prints its identity and its credentials, which the log must mask.
func awsTool() int {
	ctx := context.Background()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		fmt.Println("aws-tool:", err)
		return 1
	}
	c, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		fmt.Println("aws-tool:", err)
		return 1
	}
	out, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		fmt.Println("aws-tool:", err)
		return 1
	}
	fmt.Printf("aws-tool is %s in %s with secret=%s and session=%s\n", *out.Arn, cfg.Region, c.SecretAccessKey, c.SessionToken)
	return 0
}

// inStack returns the environment of a runner in a customer's stack. It contains the runner's own credentials.
func inStack(t testing.TB, endpoint string) []string {
	t.Helper()
	return append(stackVariables(t, "x", ""), "AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=AKIATHERUNNERSOWN", "AWS_SECRET_ACCESS_KEY=the-runners-own-secret",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_ENDPOINT_URL_STS="+endpoint)
}

// stackRoles begins the ARNs of the roles of stackVariables.
const stackRoles = "arn:aws:iam::" + plane.Account + ":role/fairlead/ins_1/"

// stackVariables returns the variables that the template of a customer's stack sets. step is the name of the roles of steps that
// have a task of their own, without the operation; "": steps are processes.
func stackVariables(t testing.TB, trusted, step string) (env []string) {
	t.Helper()
	const roles = stackRoles
	stack := config.RunnerStack{Install: "ins_1", ExternalID: plane.ExternalID, TrustedKeys: trusted, StackID: "arn:aws:cloudformation:eu-central-1:" + plane.Account + ":stack/fairlead/1", StackVersion: "1",
		StateBucket: "b", StateKey: "k", Images: "i", Artifacts: "a", Boundary: "p",
		RoleProvision: roles + "provision", RoleDeploy: roles + "deploy", RoleDeprovision: roles + "deprovision", RoleReadOnly: roles + "read-only"}
	if step != "" {
		stack.StepRoleProvision, stack.StepRoleDeploy, stack.StepRoleDeprovision, stack.StepRoleReadOnly = roles+step+"provision", roles+step+"deploy", roles+step+"deprovision", roles+step+"read-only"
	}
	values, err := config.Environ(&stack)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env
}

// In a customer's stack, each operation uses its own role, and its tool finds the credentials itself. The runner's own
// credentials do not reach the tool. The log masks the credentials that the tool prints.
func TestOperationUsesItsRole(t *testing.T) {
	t.Parallel()
	endpoint := others.Endpoint(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := plane.New(t, plane.Options{Stack: true})
	startAgent(t, s, "", append(inStack(t, endpoint), "FAIRLEAD_TOFU="+tool(t))...)
	of := func(sp *events.JobSpec) {
		sp.Env = map[string]string{"AWS_ENDPOINT_URL_STS": endpoint, "AWS_ACCESS_KEY_ID": "AKIAOFTHEVENDOR", "TF_AWS_DEFAULT_TAGS_fairlead_install": "ins_of_another", "GOCOVERDIR": t.TempDir()}
	}
	job := succeeded(t, s.UntilFinished(applying(t, s, module(self+" aws-tool; env; cat $AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE; echo; echo working"), of)))
	log := string(job.Log)
	for _, want := range []string{"assumed-role/", "the role of this job stays whole: terraform_data.it runs a program", "provision/" + job.ID, " in eu-central-1 with secret=(sensitive) and session=(sensitive)", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=",
		"TF_AWS_DEFAULT_TAGS_fairlead_install=ins_1"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	for _, banned := range []string{"AKIATHERUNNERSOWN", "the-runners-own-secret", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN="} {
		if strings.Contains(log, banned) {
			t.Errorf("the tool got %s", banned)
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}

// An operation does not start without its role.
func TestOperationWithoutItsRoleFails(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{Stack: true})
	startAgent(t, s, "", append(inStack(t, "http://127.0.0.1:1"), "FAIRLEAD_TOFU="+tool(t), "AWS_MAX_ATTEMPTS=1")...)
	f := s.UntilFinished(s.Queue(planSpec("local", s.Push(map[string]string{"main.tf": ""})))).Finish
	if f.Outcome != "failed" || f.Reason != "role-refused" || f.Mutated || !strings.Contains(f.Message, "read-only") {
		t.Errorf("finished as %+v", *f)
	}
}

// recordingSTS forwards requests to the STS of another server, and records the session policies of the roles that are assumed.
type recordingSTS struct {
	to *httputil.ReverseProxy

	mu       sync.Mutex
	policies map[string][]string // by role
}

func (r *recordingSTS) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	form, parsed := url.ParseQuery(string(body))
	if err != nil || parsed != nil {
		http.Error(w, "not a form", http.StatusBadRequest)
		return
	}
	if form.Get("Action") == "AssumeRole" {
		r.mu.Lock()
		role := strings.TrimPrefix(form.Get("RoleArn"), stackRoles)
		r.policies[role] = append(r.policies[role], form.Get("Policy"))
		r.mu.Unlock()
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.to.ServeHTTP(w, req)
}

// A plan of a real runner takes its role as it is. The apply takes its role for the state only, and after it has read the approved plan
// for the services of its changes: here for none.
func TestApplyTakesItsRoleForItsChanges(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(others.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	sts := &recordingSTS{to: httputil.NewSingleHostReverseProxy(server), policies: map[string][]string{}}
	endpoint := httptest.NewServer(sts)
	t.Cleanup(endpoint.Close)
	s := plane.New(t, plane.Options{Stack: true})
	startAgent(t, s, "", append(inStack(t, endpoint.URL), "FAIRLEAD_TOFU="+tool(t))...)
	ref := s.Push(map[string]string{"main.tf": `resource "terraform_data" "it" {}`})
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	apply := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan))))
	if want := "the credentials of this apply are for the state only"; !strings.Contains(string(apply.Log), want) {
		t.Errorf("the log lacks %q:\n%s", want, apply.Log)
	}
	sts.mu.Lock()
	defer sts.mu.Unlock()
	if p := sts.policies["read-only"]; len(p) != 1 || p[0] != "" {
		t.Errorf("the plan took its role with the session policies %q, want none", p)
	}
	p := sts.policies["provision"]
	if len(p) != 2 {
		t.Fatalf("the apply took its role with the session policies %q, want two", p)
	}
	for _, document := range p {
		if !strings.Contains(document, `"kms:ViaService"`) || strings.Contains(document, "iam:") {
			t.Errorf("the session policy is %s", document)
		}
	}
}
