package awstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/deployment"
	"github.com/fairlead/fairlead/tools/program"
)

// vendorRole is the role of the operator who deploys.
const vendorRole = "admin"

// vendor deploys the control plane to an empty account. All steps are real except
// the CDK's: deploy has already created the resources of the synthesized template,
// and the replaced "cdk deploy" only creates the stack's record in CloudFormation.
type vendor struct {
	*world
	deployment.Deployment
	out    bytes.Buffer
	image  v1.Image // built by the replaced image builder
	direct v1.Image // of direct launch
	shell  v1.Image // of the runner with a shell
	cfn    *cloudformation.Client
	before func()            // runs just before "cdk deploy"; nil: nothing
	kept   map[string]string // values of the stack's parameters, which CloudFormation keeps

	mu      sync.Mutex
	done    []string // steps that were run
	failing string   // the step that fails; "": none
}

// record records a step, or returns an error if the step must fail.
func (v *vendor) record(step string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failing == step {
		return errConnection
	}
	v.done = append(v.done, step)
	return nil
}

// fail makes only this step fail. With "" no step fails.
func (v *vendor) fail(step string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failing = step
}

// ran returns the steps that ran, in order.
func (v *vendor) ran() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.done)
}

// runnerImage returns an image with one layer, and its digest.
func runnerImage(t *testing.T, content string) (v1.Image, string) {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(content), types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return img, digest.String()
}

// released returns the parameters of a stack that has published an image and a template.
func released() map[string]string {
	return map[string]string{"RunnerDigest": "sha256:" + strings.Repeat("0", 64), "TemplateDigest": strings.Repeat("1", 64)}
}

// releasedTemplate returns the template of the control plane's stack with the values of
// its parameters as defaults. Resources and outputs whose condition does not hold are
// removed.
func releasedTemplate(t testing.TB, parameters map[string]string) template {
	t.Helper()
	out := readTemplate(t, controlTemplate)
	for name, value := range parameters {
		p, ok := out.Parameters[name]
		if !ok {
			t.Fatalf("the template has no parameter %s", name)
		}
		p.Default = value
		out.Parameters[name] = p
	}
	r := &resolver{t: t, tmpl: out}
	maps.DeleteFunc(out.Resources, func(_ string, res resource) bool { return res.Condition != "" && !r.holds(res.Condition) })
	maps.DeleteFunc(out.Outputs, func(_ string, o output) bool { return o.Condition != "" && !r.holds(o.Condition) })
	return out
}

// newVendor returns a vendor with an account to which nothing was deployed yet.
func newVendor(t *testing.T) *vendor {
	t.Helper()
	v := &vendor{}
	var digest string
	v.image, digest = runnerImage(t, "the first release")
	v.direct, _ = runnerImage(t, "direct launch")
	v.shell, _ = runnerImage(t, "a shell")
	customers, err := os.ReadFile(runnerTemplate)
	if err != nil {
		t.Fatal(err)
	}
	a := deploy(t, releasedTemplate(t, map[string]string{"RunnerDigest": digest, "TemplateDigest": fmt.Sprintf("%x", sha256.Sum256(customers))}))
	moto, err := url.Parse(a.moto)
	a.ok("read the server's URL", err)
	cfn := httputil.NewSingleHostReverseProxy(moto)
	v.world = connect(t, a, map[string]http.Handler{
		"cloudformation." + region + ".amazonaws.com": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Authorization", keyID.ReplaceAllString(r.Header.Get("Authorization"), "Credential=test/"))
			cfn.ServeHTTP(w, r)
		}),
		// The operator may not simulate policies, and gets a warning. Package deployment tests the other answers.
		"iam.amazonaws.com": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>`)
		}),
		"lambda." + region + ".amazonaws.com":  http.HandlerFunc(v.lambda),
		"api.ecr." + region + ".amazonaws.com": a.gates["ECR"].handler,
		"kms." + region + ".amazonaws.com":     a.gates["KMS"].handler,
	})
	transport := hosts.Transport(t, v.authority, v.proxy)
	arn := "arn:aws:iam::" + accountID + ":role/" + vendorRole
	v.guard.AddRole(iamtest.Role{ARN: arn, Policies: []iamtest.Policy{{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "*", "Resource": "*"}}}}})
	who, err := v.guard.Give(arn, "alice")
	a.ok("open a session of the operator", err)
	v.Deployment = deployment.Deployment{Options: deployment.Options{Stage: "test", Operator: "alice", Version: "v1.2.3", AlarmEmail: deployment.NoAlarmEmail, Budget: deployment.NoBudget, Yes: true}, Root: t.TempDir(), Run: v.run, Out: &v.out,
		Remote: v.failingPush(transport), Config: aws.Config{Region: region, HTTPClient: &http.Client{Transport: transport}, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider(who.AccessKeyID, who.SecretAccessKey, who.SessionToken)}}
	v.cfn = cloudformation.NewFromConfig(v.Config)
	return v
}

// errConnection is the error of a step that must fail.
var errConnection = errors.New("the connection is gone")

// failingPush returns the transport to the registry. If the step "push" must fail,
// the transport refuses the manifest. At that time the layers are already in the
// registry.
func (v *vendor) failingPush(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
			if err := v.record("push"); err != nil {
				return nil, err
			}
		}
		return next.RoundTrip(r)
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// lambda serves the operations of Lambda's API that a deployment uses: GetAccountSettings
// and Invoke.
func (v *vendor) lambda(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/account-settings") {
		fmt.Fprint(w, `{"AccountLimit":{"ConcurrentExecutions":1000,"UnreservedConcurrentExecutions":1000}}`)
		return
	}
	_, name, ok := strings.Cut(r.URL.Path, ":function:fairlead-test-") // the ARN of the alias
	name, invokes := strings.CutSuffix(name, "/invocations")
	event, err := io.ReadAll(r.Body)
	if !ok || !invokes || err != nil || v.record("token") != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	answer, err := v.invoke(r.Context(), name, json.RawMessage(event))
	if err != nil {
		v.account.t.Errorf("invoke %s: %v", name, err)
	}
	_, _ = w.Write(answer)
}

// step names the step that the command is for.
func step(c deployment.Command) string {
	switch {
	case filepath.Base(c.Args[0]) == "fairlead":
		return "fairlead " + c.Args[1]
	case c.Args[0] == "npx" && c.Args[2] == deployment.CDK:
		return "cdk " + c.Args[3]
	}
	return strings.Join(c.Args[:3], " ")
}

func (v *vendor) run(ctx context.Context, c deployment.Command) ([]byte, error) {
	name := step(c)
	if err := v.record(name); err != nil {
		return nil, err
	}
	switch name {
	case "go run ./tools/functions": // the account already has the functions
		return nil, nil
	case "go run ./infra/images/runner":
		if slices.Contains(c.Args, "-direct") {
			return v.buildImage("layout-direct", v.direct)
		}
		if slices.Contains(c.Args, "-shell") {
			return v.buildImage("layout-shell", v.shell)
		}
		return v.buildImage("layout", v.image)
	case "cdk synth":
		file := filepath.Join(v.Root, "bin", "infra", "fairlead-runner.yaml")
		text, err := os.ReadFile(runnerTemplate)
		return nil, errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644))
	case "cdk bootstrap":
		return nil, v.putStack(ctx, "CDKToolkit", map[string]string{"BucketName": "cdk", "BootstrapVersion": "30"})
	case "cdk deploy":
		if v.before != nil {
			v.before()
		}
		return nil, v.deployStack(ctx, c.Args)
	}
	cmd := exec.CommandContext(ctx, program.Build(v.account.t, "cmd/fairlead"), c.Args[1:]...)
	cmd.Env, cmd.Stdin = append([]string{"FAIRLEAD_CONFIG_DIR=" + v.config}, v.environ...), strings.NewReader(c.Stdin)
	return cmd.Output()
}

func (v *vendor) buildImage(name string, image v1.Image) ([]byte, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(v.Root, "bin", "images", "runner", name)
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, err
	}
	return []byte(digest.String() + "\n"), l.AppendImage(image)
}

// deployStack creates or updates the stack's record in CloudFormation, with the
// parameters and the outputs of the template. Parameters without a value in args keep
// their previous values, as with the real CDK.
func (v *vendor) deployStack(ctx context.Context, args []string) error {
	if v.kept == nil {
		v.kept = map[string]string{}
	}
	for i, a := range args {
		if a == "--parameters" {
			name, value, _ := strings.Cut(strings.TrimPrefix(args[i+1], "fairlead-test:"), "=")
			v.kept[name] = value
		}
	}
	outputs, r := map[string]string{}, *v.resolver
	r.tmpl = releasedTemplate(v.account.t, v.kept)
	for name, o := range r.tmpl.Outputs {
		outputs[name] = r.text(o.Value)
	}
	return v.putStack(ctx, "fairlead-test", outputs)
}

// putStack creates or updates a stack with these outputs, and with a queue, because
// a stack needs at least one resource.
func (v *vendor) putStack(ctx context.Context, name string, outputs map[string]string) error {
	values, parameters := map[string]any{}, map[string]any{}
	for k, value := range outputs {
		values[k] = map[string]any{"Value": value}
	}
	if name != "CDKToolkit" {
		for k, value := range v.kept {
			parameters[k] = map[string]any{"Type": "String", "Default": value}
		}
	}
	text, err := json.Marshal(map[string]any{"Parameters": parameters, "Outputs": values, "Resources": map[string]any{"Queue": map[string]any{"Type": "AWS::SQS::Queue"}}})
	if err != nil {
		return err
	}
	body := string(text)
	if _, err := v.cfn.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name}); err == nil {
		_, err := v.cfn.UpdateStack(ctx, &cloudformation.UpdateStackInput{StackName: &name, TemplateBody: &body})
		return err
	}
	_, err = v.cfn.CreateStack(ctx, &cloudformation.CreateStackInput{StackName: &name, TemplateBody: &body})
	return err
}

// times returns how often a step ran.
func (v *vendor) times(name string) (n int) {
	for _, s := range v.ran() {
		if s == name {
			n++
		}
	}
	return n
}

// Three commands lead from an empty account to a running install. The first
// command deploys the account. The third command waits until the customer has
// created its stack. The test interrupts the first command at every step and
// repeats it. At the end each resource exists once. Another repetition changes
// nothing.
func TestOneCommandDeploysTheAccount(t *testing.T) {
	skipIfShort(t)
	v := newVendor(t)
	defer v.close()
	v.DryRun = true
	v.ok("show the steps of a dry run", v.Do(t.Context()))
	if len(v.ran()) > 0 || !strings.Contains(v.out.String(), "create the stack fairlead-test") {
		t.Errorf("a dry run ran the steps %q, want none; its output:\n%s", v.ran(), v.out.String())
	}
	v.DryRun = false
	for _, step := range []string{"go run ./tools/functions", "go run ./infra/images/runner", "cdk synth", "cdk bootstrap", "cdk deploy", "push", "upload", "token", "fairlead login"} {
		v.fail(step)
		if step == "upload" {
			v.gates["S3"].set(always(func(r *http.Request, _ []byte) bool { return r.Method == http.MethodPut }, throttled))
		}
		if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("%s fails and the command returns %v, want the hint to run it again", step, err)
		}
		v.gates["S3"].set(nil)
	}
	v.fail("")
	v.ok("deploy", v.Do(t.Context()))
	if v.times("cdk bootstrap") != 1 {
		t.Errorf("the account was bootstrapped %d times, want once", v.times("cdk bootstrap"))
	}

	// The second and the third command.
	v.cli("app", "apply", "examples/shop")
	third := v.command(t.Context(), "install", "create", "acme", "--app", "shop", "--account", accountID, "--region", region, "--input-file", "examples/shop/demo.inputs.yaml", "--wait")
	var output bytes.Buffer
	third.Stdout, third.Stderr = &output, &output
	v.ok("create an install", third.Start())
	v.eventually("the install waits for its customer", func() bool { return v.command(t.Context(), "install", "stack", "acme").Run() == nil })
	stack := ask[wire.Stack](v.world, "install", "stack", "acme")
	digest, err := v.image.Digest()
	v.ok("read the digest", err)
	given := map[string]string{}
	for _, p := range stack.Parameters {
		given[p.Name] = p.Value
	}
	if want := registryHost + "/fairlead-test/runner@" + digest.String(); given[wire.StackRunnerImage] != want {
		t.Errorf("the customer's stack starts %s, want %s", given[wire.StackRunnerImage], want)
	}
	v.checkPublished(stack.TemplateURL, digest)
	_, stop := v.installStack("acme")
	defer stop()
	v.ok("wait for the customer's runner", third.Wait())
	if s := ask[wire.Stack](v.world, "install", "stack", "acme"); s.State != "online" || !strings.Contains(output.String(), url.QueryEscape(stack.TemplateURL)) {
		t.Errorf("the stack is %s, want online and the template's URL in the command's output:\n%s", s.State, output.String())
	}

	pushed, uploaded, tokens := v.registry.pushes(), v.gates["S3"].count(http.MethodPut), v.times("token")
	v.ok("deploy again", v.Do(t.Context()))
	if v.registry.pushes() != pushed || v.gates["S3"].count(http.MethodPut) != uploaded || v.times("token") != tokens || v.times("cdk bootstrap") != 1 {
		t.Errorf("a repeated deployment changes something: %d pushes, want %d; %d uploads, want %d; %d tokens, want %d; %d bootstraps, want 1",
			v.registry.pushes(), pushed, v.gates["S3"].count(http.MethodPut), uploaded, v.times("token"), tokens, v.times("cdk bootstrap"))
	}
	v.cli("app", "list")
}

// checkPublished checks that the template and the image that customers get exist,
// and that each byte of the template is correct.
func (v *vendor) checkPublished(templateURL string, digest v1.Hash) {
	t := v.account.t
	t.Helper()
	want, err := os.ReadFile(runnerTemplate)
	v.ok("read the template", err)
	u, err := url.Parse(templateURL)
	v.ok("read the template's URL", err)
	bucket, host, _ := strings.Cut(u.Host, ".")
	if key := fmt.Sprintf("/runner/%x.yaml", sha256.Sum256(want)); bucket != v.ref("Templates") || host != "s3."+region+".amazonaws.com" || u.Path != key {
		t.Errorf("the template is at %s, want bucket %s and key %s", templateURL, v.ref("Templates"), key)
	}
	client := s3.NewFromConfig(v.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String(strings.TrimPrefix(u.Path, "/"))})
	v.ok("get the published template", err)
	got, err := io.ReadAll(out.Body)
	v.ok("read the published template", errors.Join(err, out.Body.Close()))
	if !bytes.Equal(got, want) {
		t.Error("the published template differs from the synthesized one")
	}
	if !v.registry.has("fairlead-test/runner", digest.String()) || !v.registry.has("fairlead-test/runner", digest.Hex) {
		t.Error("the registry does not have the image by digest and by tag; ECR expires untagged images")
	}
}

// An update keeps the customer accounts of earlier deployments. The image of a new
// release is in the registry before the stack names it. Credentials of another
// account change nothing.
func TestUpdateKeepsCustomersAndPublishesFirst(t *testing.T) {
	v := newVendor(t)
	defer v.close()
	v.Customers = []string{"444455556666"}
	v.ok("deploy", v.Do(t.Context()))

	var digest string
	v.image, digest = runnerImage(t, "the second release")
	v.before = func() {
		if !v.registry.has("fairlead-test/runner", digest) {
			t.Error("the stack would name an image that is not in the registry")
		}
	}
	v.Customers, v.Without, v.DirectLaunch = []string{"777788889999"}, nil, deployment.On
	v.out.Reset()
	v.ok("deploy the second release", v.Do(t.Context()))
	if !strings.Contains(v.out.String(), "update the stack fairlead-test") || !strings.Contains(v.out.String(), "444455556666, 777788889999") {
		t.Errorf("the output does not name both customers and the update:\n%s", v.out.String())
	}
	direct, err := v.direct.Digest()
	v.ok("read the digest", err)
	for _, option := range []string{"", deployment.Off} {
		if v.kept["DirectLaunch"] != direct.String() || !v.registry.has("fairlead-test/runner", direct.String()) {
			t.Errorf("the stack runs direct launch from %q, want the pushed image %s", v.kept["DirectLaunch"], direct)
		}
		v.DirectLaunch = option
		v.ok("deploy with direct launch "+option, v.Do(t.Context()))
	}
	if v.kept["DirectLaunch"] != "none" {
		t.Errorf("the stack still runs direct launch from %q", v.kept["DirectLaunch"])
	}
	v.Customers, v.Without, v.DryRun = nil, []string{"444455556666", "777788889999"}, true
	v.out.Reset()
	v.ok("remove both customer accounts", v.Do(t.Context()))
	if !strings.Contains(v.out.String(), "let no other account read") {
		t.Errorf("after the last other account was removed, the output is:\n%s", v.out.String())
	}

	v.DryRun = false
	for name, change := range map[string]func(*deployment.Options){
		"nothing was done": func(o *deployment.Options) { o.Account = "999999999999" },
		"twelve digits":    func(o *deployment.Options) { o.Customers = []string{"acme"} },
		"stage":            func(o *deployment.Options) { o.Stage = "Prod/1" },
	} {
		before, options := len(v.ran()), v.Options
		change(&v.Options)
		if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), name) || len(v.ran()) != before {
			t.Errorf("got %v after the steps %q, want an error with %q and no step", err, v.ran()[before:], name)
		}
		v.Options = options
	}
	if !slices.Contains(v.ran(), "cdk deploy") {
		t.Error("no step was cdk deploy")
	}
}
