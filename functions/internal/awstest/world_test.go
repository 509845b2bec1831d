package awstest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/program"
)

// The names under which the world knows what is served here.
const (
	planeHost = "fairlead.example.com"
	stsHost   = "sts." + region + ".amazonaws.com"
)

// world is an account whose control plane can be reached under its own name,
// over TLS, by whoever has environ.
type world struct {
	*account
	sts     *ststest.Server
	environ []string // that finds the names
	// authority is the file of who signs the names' certificates, proxy the way to
	// them: what environ says, for this process.
	authority, proxy string
	token            string // "": that of the CLI's own login
	config           string // folder of the CLI's
	close            func() // to be called before the test ends, and the functions with it
	roles            *roles
}

// whole skips a test that takes minutes in a short run.
func whole(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes minutes; make test-all runs it")
	}
}

// open deploys the stack, puts the control plane on the net, and has a token.
func open(t *testing.T) *world {
	t.Helper()
	tofu := os.Getenv("FAIRLEAD_TOFU")
	if tofu == "" {
		t.Skip("FAIRLEAD_TOFU names no OpenTofu; make test-aws sets it")
	}
	w := connect(t, deploy(t, synthesised(t, controlTemplate)), nil)
	// The first token of a control plane is for whoever may invoke the function.
	answer, err := w.invoke(t.Context(), "controlapi", map[string]string{"operator": "vendor"})
	w.ok("ask for a token", err)
	var operator plane.Operator
	w.ok("read the answer", json.Unmarshal(answer, &operator))
	if w.token = operator.Token; operator.URL != "https://"+planeHost {
		t.Errorf("the control plane says that it is at %s", operator.URL)
	}
	return w
}

// connect puts an account on the net, with other services at their hosts, and
// starts what AWS does of itself.
func connect(t *testing.T, a *account, others map[string]http.Handler) *world {
	t.Helper()
	w := &world{account: a, sts: ststest.New(time.Now), config: t.TempDir()}
	w.registry.who = w.sts.Principal
	served := map[string]http.Handler{planeHost: w.front(), stsHost: w.sts, registryHost: w.registry,
		"sqs." + region + ".amazonaws.com": w.gates["SQS"].handler, "logs." + region + ".amazonaws.com": w.gates["CLOUDWATCH_LOGS"].handler,
		"*.s3." + region + ".amazonaws.com": w.gates["S3"].handler}
	maps.Copy(served, others)
	authority, proxy := hosts.Serve(t, served)
	w.authority, w.proxy = authority, proxy
	w.environ = []string{"SSL_CERT_FILE=" + authority, "HTTPS_PROXY=" + proxy, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	// Both accounts are this one; who may take which role is IAM's to say, and
	// infra's own tests evaluate it.
	w.roles = &roles{}
	w.sts.LetAssume(w.roles.take)
	for name, role := range map[string]string{"controlapi": "ControlAPIRole", "runnerapi": "RunnerAPIRole"} {
		f := w.functions[name]
		own := w.sts.AssumeRole("aws", accountID, w.ref(role), "AROA"+strings.Repeat("F", 17), name)
		f.program.Env = append(f.program.Env, "SSL_CERT_FILE="+authority, "HTTPS_PROXY="+proxy,
			"AWS_ACCESS_KEY_ID="+own.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+own.SecretAccessKey, "AWS_SESSION_TOKEN="+own.SessionToken)
	}
	w.close = w.pumps()
	return w
}

// cli runs the CLI as the vendor and returns what it printed. Any other exit
// code than 0 fails the test.
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

// command is the CLI as the vendor runs it.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program.Build(w.t, "cmd/fairlead"), args...)
	cmd.Env = append([]string{"FAIRLEAD_CONFIG_DIR=" + w.config}, w.environ...)
	if w.token != "" {
		cmd.Env = append(cmd.Env, "FAIRLEAD_URL=https://"+planeHost, "FAIRLEAD_TOKEN="+w.token)
	}
	cmd.Dir = "../../.."
	return cmd
}

// ask runs the CLI and decodes its answer.
func ask[T any](w *world, args ...string) T {
	w.t.Helper()
	var out T
	text := w.cli(append(args, "--json")...)
	if err := json.Unmarshal(text, &out); err != nil {
		w.t.Fatalf("fairlead %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return out
}

// eventually waits until ok, a minute at most.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("after a minute it is not so that %s", what)
		}
	}
}

// roles notes who took which role.
type roles struct {
	mu    sync.Mutex
	taken []url.Values
}

func (r *roles) take(form url.Values) (time.Duration, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = append(r.taken, form)
	return 15 * time.Minute, ""
}

// of returns the sessions in which a role was taken.
func (r *roles) of(arn string) (sessions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, form := range r.taken {
		if form.Get("RoleArn") == arn {
			sessions = append(sessions, form.Get("RoleSessionName"))
		}
	}
	return sessions
}
