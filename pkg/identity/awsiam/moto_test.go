package awsiam_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/tools/moto"
)

// at sends a request to the server at u and leaves the Host header as it is.
func at(u *url.URL) answers {
	return func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Host, r.URL.Scheme, r.URL.Host = r.URL.Host, u.Scheme, u.Host
		return http.DefaultTransport.RoundTrip(r)
	}
}

// motoCall calls an action of STS or IAM of moto and reads its answer.
func motoCall(t *testing.T, u *url.URL, service string, form url.Values, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+"/", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAX/20261121/eu-central-1/"+service+"/aws4_request, SignedHeaders=host, Signature=x")
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("moto: %s: %s %s, %v", form.Get("Action"), a.Status, b, err)
	}
	if err := xml.Unmarshal(b, into); err != nil {
		t.Fatalf("moto: %s: %s: %v", form.Get("Action"), b, err)
	}
}

// motoChecks sets the number of requests after which moto verifies signatures.
func motoChecks(t *testing.T, u *url.URL, after string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+"/moto-api/reset-auth", strings.NewReader(after))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Fatalf("moto: reset-auth: %s", a.Status)
	}
}

// moto recomputes signatures with botocore, which is independent of this package and of
// the SDK that signs.
func TestAProofIsValidAtAnotherSTS(t *testing.T) {
	server := moto.Server{Own: true} // its check of signatures applies to all its clients, so it is not shared
	defer server.Stop()
	u, err := url.Parse(server.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	motoChecks(t, u, "inf")
	var made struct {
		Role struct {
			RoleID string `xml:"RoleId"`
			ARN    string `xml:"Arn"`
		} `xml:"CreateRoleResult>Role"`
	}
	motoCall(t, u, "iam", url.Values{"Action": {"CreateRole"}, "Version": {"2010-05-08"}, "RoleName": {role}, "Path": {"/fairlead/"},
		"AssumeRolePolicyDocument": {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ecs-tasks.amazonaws.com"},"Action":"sts:AssumeRole"}]}`}}, &made)
	var taken struct {
		Key    string `xml:"AssumeRoleResult>Credentials>AccessKeyId"`
		Secret string `xml:"AssumeRoleResult>Credentials>SecretAccessKey"`
		Token  string `xml:"AssumeRoleResult>Credentials>SessionToken"`
	}
	motoCall(t, u, "sts", url.Values{"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {made.Role.ARN}, "RoleSessionName": {"task-1"}}, &taken)
	creds := aws.Credentials{AccessKeyID: taken.Key, SecretAccessKey: taken.Secret, SessionToken: taken.Token}
	trust, err := awsiam.ParseTrust(made.Role.ARN, made.Role.RoleID, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	motoChecks(t, u, "0")
	v := awsiam.NewVerifier(at(u), time.Now, awsiam.Options{})
	var w world
	p := w.proof(t, creds, frankfurt, challenge, time.Now())
	id, err := v.Verify(t.Context(), p, challenge)
	if err != nil {
		t.Fatalf("%v (%v)", err, errors.Unwrap(err))
	}
	if id.Session != "task-1" || id.Role != role {
		t.Errorf("the identity is %+v", id)
	}
	if _, err := trust.Match(id, time.Now()); err != nil {
		t.Errorf("the trust in the created role does not match %+v: %v", id, err)
	}
	for what, change := range map[string]func(*awsiam.Proof, *awsiam.Challenge){
		"another signature": func(p *awsiam.Proof, _ *awsiam.Challenge) { p.Signature = strings.Repeat("0", 64) },
		"another nonce":     func(_ *awsiam.Proof, c *awsiam.Challenge) { c.Nonce += "x" },
		"another audience":  func(_ *awsiam.Proof, c *awsiam.Challenge) { c.Audience = "evil.example" },
		"another statement": func(_ *awsiam.Proof, c *awsiam.Challenge) { c.Statement = nil },
	} {
		p, c := p, challenge
		change(&p, &c)
		var status int
		seen := answers(func(r *http.Request) (*http.Response, error) {
			a, err := at(u)(r)
			if err == nil {
				status = a.StatusCode
			}
			return a, err
		})
		// moto's errors differ from those of STS, so the reason is unknown.
		id, err := awsiam.NewVerifier(seen, time.Now, awsiam.Options{}).Verify(t.Context(), p, c)
		if err == nil || id != (awsiam.Identity{}) || status != http.StatusForbidden {
			t.Errorf("%s: status %d, %+v, %v", what, status, id, err)
		}
	}
}
