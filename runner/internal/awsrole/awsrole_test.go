package awsrole_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// TestMain lets the test binary be the tool: a program on the AWS SDK as any
// other, which finds its credentials by itself.
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

// tool answers each line that it reads with what it has.
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

// running is the tool at work.
type running struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

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

func (r *running) ask(what string) string {
	r.t.Helper()
	fmt.Fprintln(r.in, what)
	if !r.out.Scan() {
		r.t.Fatalf("the tool ended: %v", r.out.Err())
	}
	return r.out.Text()
}

var wanted = awsrole.Wanted{Role: "arn:aws:iam::123456789012:role/fairlead/ins_1/provision", ExternalID: "fl-external-0123456789", Region: "eu-central-1",
	Install: "ins_1", Job: "job_1"}

// secrets collects what is told to be secret.
type secrets struct {
	mu  sync.Mutex
	all []string
}

func (s *secrets) hide(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
}

// A tool finds the role of its operation at a real STS, with nothing in its
// environment but where to ask.
func TestAToolHasTheRoleOfItsOperation(t *testing.T) {
	endpoint := others.Endpoint(t)
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIARUNNER", "runner", "")}
	var s secrets
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, s.hide))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := start(t, taken.Environ, "AWS_ENDPOINT_URL_STS="+endpoint).ask("who")
	if got != "arn:aws:sts::123456789012:assumed-role/fairlead/ins_1/provision/job_1 eu-central-1" && got != "arn:aws:sts::123456789012:assumed-role/provision/job_1 eu-central-1" {
		t.Errorf("the tool is %s", got)
	}
	if len(s.all) != 3 {
		t.Errorf("%d texts are secret: want the key, the session's token and the endpoint's", len(s.all))
	}
	// Of these only the endpoint's token is in the environment.
	for name, value := range taken.Environ {
		for _, secret := range s.all[:2] {
			if strings.Contains(value, secret) {
				t.Errorf("%s has a credential", name)
			}
		}
	}
}

// fake is an STS whose sessions last as long as is said, over TLS under every
// name.
type fake struct {
	*ststest.Server
	mu    sync.Mutex
	life  time.Duration
	code  string
	forms []url.Values
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
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"} // the name in its certificate
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	c := f.AssumeRole("aws", "123456789012", "runner", "AROAEXAMPLEEXAMPLE001", "task")
	return f, aws.Config{Region: "eu-central-1", HTTPClient: &http.Client{Transport: tr}, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

func (f *fake) say(life time.Duration, code string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life, f.code = life, code
}

func (f *fake) asked() []url.Values {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forms
}

// The session's name, external id and tags are what the role's trust asks for.
func TestWhatIsAskedOfSTS(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	if _, err := awsrole.NewSource(cfg, wanted, time.Now, func(string) {}).Retrieve(t.Context()); err != nil {
		t.Fatal(err)
	}
	form := f.asked()[0]
	tags := map[string]string{}
	for _, n := range []string{"1", "2", "3"} {
		if k := form.Get("Tags.member." + n + ".Key"); k != "" {
			tags[k] = form.Get("Tags.member." + n + ".Value")
		}
	}
	if form.Get("RoleArn") != wanted.Role || form.Get("RoleSessionName") != "job_1" || form.Get("ExternalId") != wanted.ExternalID ||
		form.Get("DurationSeconds") != "3600" || fmt.Sprint(tags) != "map[fairlead-install:ins_1 fairlead-job:job_1]" || form.Has("TransitiveTagKeys.member.1") {
		t.Errorf("asked for %v", form)
	}
}

// An apply that outlasts its session goes on: the tool asks again, and has new
// credentials. A copy in its environment would have ended.
func TestCredentialsExpireInTheMiddleOfAJob(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	f.say(4*time.Minute, "") // the tool's SDK takes what ends within 5 minutes for ended
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tool := start(t, taken.Environ)
	first := tool.ask("key")
	second := tool.ask("key")
	if first == second || !strings.HasPrefix(second, "ASIA") {
		t.Errorf("after its session's end the tool has %s again", second)
	}
	f.say(time.Hour, "")
	third := tool.ask("key")
	if again := tool.ask("key"); again != third {
		t.Errorf("a session of an hour was replaced at once: %s, then %s", third, again)
	}
	if n := len(f.asked()); n != 4 {
		t.Errorf("STS was asked %d times: once at first and for each of three keys", n)
	}
}

// What is valid is given while STS is away, and nothing else.
func TestSTSIsAway(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	f, cfg := newFake(t, time.Now)
	s := awsrole.NewSource(cfg, wanted, clock, func(string) {})
	first, err := s.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.say(0, "ServiceUnavailable")
	for _, tt := range []struct {
		name  string
		after time.Duration
		asks  int
		err   bool
	}{
		{"they are fresh: nobody is asked", 44 * time.Minute, 1, false},
		{"they are old, but good: they do", 50 * time.Minute, 2, false},
		{"they have ended", time.Hour, 3, true},
	} {
		now = first.Expires.Add(-time.Hour + tt.after)
		got, err := s.Retrieve(t.Context())
		if (err != nil) != tt.err || err == nil && got != first || len(f.asked()) != tt.asks {
			t.Errorf("%s: %v, %v, asked %d times", tt.name, got.AccessKeyID, err, len(f.asked()))
		}
	}
}

func TestARoleThatMayNotBeTaken(t *testing.T) {
	f, cfg := newFake(t, time.Now)
	f.say(0, "AccessDenied")
	_, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}))
	if err == nil || !strings.Contains(err.Error(), wanted.Role) || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("the error does not say which role was refused, and how: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := awsrole.TakeFrom(ctx, awsrole.NewSource(cfg, wanted, time.Now, func(string) {})); !errors.Is(err, context.Canceled) {
		t.Errorf("a job that is stopped: %v", err)
	}
}

// The endpoint answers nobody else, and nothing else.
func TestEndpointRefuses(t *testing.T) {
	_, cfg := newFake(t, time.Now)
	taken, err := awsrole.TakeFrom(t.Context(), awsrole.NewSource(cfg, wanted, time.Now, func(string) {}))
	if err != nil {
		t.Fatal(err)
	}
	address, token := taken.Environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"], taken.Environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
	if u, err := url.Parse(address); err != nil || u.Hostname() != "127.0.0.1" {
		t.Errorf("credentials are served at %s", address)
	}
	for _, tt := range []struct {
		name, method, url, token string
		status                   int
	}{
		{"the tool", "GET", address, token, http.StatusOK},
		{"another process of the machine, without the token", "GET", address, "", http.StatusUnauthorized},
		{"one that guesses", "GET", address, token[1:], http.StatusUnauthorized},
		{"a bearer", "GET", address, "Bearer " + token, http.StatusUnauthorized},
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
			t.Errorf("%s: %s", tt.name, res.Status)
		}
		var given map[string]string
		if has := json.Unmarshal(body, &given) == nil && given["SecretAccessKey"] != ""; has != (tt.status == http.StatusOK) {
			t.Errorf("%s is answered %s", tt.name, body)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get(address); err == nil {
		res.Body.Close()
		t.Error("the role is served after the job")
	}
}
