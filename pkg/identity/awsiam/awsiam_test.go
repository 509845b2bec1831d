package awsiam_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
)

const (
	account = "123456789012"
	roleID  = "AROAEXAMPLEEXAMPLE001"
	role    = "shop-runner"
)

var (
	epoch     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	now       = func() time.Time { return epoch }
	challenge = awsiam.Challenge{Nonce: "fln_n0123456789.0.1795000000.mac", Audience: "fairlead.example", Statement: []byte("fairlead-session-v1\nrunner\n")}
	frankfurt = awsiam.Endpoint{Host: "sts.eu-central-1.amazonaws.com", Region: "eu-central-1", Partition: "aws"}
)

// world has an STS over TLS, which answers for every host, and a verifier that calls
// it.
type world struct {
	sts      *ststest.Server
	via      http.RoundTripper
	verifier *awsiam.Verifier
}

func newWorld(t *testing.T) world {
	t.Helper()
	sts := ststest.New(now)
	via := reach(t, sts)
	return world{sts, via, awsiam.NewVerifier(via, now, awsiam.Options{})}
}

// reach serves h over TLS and returns a transport that connects to it for every host.
func reach(t *testing.T, h http.Handler) http.RoundTripper {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig.ServerName = "example.com" // the name in its certificate
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func provider(c aws.Credentials) aws.CredentialsProvider {
	return credentials.StaticCredentialsProvider{Value: c}
}

func (w world) proof(t *testing.T, c aws.Credentials, e awsiam.Endpoint, ch awsiam.Challenge, at time.Time) awsiam.Proof {
	t.Helper()
	p, err := sign.Proof(t.Context(), provider(c), e, ch, at)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestARunnerProvesItsRole(t *testing.T) {
	w := newWorld(t)
	creds := w.sts.AssumeRole("aws", account, role, roleID, "task-1")
	id, err := w.verifier.Verify(t.Context(), w.proof(t, creds, frankfurt, challenge, epoch), challenge)
	if err != nil {
		t.Fatal(err)
	}
	want := awsiam.Identity{Partition: "aws", Account: account, RoleID: roleID, Role: role, Session: "task-1"}
	if id != want {
		t.Errorf("the identity is %+v, want %+v", id, want)
	}
	if got := id.RoleARN(); got != "arn:aws:iam::123456789012:role/shop-runner" {
		t.Errorf("the role's ARN is %s", got)
	}
	trust, err := awsiam.ParseTrust("arn:aws:iam::123456789012:role/fairlead/shop-runner", roleID, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := trust.Match(id, epoch); err != nil || again != trust {
		t.Errorf("the trust in the role does not match: %+v, %v", again, err)
	}
}

func TestEveryEndpointAcceptsAProof(t *testing.T) {
	w := newWorld(t)
	for _, e := range awsiam.Endpoints() {
		creds := w.sts.AssumeRole(e.Partition, account, role, roleID, "task-1")
		id, err := w.verifier.Verify(t.Context(), w.proof(t, creds, e, challenge, epoch), challenge)
		if err != nil || id.Partition != e.Partition {
			t.Errorf("%s: %+v, %v", e.Host, id, err)
		}
		if got, ok := awsiam.EndpointOf(e.Region, strings.HasPrefix(e.Host, "sts-fips.")); !ok || got != e {
			t.Errorf("the endpoint of %s is %+v", e.Region, got)
		}
	}
	for _, region := range []string{"", "aws-global", "us-iso-east-1", "eu-central-1.evil.example"} {
		if e, ok := awsiam.EndpointOf(region, false); ok {
			t.Errorf("%q has the endpoint %s", region, e.Host)
		}
	}
	if e, ok := awsiam.EndpointOf("us-gov-west-1", true); !ok || e.Host != "sts.us-gov-west-1.amazonaws.com" {
		t.Errorf("the FIPS endpoint of GovCloud is %q", e.Host)
	}
}

func TestAProofIsNotPrinted(t *testing.T) {
	p := awsiam.Proof{Host: "h", AccessKeyID: "ASIAX", SessionToken: "tokentoken", Signature: "sigsig"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(verb, p); strings.Contains(s, "tokentoken") || strings.Contains(s, "sigsig") {
			t.Errorf("the verb %s prints %s", verb, s)
		}
	}
}

func TestOnlyARoleCanSign(t *testing.T) {
	user := aws.Credentials{AccessKeyID: "AKIAEXAMPLEEXAMPLE01", SecretAccessKey: "secret"}
	if _, err := sign.Proof(t.Context(), provider(user), frankfurt, challenge, epoch); err == nil {
		t.Error("a user's static key made a proof")
	}
	gone := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("no metadata") })
	if _, err := sign.Proof(t.Context(), gone, frankfurt, challenge, epoch); err == nil || !strings.Contains(err.Error(), "no metadata") {
		t.Errorf("got %v", err)
	}
}

func TestAudience(t *testing.T) {
	for in, want := range map[string]string{
		"https://Fairlead.Example":         "fairlead.example",
		"https://fairlead.example:443/x":   "fairlead.example",
		"https://fairlead.example:8443":    "fairlead.example:8443",
		"http://127.0.0.1:8080":            "127.0.0.1:8080",
		"http://[::1]:80":                  "[::1]",
		"http://[::1]:81":                  "[::1]:81",
		"https://fairlead.example.":        "",
		"https://user@fairlead.example":    "",
		"https://":                         "",
		"fairlead.example":                 "",
		"https:fairlead.example":           "",
		"https://fairl\u00e9ad.example":    "",
		"https://fairlead.example%0d%0ax/": "",
	} {
		got, err := awsiam.Audience(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("the audience of %q is %q, %v; want %q", in, got, err, want)
		}
	}
}

// reason returns why a proof was refused: "" if it was accepted, "unavailable" if it
// could not be verified.
func reason(err error) string {
	var e *fairlead.Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &e):
		return "error: " + err.Error()
	case e.Kind == fairlead.KindUnavailable:
		return "unavailable"
	case e.Kind == fairlead.KindUnauthenticated:
		return e.Details["reason"]
	}
	return string(e.Kind)
}
