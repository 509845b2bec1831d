package local_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/local"
)

const (
	acmeRole   = "arn:aws:iam::123456789012:role/fairlead/acme-runner"
	acmeRoleID = "AROAEXAMPLEEXAMPLE001"
)

// awsWorld is a control plane and a test STS, which it calls over TLS.
type awsWorld struct {
	t   *testing.T
	sts *ststest.Server
	url string
	c   *client.Client
}

func newAWSWorld(t *testing.T, publicURL string) awsWorld {
	t.Helper()
	w := awsWorld{t: t, sts: ststest.New(time.Now)}
	srv := httptest.NewTLSServer(w.sts)
	t.Cleanup(srv.Close)
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"}
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	s, err := local.Start(t.Context(), local.Options{Data: t.TempDir(), Listen: "127.0.0.1:0", URL: publicURL, STS: tr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	token, err := os.ReadFile(s.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	if w.c, err = client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{Retries: -1}); err != nil {
		t.Fatal(err)
	}
	w.url = s.URL()
	return w
}

func (w awsWorld) runner(in wire.CreateRunnerRequest) wire.Runner {
	w.t.Helper()
	r, err := w.c.CreateRunner(w.t.Context(), in)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// request returns the session request of an agent whose configuration has the control
// plane's URL believed.
func (w awsWorld) request(runner, believed string, creds aws.Credentials) wire.SessionRequest {
	w.t.Helper()
	ch, err := w.c.Challenge(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	audience, err := awsiam.Audience(believed)
	if err != nil {
		w.t.Fatal(err)
	}
	e, _ := awsiam.EndpointOf("eu-central-1", false)
	in := wire.SessionRequest{RunnerID: runner, Nonce: ch.Nonce, Instance: "task", Version: "1", Capacity: 1}
	p, err := sign.Proof(w.t.Context(), credentials.StaticCredentialsProvider{Value: creds}, e,
		awsiam.Challenge{Nonce: ch.Nonce, Audience: audience, Statement: wire.SessionStatement(ch.Nonce, runner, "task")}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	in.AWSIAM = &wire.AWSIAMProof{Host: p.Host, AccessKeyID: p.AccessKeyID, SessionToken: p.SessionToken, Date: p.Date, Signature: p.Signature}
	return in
}

func (w awsWorld) role(name, id string) aws.Credentials {
	return w.sts.AssumeRole("aws", "123456789012", name, id, "task-1")
}

func TestRoleProofOpensASession(t *testing.T) {
	w := newAWSWorld(t, "")
	r := w.runner(wire.CreateRunnerRequest{Name: "acme", AWSRole: acmeRole, AWSRoleID: acmeRoleID})
	in := w.request(r.ID, w.url, w.role("acme-runner", acmeRoleID))
	s, err := w.c.CreateSession(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.WithToken(s.Token).HeartbeatSession(t.Context(), wire.SessionHeartbeat{Capacity: 1, Running: []string{}}); err != nil {
		t.Errorf("heartbeat of the session: %v", err)
	}
	if _, err := w.c.CreateSession(t.Context(), in); !strings.HasSuffix(problem(err).Type, "session-refused") {
		t.Errorf("a replayed proof: %v", err)
	}
	got, err := w.c.GetRunner(t.Context(), "acme")
	if err != nil || len(got.Sessions) != 1 || got.AWS.RoleARN != acmeRole || got.AWS.RoleID != acmeRoleID {
		t.Errorf("runner %+v, %v", got, err)
	}
}

// problem returns the control plane's problem in err; the zero value if there is none.
func problem(err error) wire.Problem {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Problem
	}
	return wire.Problem{}
}

func TestWrongRoleProofIsRefused(t *testing.T) {
	w := newAWSWorld(t, "https://Fairlead.Example/")
	const we = "https://fairlead.example"
	r := w.runner(wire.CreateRunnerRequest{Name: "acme", AWSRole: acmeRole, AWSRoleID: acmeRoleID})
	waiting := w.runner(wire.CreateRunnerRequest{Name: "waiting", AWSRole: acmeRole})
	plain := w.runner(wire.CreateRunnerRequest{Name: "plain"})
	acme := w.role("acme-runner", acmeRoleID)
	if _, err := w.c.CreateSession(t.Context(), w.request(r.ID, we, acme)); err != nil {
		t.Fatalf("the runner's own role: %v", err)
	}
	for name, row := range map[string]struct {
		in     wire.SessionRequest
		reason string
	}{
		"a proof for another control plane":        {w.request(r.ID, "https://evil.example", acme), "signature"},
		"a proof for the listen address":           {w.request(r.ID, w.url, acme), "signature"},
		"the role was created again with its name": {w.request(r.ID, we, w.role("acme-runner", "AROAOTHEROTHEROTHER01")), "role-recreated"},
		"another role of the account":              {w.request(r.ID, we, w.role("admin", "AROAADMINADMINADMIN1")), "role"},
		"a role of that name in another account":   {w.request(r.ID, we, w.sts.AssumeRole("aws", "999999999999", "acme-runner", acmeRoleID, "task-1")), "account"},
		"another role for a runner that waits":     {w.request(waiting.ID, we, w.role("admin", "AROAADMINADMINADMIN1")), "role"},
		"a user": {w.request(r.ID, we, w.sts.Give(ststest.Principal{Account: "123456789012", UserID: "AIDAEXAMPLEEXAMPLE001",
			ARN: "arn:aws:iam::123456789012:user/acme-runner"})), "not-a-role"},
		"a runner without a role":      {w.request(plain.ID, we, acme), ""},
		"a runner that does not exist": {w.request("run_x", we, acme), ""},
		"a runner with a key's syntax": {w.request("run_x#AGENT", we, acme), ""},
		"a proof for another runner":   {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.RunnerID = waiting.ID }), "signature"},
		"a proof for another instance": {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.Instance = "mine" }), "signature"},
		"a nonce of another request": {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) {
			in.Nonce = w.request(r.ID, we, acme).Nonce
		}), "signature"},
		"a forged nonce":     {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.Nonce = "fln_n0123456789.0.9999999999.mac" }), ""},
		"another host":       {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.AWSIAM.Host = "evil.example" }), "host"},
		"two proofs at once": {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.PublicKey = make([]byte, 32) }), ""},
		"no proof at all":    {change(w.request(r.ID, we, acme), func(in *wire.SessionRequest) { in.AWSIAM = nil }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := w.c.CreateSession(t.Context(), row.in)
			p := problem(err)
			if s.Token != "" || p.Status != http.StatusUnauthorized || !strings.HasSuffix(p.Type, "session-refused") || p.Details["reason"] != row.reason {
				t.Errorf("got %v (%+v), want a refusal with reason %q", err, p, row.reason)
			}
			if b, _ := json.Marshal(p); row.in.AWSIAM != nil && strings.Contains(string(b), row.in.AWSIAM.SessionToken) {
				t.Errorf("the answer holds the token: %s", b)
			}
		})
	}
	if got, err := w.c.GetRunner(t.Context(), "waiting"); err != nil || got.AWS.RoleID != "" {
		t.Errorf("role of the waiting runner: %+v, %v", got.AWS, err)
	}
}

func change(in wire.SessionRequest, f func(*wire.SessionRequest)) wire.SessionRequest {
	f(&in)
	return in
}

// Many roles send the first proof at the same time. Exactly one becomes the runner's
// role.
func TestOneRoleIsPinned(t *testing.T) {
	w := newAWSWorld(t, "")
	r := w.runner(wire.CreateRunnerRequest{Name: "acme", AWSRole: acmeRole})
	requests := make([]wire.SessionRequest, 8)
	for i := range requests {
		requests[i] = w.request(r.ID, w.url, w.role("acme-runner", acmeRoleID[:len(acmeRoleID)-1]+string(rune('A'+i))))
	}
	made := make(chan error, len(requests))
	for _, in := range requests {
		go func() {
			_, err := w.c.CreateSession(t.Context(), in)
			made <- err
		}()
	}
	won := 0
	for range requests {
		err := <-made
		if err == nil {
			won++
		} else if problem(err).Details["reason"] != "role-recreated" {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d roles got a session, want 1", won)
	}
}

func TestInvalidRoleIsRefused(t *testing.T) {
	w := newAWSWorld(t, "")
	for name, in := range map[string]wire.CreateRunnerRequest{
		"a star as account":     {Name: "a", AWSRole: "arn:aws:iam::*:role/x", AWSRoleID: acmeRoleID},
		"only an ID":            {Name: "a", AWSRoleID: acmeRoleID},
		"the ID of a user":      {Name: "a", AWSRole: acmeRole, AWSRoleID: "AIDAEXAMPLEEXAMPLE001"},
		"an ARN without a name": {Name: "a", AWSRole: "arn:aws:iam::123456789012:role/"},
	} {
		if _, err := w.c.CreateRunner(t.Context(), in); !strings.HasSuffix(problem(err).Type, "invalid-trust") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
