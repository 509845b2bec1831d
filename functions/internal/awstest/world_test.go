package awstest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/plane"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
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
	token   string
	config  string // folder of the CLI's
	close   func() // to be called before the test ends, and the functions with it
	roles   *roles
}

// open deploys the stack, starts what AWS does of itself, and puts the control
// plane on the net.
func open(t *testing.T) *world {
	t.Helper()
	tofu := os.Getenv("FAIRLEAD_TOFU")
	if tofu == "" {
		t.Skip("FAIRLEAD_TOFU names no OpenTofu; make test-aws sets it")
	}
	w := &world{account: deploy(t), sts: ststest.New(time.Now), config: t.TempDir()}
	w.registry.who = w.sts.Principal
	authority, proxy := onTheNet(t, map[string]http.Handler{planeHost: w.front(), stsHost: w.sts, registryHost: w.registry,
		"sqs." + region + ".amazonaws.com": w.gates["SQS"].handler, "logs." + region + ".amazonaws.com": w.gates["CLOUDWATCH_LOGS"].handler,
		"*.s3." + region + ".amazonaws.com": w.gates["S3"].handler})
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

// onTheNet serves handlers over TLS under their names, * being any first part, to those who trust the
// authority in the file and go through the proxy.
func onTheNet(t *testing.T, hosts map[string]http.Handler) (authority, proxy string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	for host := range hosts {
		cert.DNSNames = append(cert.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for host, h := range hosts {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		s.StartTLS()
		t.Cleanup(s.Close)
		at[host+":443"] = s.Listener.Addr().String()
	}
	tunnel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, ok := at[r.Host]
		if _, domain, _ := strings.Cut(r.Host, "."); !ok { // each bucket has a name of its own
			address, ok = at["*."+domain]
		}
		if r.Method != http.MethodConnect || !ok {
			t.Errorf("somebody asks for %s %s", r.Method, r.Host)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway) // the test is over
			return
		}
		defer func() { _ = there.Close() }()
		w.WriteHeader(http.StatusOK)
		here, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = here.Close() }()
		go func() {
			_, _ = io.Copy(there, io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), here))
		}() // ends with the connections
		_, _ = io.Copy(here, there)
	}))
	t.Cleanup(tunnel.Close)
	return authority, tunnel.URL
}

// cli runs the CLI as the vendor and returns what it printed. Any other exit
// code than 0 fails the test.
func (w *world) cli(args ...string) []byte {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(w.t, "fairlead"), args...)
	cmd.Env = append([]string{"FAIRLEAD_URL=https://" + planeHost, "FAIRLEAD_TOKEN=" + w.token, "FAIRLEAD_CONFIG_DIR=" + w.config}, w.environ...)
	cmd.Dir = "../../.."
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("fairlead %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
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
