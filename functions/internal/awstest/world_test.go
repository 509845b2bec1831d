package awstest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/codebuildtest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/program"
)

// The host names of the control plane and of STS.
const (
	planeHost = "fairlead.example.com"
	apiHost   = "a1b2c3d4e5.execute-api." + region + ".amazonaws.com" // of API Gateway; the domain was added later
	stsHost   = "sts." + region + ".amazonaws.com"
)

// world is an account whose control plane serves TLS under its own host name. A
// process with environ can reach it.
type world struct {
	*account
	environ []string // environment of a process that uses the host names
	// authority is the file with the certificate authority of the hosts, proxy the URL
	// of the proxy to them. environ contains both.
	authority, proxy string
	token            string // "": the CLI uses its own login
	config           string // the CLI's configuration folder
	close            func() // stops the pumps; call it before the test ends, because the functions end with the test
	tasks            *ecstest.Cloud
	images           *codebuildtest.Service // nil: the account has no project of CodeBuild; see buildImages
}

// skipIfShort skips a test that takes minutes in a short run.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes minutes; make test-all runs it")
	}
}

// needTofu skips a test that has no OpenTofu.
func needTofu(t testing.TB) {
	t.Helper()
	if os.Getenv("FAIRLEAD_TOFU") == "" {
		t.Skip("FAIRLEAD_TOFU is not set; make test-aws sets it to an OpenTofu")
	}
}

// deployWorld deploys the control plane's stack, connects it and gets a token.
func deployWorld(t testing.TB) *world {
	t.Helper()
	return deployWith(t, released())
}

// deployWith is deployWorld with these parameters of the stack.
func deployWith(t testing.TB, parameters map[string]string) *world {
	t.Helper()
	needTofu(t)
	return connect(t, deploy(t, releasedTemplate(t, parameters)), nil).operated()
}

// operated gets the control plane's first token and returns the world.
func (w *world) operated() *world {
	t := w.t
	t.Helper()
	// A caller who may invoke the function gets the control plane's first token.
	answer, err := w.invoke(t.Context(), "controlapi", map[string]string{"operator": "vendor"})
	w.ok("ask for a token", err)
	var operator plane.Operator
	w.ok("read the answer", json.Unmarshal(answer, &operator))
	if w.token = operator.Token; operator.URL != "https://"+planeHost {
		t.Errorf("the control plane reports the URL %s, want https://%s", operator.URL, planeHost)
	}
	return w
}

// connect serves the account and the other services under their host names, and
// starts the pumps.
func connect(t testing.TB, a *account, others map[string]http.Handler) *world {
	t.Helper()
	w := &world{account: a, config: t.TempDir()}
	sts := w.guard.STS()
	if w.meter != nil {
		sts = w.meter.sts(sts)
	}
	served := map[string]http.Handler{planeHost: w.front(), apiHost: w.front(), stsHost: sts, registryHost: w.registry,
		"sqs." + region + ".amazonaws.com": w.gates["SQS"].handler, "logs." + region + ".amazonaws.com": w.gates["CLOUDWATCH_LOGS"].handler,
		"ssm." + region + ".amazonaws.com": w.gates["SSM"].handler, "*.s3." + region + ".amazonaws.com": w.gates["S3"].handler}
	lambda, err := w.guard.Handler("LAMBDA", http.HandlerFunc(w.serveInvocation))
	w.ok("guard Lambda", err)
	served["lambda."+region+".amazonaws.com"] = lambda
	// The services of the apps in customers' accounts, and the secrets of the vendor's builds.
	for host, service := range map[string]string{"secretsmanager." + region + ".amazonaws.com": "SECRETS_MANAGER", "iam.amazonaws.com": "IAM", "ec2." + region + ".amazonaws.com": "EC2", "*.s3-control." + region + ".amazonaws.com": "S3_CONTROL"} {
		h, err := w.guard.Handler(service, w.toMoto())
		w.ok("guard "+service, err)
		served[host] = h
	}
	maps.Copy(served, others)
	tasks, err := w.guard.Handler("ECS", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.tasks.ServeHTTP(rw, r) }))
	w.ok("guard ECS", err)
	served["ecs."+region+".amazonaws.com"] = tasks
	images, err := w.guard.Handler("CODEBUILD", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.images.ServeHTTP(rw, r) }))
	w.ok("guard CodeBuild", err)
	served["codebuild."+region+".amazonaws.com"] = images
	authority, proxy := hosts.Serve(t, served)
	w.authority, w.proxy = authority, proxy
	w.environ = []string{"SSL_CERT_FILE=" + authority, "HTTPS_PROXY=" + proxy, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	w.reachSTS()
	w.tasks = w.makeCloud()
	w.close = w.pumps()
	return w
}

// toMoto passes requests to moto, as requests of the account that has the stacks.
func (w *world) toMoto() http.Handler {
	u, err := url.Parse(w.moto)
	w.ok("read "+w.moto, err)
	moto := httputil.NewSingleHostReverseProxy(u)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", keyID.ReplaceAllString(r.Header.Get("Authorization"), "Credential=test/"))
		moto.ServeHTTP(rw, r)
	})
}

// reachSTS lets the functions that call STS find it. The vendor's and the customers' account are the same here.
func (w *world) reachSTS() {
	for _, name := range []string{"controlapi", "sessionapi", "runnerapi"} {
		f := w.functions[name]
		f.program.Env = append(f.program.Env, "SSL_CERT_FILE="+w.authority, "HTTPS_PROXY="+w.proxy)
	}
}

// cli runs the CLI as the vendor and returns its standard output. An exit code other
// than 0 fails the test.
func (w *world) cli(args ...string) []byte {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := w.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("fairlead %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// command returns a command that runs the CLI as the vendor.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program.Build(w.t, "cmd/fairlead"), args...)
	cmd.Env = append([]string{"FAIRLEAD_CONFIG_DIR=" + w.config}, w.environ...)
	if w.token != "" {
		cmd.Env = append(cmd.Env, "FAIRLEAD_URL=https://"+planeHost, "FAIRLEAD_TOKEN="+w.token)
	}
	cmd.Dir = "../../.."
	return cmd
}

// ask runs the CLI with --json and decodes its output.
func ask[T any](w *world, args ...string) T {
	w.t.Helper()
	var out T
	text := w.cli(append(args, "--json")...)
	if err := json.Unmarshal(text, &out); err != nil {
		w.t.Fatalf("fairlead %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return out
}

// eventually waits at most a minute until ok returns true.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("not true after a minute: %s", what)
		}
	}
}

// sessionsOf returns the names of the sessions that assumed a role.
func (w *world) sessionsOf(arn string) (sessions []string) {
	for _, a := range w.guard.Assumed() {
		if a.Role == arn {
			sessions = append(sessions, a.Session)
		}
	}
	return sessions
}

// keysOf returns the access keys of the sessions with this name that assumed a role, oldest first.
func (w *world) keysOf(arn, session string) (keys []string) {
	for _, a := range w.guard.Assumed() {
		if a.Role == arn && a.Session == session {
			keys = append(keys, a.AccessKeyID)
		}
	}
	return keys
}
