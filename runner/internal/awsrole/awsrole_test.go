package awsrole_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/runner/internal/awsrole"
	"github.com/fairlead/fairlead/tools/moto"
)

var others moto.Server

const toolVariable = "AWSROLE_TEST_TOOL"

// TestMain runs this binary as the tool if toolVariable is set. The tool finds its credentials with the AWS SDK.
func TestMain(m *testing.M) {
	if os.Getenv(toolVariable) != "" {
		if err := tool(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	others.Stop()
	os.Exit(code)
}

// tool answers each line of its input: "who" with its role and region, "key" with its access key ID.
func tool() error {
	ctx := context.Background()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sts.NewFromConfig(cfg)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "who":
			out, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
			if err != nil {
				return err
			}
			fmt.Println(*out.Arn, cfg.Region)
		case "key":
			c, err := cfg.Credentials.Retrieve(ctx)
			if err != nil {
				return err
			}
			fmt.Println(c.AccessKeyID)
		}
	}
	return nil
}

// running is a running tool.
type running struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

// start starts the tool with the variables of env that are not empty, and with more.
func start(t *testing.T, env map[string]string, more ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append([]string{toolVariable + "=1", "GOCOVERDIR=" + t.TempDir(), "HOME=" + t.TempDir()}, more...)
	for k, v := range env {
		if v != "" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &running{t, in, bufio.NewScanner(out)}
}

// ask sends a line to the tool and returns its answer.
func (r *running) ask(line string) string {
	r.t.Helper()
	fmt.Fprintln(r.in, line)
	if !r.out.Scan() {
		r.t.Fatalf("the tool ended: %v", r.out.Err())
	}
	return r.out.Text()
}

var wanted = awsrole.Wanted{Role: "arn:aws:iam::123456789012:role/fairlead/ins_1/provision", ExternalID: "fl-external-0123456789", Region: "eu-central-1",
	Install: "ins_1", Job: "job_1"}

// secrets collects the secrets that a source passes to hide.
type secrets struct {
	mu  sync.Mutex
	all []string
}

func (s *secrets) hide(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
}

// A tool gets the role of its operation. Its environment holds only the address of the endpoint and the name of the file
// with its token, and no secret.
func TestToolHasTheRoleOfItsOperation(t *testing.T) {
	endpoint := others.Endpoint(t)
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIARUNNER", "runner", "")}
	var s secrets
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, s.hide), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := start(t, taken.Environ, "AWS_ENDPOINT_URL_STS="+endpoint).ask("who")
	if got != "arn:aws:sts::123456789012:assumed-role/fairlead/ins_1/provision/job_1 eu-central-1" && got != "arn:aws:sts::123456789012:assumed-role/provision/job_1 eu-central-1" {
		t.Errorf("the tool has the identity %s", got)
	}
	if tag := taken.Environ["TF_AWS_DEFAULT_TAGS_fairlead_install"]; tag != wanted.Install {
		t.Errorf("the provider tags resources with the install %q, want %q: the stack's boundary would keep the install out of them", tag, wanted.Install)
	}
	if len(s.all) != 3 {
		t.Errorf("the source hid %d secrets, want 3: the secret key, the session token and the endpoint's token", len(s.all))
	}
	for name, value := range taken.Environ {
		for _, secret := range s.all {
			if strings.Contains(value, secret) {
				t.Errorf("the variable %s holds a secret", name)
			}
		}
	}
	file := taken.Environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("the file of the token: %v, %v; want mode 0400", info, err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the token is still in its file: %v", err)
	}
}

// fake is a simulated STS whose role sessions have a settable lifetime. Its client connects to it over TLS for every host
// name.
type fake struct {
	*ststest.Server
	mu    sync.Mutex
	life  time.Duration
	code  string       // error code of the responses; "": success
	forms []url.Values // the received requests
}

func newFake(t *testing.T, now func() time.Time) (*fake, aws.Config) {
	f := &fake{Server: ststest.New(now), life: time.Hour}
	f.LetAssume(func(form url.Values) (time.Duration, string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.forms = append(f.forms, form)
		return f.life, f.code
	})
	srv := httptest.NewTLSServer(f)
	t.Cleanup(srv.Close)
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"} // the name in the server's certificate
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	c := f.AssumeRole("aws", "123456789012", "runner", "AROAEXAMPLEEXAMPLE001", "task")
	return f, aws.Config{Region: "eu-central-1", HTTPClient: &http.Client{Transport: tr}, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

// set sets the lifetime of new sessions and the error code.
func (f *fake) set(life time.Duration, code string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life, f.code = life, code
}

// requests returns the received requests.
func (f *fake) requests() []url.Values {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forms
}

// The session's name, external ID and tags are those that the role's trust policy requires.
func TestAssumeRoleRequestHasNameAndTags(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	if _, err := awsrole.NewSource(cfg, wanted, time.Now, func(string) {}).Retrieve(t.Context()); err != nil {
		t.Fatal(err)
	}
	form := f.requests()[0]
	tags := map[string]string{}
	for _, n := range []string{"1", "2", "3"} {
		if k := form.Get("Tags.member." + n + ".Key"); k != "" {
			tags[k] = form.Get("Tags.member." + n + ".Value")
		}
	}
	if form.Get("RoleArn") != wanted.Role || form.Get("RoleSessionName") != "job_1" || form.Get("ExternalId") != wanted.ExternalID ||
		form.Get("DurationSeconds") != "3600" || fmt.Sprint(tags) != "map[fairlead-install:ins_1 fairlead-job:job_1]" || form.Has("TransitiveTagKeys.member.1") {
		t.Errorf("wrong request to STS: %v", form)
	}
}

// If an apply takes longer than its role session, the tool asks again and gets new credentials. Credentials in its
// environment would expire.
func TestToolGetsNewCredentialsBeforeTheyExpire(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	f.set(4*time.Minute, "") // the tool's SDK treats credentials as expired 5 minutes before their expiry
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tool := start(t, taken.Environ)
	first := tool.ask("key")
	second := tool.ask("key")
	if first == second || !strings.HasPrefix(second, "ASIA") {
		t.Errorf("the tool got %s and then %s, want a new key", first, second)
	}
	f.set(time.Hour, "")
	third := tool.ask("key")
	if again := tool.ask("key"); again != third {
		t.Errorf("the source replaced new credentials: %s, then %s", third, again)
	}
	if n := len(f.requests()); n != 4 {
		t.Errorf("STS received %d requests, want 4: one at the start and one for each of three keys", n)
	}
}

// While STS fails, the source returns the cached credentials until they expire.
func TestCachedCredentialsAreUsedWhileSTSFails(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	f, cfg := newFake(t, time.Now)
	s := awsrole.NewSource(cfg, wanted, clock, func(string) {})
	first, err := s.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.set(0, "ServiceUnavailable")
	for _, tt := range []struct {
		name  string
		after time.Duration
		calls int // requests to STS in total
		err   bool
	}{
		{"fresh credentials: no request", 44 * time.Minute, 1, false},
		{"old but valid credentials: still used", 50 * time.Minute, 2, false},
		{"expired credentials: an error", time.Hour, 3, true},
	} {
		now = first.Expires.Add(-time.Hour + tt.after)
		got, err := s.Retrieve(t.Context())
		if (err != nil) != tt.err || err == nil && got != first || len(f.requests()) != tt.calls {
			t.Errorf("%s: Retrieve = %v, %v, after %d requests to STS", tt.name, got.AccessKeyID, err, len(f.requests()))
		}
	}
}

func TestRefusedRoleIsNamedInTheError(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	f.set(0, "AccessDenied")
	_, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), wanted.Role) || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("the error does not name the role and AccessDenied: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := awsrole.TakeFrom(ctx, awsrole.NewSource(cfg, wanted, time.Now, func(string) {}), t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("TakeFrom with a canceled context = %v, want context.Canceled", err)
	}
}

// The endpoint gives credentials only for the right token, method and path.
func TestEndpointRefusesOtherRequests(t *testing.T) {
	_, cfg := newFake(t, time.Now)
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
	given, err := os.ReadFile(taken.Environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	token := string(given)
	if u, err := url.Parse(address); err != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("the endpoint is at %s, want 127.0.0.1", address)
	}
	for _, tt := range []struct {
		name, method, url, token string
		status                   int
	}{
		{"the tool", "GET", address, token, http.StatusOK},
		{"a process without the token", "GET", address, "", http.StatusUnauthorized},
		{"a wrong token", "GET", address, token[1:], http.StatusUnauthorized},
		{"a bearer token", "GET", address, "Bearer " + token, http.StatusUnauthorized},
		{"another method", "POST", address, token, http.StatusMethodNotAllowed},
		{"another path", "GET", address + "/x", token, http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.token != "" {
			req.Header.Set("Authorization", tt.token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s: got status %s, want %d", tt.name, res.Status, tt.status)
		}
		var given map[string]string
		if has := json.Unmarshal(body, &given) == nil && given["SecretAccessKey"] != ""; has != (tt.status == http.StatusOK) {
			t.Errorf("%s: the response holds credentials: %v: %s", tt.name, has, body)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get(address); err == nil {
		res.Body.Close()
		t.Error("the endpoint answers after Close")
	}
}

// The story of an apply: its first credentials are for the state, and those of tools that start after SetPolicy for what was approved. A
// policy that STS refuses changes nothing.
func TestSessionPolicyOfLaterCredentials(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	w := wanted
	w.Policy = `{"first":1}`
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, w, time.Now, func(string) {}), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	key := func() string { return start(t, taken.Environ).ask("key") }
	first := key()
	if err := taken.SetPolicy(t.Context(), `{"second":2}`); err != nil {
		t.Fatal(err)
	}
	second := key()
	f.set(time.Hour, "PackedPolicyTooLarge")
	if err := taken.SetPolicy(t.Context(), `{"third":3}`); !errors.Is(err, awsrole.ErrPolicySize) {
		t.Errorf("error %v, want ErrPolicySize: the step tries a shorter one", err)
	}
	f.set(time.Hour, "AccessDenied")
	if err := taken.SetPolicy(t.Context(), `{"fourth":4}`); err == nil || errors.Is(err, awsrole.ErrPolicySize) {
		t.Errorf("error %v, want that of STS", err)
	}
	refused := key()
	f.set(time.Hour, "")
	if err := taken.SetPolicy(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	whole := key()
	if first == second || refused != second || whole == second {
		t.Errorf("the tools got the keys %s, %s, %s after refusals, %s without a policy", first, second, refused, whole)
	}
	var policies []string
	for _, form := range f.requests() {
		policies = append(policies, form.Get("Policy"))
		if form.Get("ExternalId") != wanted.ExternalID || form.Get("Tags.member.1.Key") == "" {
			t.Errorf("a request without what the trust policy requires: %v", form)
		}
	}
	if got := strings.Join(policies, " "); got != `{"first":1} {"second":2} {"third":3} {"fourth":4} ` {
		t.Errorf("the session policies are %s", got)
	}
}
