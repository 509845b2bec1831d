package iamtest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
	"github.com/fairlead/fairlead/test/hosts"
	"github.com/fairlead/fairlead/tools/iamsimulator"
	"github.com/fairlead/fairlead/tools/moto"
)

const (
	account = "123456789012"
	region  = "eu-central-1"
	role    = "arn:aws:iam::" + account + ":role/path/"
	queues  = "arn:aws:sqs:" + region + ":" + account + ":"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

// cloud is an account with a guard before its services.
type cloud struct {
	*iamtest.Guard
	t      *testing.T
	urls   map[string]string // of the guarded services
	client *http.Client      // reaches STS

	mu      sync.Mutex
	now     time.Time
	reports []error
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{t: t, now: time.Now(), urls: map[string]string{}}
	simulator := iamsimulator.Start(t)
	t.Cleanup(simulator.Stop)
	c.Guard = iamtest.New(iamtest.Options{Account: account, Region: region, Now: c.time, Simulator: simulator, Server: server.Endpoint(t), Report: func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reports = append(c.reports, err)
	}})
	upstream, err := url.Parse(server.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SQS", "S3", "KMS", "DYNAMODB", "CLOUDWATCH_LOGS", "ECS", "EC2", "IAM"} {
		h, err := c.Handler(name, httputil.NewSingleHostReverseProxy(upstream))
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		c.urls[name] = s.URL
	}
	c.client = hosts.Client(t, map[string]http.Handler{"sts." + region + ".amazonaws.com": c.STS()})
	return c
}

func (c *cloud) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *cloud) later(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lastReport returns the last report and forgets all.
func (c *cloud) lastReport() (last error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.reports); n > 0 {
		last = c.reports[n-1]
	}
	c.reports = nil
	return last
}

// allow returns a policy that allows actions on resources.
func allow(actions []any, resources ...any) iamtest.Policy {
	return iamtest.Policy{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": actions, "Resource": resources}}}
}

// trust returns a trust policy for a role.
func trust(arn string, condition map[string]any) iamtest.Policy {
	return iamtest.Policy{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": []any{"sts:AssumeRole", "sts:TagSession"},
		"Principal": map[string]any{"AWS": arn}, "Condition": condition}}}
}

// with adds a role with these permissions and returns credentials of it.
func (c *cloud) with(name string, policies ...iamtest.Policy) aws.Credentials {
	c.t.Helper()
	c.AddRole(iamtest.Role{ARN: role + name, Policies: policies})
	k, err := c.Give(role+name, "session")
	if err != nil {
		c.t.Fatal(err)
	}
	return k
}

func (c *cloud) config(service string, k aws.Credentials) aws.Config {
	cfg := aws.Config{Region: region, RetryMaxAttempts: 1, Credentials: credentials.NewStaticCredentialsProvider(k.AccessKeyID, k.SecretAccessKey, k.SessionToken)}
	if cfg.BaseEndpoint = aws.String(c.urls[service]); service == "STS" {
		cfg.BaseEndpoint, cfg.HTTPClient = nil, c.client
	}
	if service == "IAM" { // has one endpoint
		cfg.Region = "us-east-1"
	}
	return cfg
}

func (c *cloud) receive(k aws.Credentials, queue string) error {
	_, err := sqs.NewFromConfig(c.config("SQS", k)).ReceiveMessage(c.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("https://sqs." + region + ".amazonaws.com/" + account + "/" + queue)})
	return err
}

// code returns the service's code of an error; "": no error.
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// makeQueues makes queues in the server.
func makeQueues(t *testing.T, names ...string) {
	t.Helper()
	api := sqs.NewFromConfig(aws.Config{Region: region, BaseEndpoint: aws.String(server.Endpoint(t)), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")})
	for _, name := range names {
		if _, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name}); err != nil {
			t.Fatal(err)
		}
	}
}

// A request is passed only with the signature that AWS's signer makes of exactly this
// request, with the secret of a session that has not expired.
func TestWrongSignatureIsRefused(t *testing.T) {
	makeQueues(t, "signed")
	c := newCloud(t)
	k := c.with("poller", allow([]any{"sqs:*"}, "*"))
	const body = `{"QueueUrl":"https://sqs.eu-central-1.amazonaws.com/123456789012/signed"}`
	type request struct {
		key             aws.Credentials
		service, region string
		at              time.Time
		change          func(*http.Request)
	}
	for _, tt := range []struct {
		name   string
		change func(*request)
		want   string
	}{
		{"the signature is right", func(*request) {}, ""},
		{"another secret", func(r *request) { r.key.SecretAccessKey += "x" }, "InvalidSignatureException"},
		{"an unknown key", func(r *request) { r.key.AccessKeyID = "ASIA9999999999999999" }, "UnrecognizedClientException"},
		{"another session token", func(r *request) { r.key.SessionToken += "x" }, "UnrecognizedClientException"},
		{"no session token", func(r *request) { r.key.SessionToken = "" }, "UnrecognizedClientException"},
		{"an hour old", func(r *request) { r.at = r.at.Add(-time.Hour) }, "InvalidSignatureException"},
		{"from the next hour", func(r *request) { r.at = r.at.Add(time.Hour) }, "InvalidSignatureException"},
		{"for another service", func(r *request) { r.service = "sns" }, "InvalidSignatureException"},
		{"for another region", func(r *request) { r.region = "us-east-1" }, "InvalidSignatureException"},
		{"another body", func(r *request) {
			r.change = func(h *http.Request) {
				h.Body = io.NopCloser(strings.NewReader(strings.Replace(body, "signed", "forged", 1)))
			}
		}, "InvalidSignatureException"},
		{"another operation", func(r *request) {
			r.change = func(h *http.Request) { h.Header.Set("X-Amz-Target", "AmazonSQS.PurgeQueue") }
		}, "InvalidSignatureException"},
		{"no signature", func(r *request) { r.change = func(h *http.Request) { h.Header.Del("Authorization") } }, "MissingAuthenticationTokenException"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request{key: k, service: "sqs", region: region, at: c.time()}
			tt.change(&r)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.urls["SQS"]+"/", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Amz-Target", "AmazonSQS.GetQueueAttributes")
			req.Header.Set("Content-Type", "application/x-amz-json-1.0")
			hash := sha256.Sum256([]byte(body))
			if err := v4.NewSigner().SignHTTP(context.Background(), r.key, req, hex.EncodeToString(hash[:]), r.service, r.region, r.at); err != nil {
				t.Fatal(err)
			}
			if r.change != nil {
				r.change(req)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if got := res.Header.Get("X-Amzn-ErrorType"); got != tt.want {
				t.Errorf("status %d with the error %q, want %q", res.StatusCode, got, tt.want)
			}
		})
	}
}

// A presigned URL works for its object and its lifetime, and for no other request.
func TestPresignedURLIsOneRequestForItsLifetime(t *testing.T) {
	c := newCloud(t)
	c.AddBucket("presigned", "")
	k := c.with("uploader", allow([]any{"s3:*"}, "arn:aws:s3:::presigned", "arn:aws:s3:::presigned/own/*"))
	client := s3.NewFromConfig(c.config("S3", k), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := s3.NewFromConfig(aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(server.Endpoint(t)), Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")},
		func(o *s3.Options) { o.UsePathStyle = true }).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("presigned")}); err != nil {
		t.Fatal(err)
	}
	presign := func(key string) string {
		out, err := s3.NewPresignClient(client).PresignPutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("presigned"), Key: &key}, s3.WithPresignExpires(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return out.URL
	}
	put := func(method, url string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte("x")))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	mine := presign("own/a b")
	for _, r := range []struct {
		what, method, url, want string
	}{
		{"the upload", http.MethodPut, mine, ""},
		{"another object", http.MethodPut, strings.Replace(mine, "own/a%20b", "own/b", 1), "SignatureDoesNotMatch"},
		{"another method", http.MethodDelete, mine, "SignatureDoesNotMatch"},
		{"a longer lifetime", http.MethodPut, strings.Replace(mine, "X-Amz-Expires=60", "X-Amz-Expires=6000", 1), "SignatureDoesNotMatch"},
		{"an object that the signer may not write", http.MethodPut, presign("other/a"), "AccessDenied"},
	} {
		if status, text := put(r.method, r.url); (r.want == "") != (status == http.StatusOK) || !strings.Contains(text, "<Code>"+r.want) && r.want != "" {
			t.Errorf("%s: status %d: %s, want the error %q", r.what, status, text, r.want)
		}
	}
	c.later(2 * time.Minute)
	if status, text := put(http.MethodPut, mine); status != http.StatusForbidden {
		t.Errorf("after its lifetime: status %d: %s, want 403", status, text)
	}
}

// STS opens a session for a caller that the role trusts. The session's policy narrows the
// role, its tags fill the role's variables, and it expires.
func TestSessionsHaveTheirPolicyAndTags(t *testing.T) {
	makeQueues(t, "run_a", "run_b")
	c := newCloud(t)
	caller := c.with("caller", allow([]any{"sts:AssumeRole", "sts:TagSession"}, role+"session"))
	stranger := c.with("stranger", allow([]any{"sts:AssumeRole", "sts:TagSession"}, "*"))
	tagged := trust(role+"caller", map[string]any{"StringLike": map[string]any{"aws:RequestTag/runner": "run_*"}})
	c.AddRole(iamtest.Role{ARN: role + "session", Trust: tagged, Policies: []iamtest.Policy{allow([]any{"sqs:ReceiveMessage"}, queues+"${aws:PrincipalTag/runner}")}})
	assume := func(k aws.Credentials, runner, policy string) (aws.Credentials, error) {
		in := &sts.AssumeRoleInput{RoleArn: aws.String(role + "session"), RoleSessionName: aws.String("x"), DurationSeconds: aws.Int32(900)}
		if runner != "" {
			in.Tags = []ststypes.Tag{{Key: aws.String("runner"), Value: &runner}}
		}
		if policy != "" {
			in.Policy = &policy
		}
		out, err := sts.NewFromConfig(c.config("STS", k)).AssumeRole(t.Context(), in)
		if err != nil {
			return aws.Credentials{}, err
		}
		return aws.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken}, nil
	}
	for what, err := range map[string]error{
		"a caller that the role does not trust": func() error { _, err := assume(stranger, "run_a", ""); return err }(),
		"a session without the tag":             func() error { _, err := assume(caller, "", ""); return err }(),
		"a session with another's form of tag":  func() error { _, err := assume(caller, "x", ""); return err }(),
	} {
		if code(err) != "AccessDenied" {
			t.Errorf("%s: %v, want AccessDenied", what, err)
		}
	}
	const onlyB = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sqs:*","Resource":"` + queues + `run_b"}]}`
	for _, r := range []struct {
		what, runner, policy, queue, want string
	}{
		{"a session polls the queue of its tag", "run_a", "", "run_a", ""},
		{"a session polls another's queue", "run_a", "", "run_b", "AccessDeniedException"},
		{"a session policy is narrower than the role", "run_a", onlyB, "run_a", "AccessDeniedException"},
		{"a session policy gives nothing that the role does not", "run_a", onlyB, "run_b", "AccessDeniedException"},
		{"a session policy for its own queue", "run_b", onlyB, "run_b", ""},
	} {
		k, err := assume(caller, r.runner, r.policy)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.receive(k, r.queue); code(err) != r.want {
			t.Errorf("%s: %v, want %q", r.what, err, r.want)
		}
	}
	c.later(-5 * time.Minute) // signatures have the real time, which may differ from the clock by 15 minutes
	k, err := assume(caller, "run_a", "")
	if err != nil {
		t.Fatal(err)
	}
	c.later(14 * time.Minute)
	if err := c.receive(k, "run_a"); err != nil {
		t.Errorf("before the end of the session: %v", err)
	}
	c.later(time.Minute)
	if err := c.receive(k, "run_a"); code(err) != "ExpiredTokenException" {
		t.Errorf("after the end of the session: %v, want ExpiredTokenException", err)
	}
}

// STS answers with the life that the test sets. A session that the test ends is refused as AWS refuses one whose time has
// passed, while a later session of the same name works.
func TestEndedSessionIsRefused(t *testing.T) {
	makeQueues(t, "renewed")
	c := newCloud(t)
	caller := c.with("caller", allow([]any{"sts:AssumeRole"}, role+"session"))
	c.AddRole(iamtest.Role{ARN: role + "session", Trust: trust(role+"caller", map[string]any{}), Policies: []iamtest.Policy{allow([]any{"sqs:ReceiveMessage"}, queues+"renewed")}})
	c.Shorten(role+"session", 4*time.Minute)
	var keys []aws.Credentials
	for range 2 {
		out, err := sts.NewFromConfig(c.config("STS", caller)).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: aws.String(role + "session"), RoleSessionName: aws.String("x"), DurationSeconds: aws.Int32(3600)})
		if err != nil {
			t.Fatal(err)
		}
		if life := out.Credentials.Expiration.Sub(c.time()); life > 4*time.Minute || life < 4*time.Minute-time.Second { // the answer has whole seconds
			t.Errorf("the session expires after %s, want 4m", life)
		}
		keys = append(keys, aws.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken})
	}
	if of := c.Assumed(); len(of) != 2 || of[0].AccessKeyID != keys[0].AccessKeyID || of[1].AccessKeyID != keys[1].AccessKeyID {
		t.Fatalf("the guard knows the sessions %+v, want those of the keys %s and %s", of, keys[0].AccessKeyID, keys[1].AccessKeyID)
	}
	if err := c.receive(keys[0], "renewed"); err != nil {
		t.Errorf("before its end: %v", err)
	}
	c.Expire(keys[0].AccessKeyID)
	for i, want := range []string{"ExpiredTokenException", ""} {
		if err := c.receive(keys[i], "renewed"); code(err) != want {
			t.Errorf("session %d of 2 after the end of the first: %v, want %q", i+1, err, want)
		}
	}
}

// A token of a service account takes a role if the role's trust policy permits it: the token of this provider, for STS, of this
// account, while it is valid. The session has the permissions of the role.
func TestTokenOfServiceAccountTakesItsRole(t *testing.T) {
	c := newCloud(t)
	cluster, other := oidctest.Unserved("https://oidc.eks.eu-central-1.amazonaws.com/id/ABC", c.time), oidctest.Unserved("https://oidc.eks.eu-central-1.amazonaws.com/id/ABC", c.time)
	provider := iamtest.Provider{Issuer: cluster.URL, Keys: cluster.KeySet()}
	c.AddProvider(provider)
	const name, jobs = "oidc.eks.eu-central-1.amazonaws.com/id/ABC", role + "jobs"
	trusting := func(condition map[string]any) iamtest.Role {
		return iamtest.Role{ARN: jobs, Policies: []iamtest.Policy{allow([]any{"sqs:*"}, queues+"jobs")}, Trust: iamtest.Policy{"Version": "2012-10-17", "Statement": []any{map[string]any{
			"Effect": "Allow", "Principal": map[string]any{"Federated": provider.ARN(account)}, "Action": "sts:AssumeRoleWithWebIdentity", "Condition": condition}}}}
	}
	good := map[string]any{"StringEquals": map[string]any{name + ":aud": "sts.amazonaws.com"}, "StringLike": map[string]any{name + ":sub": []any{"system:serviceaccount:fairlead:jobs-d*", "system:serviceaccount:fairlead:jobs-provision"}}}
	c.AddRole(trusting(good))
	take := func(token string) (aws.Credentials, error) {
		out, err := sts.New(sts.Options{Region: region, HTTPClient: c.client}).AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
			RoleArn: aws.String(jobs), RoleSessionName: aws.String("pod"), WebIdentityToken: &token})
		if err != nil {
			return aws.Credentials{}, err
		}
		return aws.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken}, nil
	}
	of := func(account string) map[string]any {
		return map[string]any{"sub": "system:serviceaccount:fairlead:" + account}
	}
	token := cluster.Token("sts.amazonaws.com", of("jobs-deploy"))
	k, err := take(token)
	if err != nil {
		t.Fatal(err)
	}
	makeQueues(t, "jobs", "foreign")
	if err := c.receive(k, "jobs"); err != nil {
		t.Errorf("the session cannot do what its role may: %v", err)
	}
	if err := c.receive(k, "foreign"); code(err) != "AccessDeniedException" {
		t.Errorf("the session does what its role may not: %v", err)
	}
	if a := c.Assumed(); len(a) != 1 || a[0].Subject != "system:serviceaccount:fairlead:jobs-deploy" || a[0].Role != jobs {
		t.Errorf("the assumed roles are %+v", a)
	}
	for what, bad := range map[string]string{
		"another account":               cluster.Token("sts.amazonaws.com", of("agent")),
		"the account of plans":          cluster.Token("sts.amazonaws.com", of("jobs-read-only")),
		"a token for another party":     cluster.Token("https://fairlead.example.com", of("jobs-deploy")),
		"a token that another signed":   other.Token("sts.amazonaws.com", of("jobs-deploy")),
		"a token that is no token":      "x",
		"another namespace's account":   cluster.Token("sts.amazonaws.com", map[string]any{"sub": "system:serviceaccount:default:jobs-deploy"}),
		"an account with a longer name": cluster.Token("sts.amazonaws.com", of("jobs-deploy:x")),
	} {
		if _, err := take(bad); code(err) != "AccessDenied" || c.lastReport() == nil {
			t.Errorf("%s: %v, want a refusal that is reported", what, err)
		}
	}
	c.later(2 * time.Hour)
	if _, err := take(token); code(err) != "AccessDenied" {
		t.Errorf("an expired token: %v, want AccessDenied", err)
	}
	// What the Guard cannot decide is refused and reported.
	for what, condition := range map[string]map[string]any{
		"no condition on the account":              {"StringEquals": map[string]any{name + ":aud": "sts.amazonaws.com"}},
		"another operator":                         {"StringNotEquals": map[string]any{name + ":aud": "sts.amazonaws.com", name + ":sub": "system:serviceaccount:fairlead:jobs-deploy"}},
		"an asterisk without a pattern's operator": {"StringEquals": map[string]any{name + ":aud": "sts.amazonaws.com", name + ":sub": "system:serviceaccount:fairlead:*"}},
	} {
		c.AddRole(trusting(condition))
		c.lastReport()
		if _, err := take(cluster.Token("sts.amazonaws.com", of("jobs-deploy"))); code(err) != "AccessDenied" || c.lastReport() == nil {
			t.Errorf("%s: %v, want a refusal that is reported", what, err)
		}
	}
}

// IAM compares the tags that a queue has in the server, and the path and the boundary of a role. A
// request that makes a queue has its tags in the request. Each service answers with its own error.
func TestTagsAndBoundaryOfTheResourceDecide(t *testing.T) {
	c := newCloud(t)
	const tag, boundary = "aws:ResourceTag/owner", "arn:aws:iam::" + account + ":policy/limits"
	onlyOwn := map[string]any{"Effect": "Deny", "NotAction": []any{"sqs:CreateQueue"}, "Resource": queues + "*", "Condition": map[string]any{"StringNotEquals": map[string]any{tag: "me"}}}
	limited := map[string]any{"Effect": "Allow", "Action": []any{"iam:CreateRole", "iam:AttachRolePolicy"}, "Resource": "arn:aws:iam::" + account + ":role/apps/*", "Condition": map[string]any{"StringEquals": map[string]any{"iam:PermissionsBoundary": boundary}}}
	k := c.with("owner", allow([]any{"sqs:*"}, "*"), iamtest.Policy{"Version": "2012-10-17", "Statement": []any{onlyOwn, limited}})
	admin := c.with("admin", allow([]any{"*"}, "*"))
	queue := func(k aws.Credentials, name, owner string) error {
		_, err := sqs.NewFromConfig(c.config("SQS", k)).CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Tags: map[string]string{"owner": owner}})
		return err
	}
	role := func(k aws.Credentials, name, path, boundary string) error {
		in := &iam.CreateRoleInput{RoleName: &name, Path: &path, AssumeRolePolicyDocument: aws.String("{}")}
		if boundary != "" {
			in.PermissionsBoundary = &boundary
		}
		_, err := iam.NewFromConfig(c.config("IAM", k)).CreateRole(t.Context(), in)
		return err
	}
	attach := func(name string) error {
		_, err := iam.NewFromConfig(c.config("IAM", k)).AttachRolePolicy(t.Context(), &iam.AttachRolePolicyInput{RoleName: &name, PolicyArn: aws.String("arn:aws:iam::aws:policy/AdministratorAccess")})
		return err
	}
	for _, r := range []struct {
		what string
		err  error
		want string
	}{
		{"make a queue with the tag", queue(k, "tagged", "me"), ""},
		{"make a queue with another tag", queue(k, "mistagged", "you"), "AccessDeniedException"},
		{"another makes a queue", queue(admin, "others", "you"), ""},
		{"poll the own queue", c.receive(k, "tagged"), ""},
		{"poll another's queue", c.receive(k, "others"), "AccessDeniedException"},
		{"make a role under the boundary", role(k, "limited", "/apps/", boundary), ""},
		{"make a role without the boundary", role(k, "unlimited", "/apps/", ""), "AccessDenied"},
		{"make a role on another path", role(k, "elsewhere", "/", boundary), "AccessDenied"},
		{"another makes a role on the path", role(admin, "others", "/apps/", ""), ""},
		{"another makes a role with the boundary", role(admin, "root", "/", boundary), ""},
		{"give the own role permissions", attach("limited"), ""},
		{"give a role without the boundary permissions", attach("others"), "AccessDenied"},
		{"give a role on another path permissions", attach("root"), "AccessDenied"},
	} {
		if code(r.err) != r.want {
			t.Errorf("%s: %v, want %q", r.what, r.err, r.want)
		}
	}
	// There is no client of EC2 here.
	const body = "Action=DeleteSecurityGroup&Version=2016-11-15&GroupId=sg-1"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.urls["EC2"]+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(t.Context(), k, req, hex.EncodeToString(hash[:]), "ec2", region, c.time()); err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusForbidden || !strings.HasPrefix(string(text), "<Response><Errors><Error><Code>UnauthorizedOperation</Code>") {
		t.Errorf("EC2 answers %s: %s, %v; want UnauthorizedOperation", res.Status, text, err)
	}
}

// A change of a role counts for the sessions that are open, as on AWS: an update of a stack takes a permission from a function that runs.
func TestChangeOfARoleReachesItsSessions(t *testing.T) {
	makeQueues(t, "changed")
	c := newCloud(t)
	may := allow([]any{"sqs:ReceiveMessage"}, queues+"changed")
	k := c.with("changes", may)
	for _, step := range []struct {
		policies []iamtest.Policy
		want     string
	}{{[]iamtest.Policy{may}, ""}, {nil, "AccessDeniedException"}, {[]iamtest.Policy{may}, ""}} {
		c.AddRole(iamtest.Role{ARN: role + "changes", Policies: step.policies})
		if err := c.receive(k, "changed"); code(err) != step.want {
			t.Errorf("with %d policies the session gets %v, want %q", len(step.policies), err, step.want)
		}
	}
}

// The guard notices a planted mistake in a policy: a role that lost a permission is refused,
// and a role that got one is not. So a test of the wire fails for both.
func TestPlantedPoliciesAreNoticed(t *testing.T) {
	makeQueues(t, "own", "foreign")
	c := newCloud(t)
	for _, r := range []struct {
		what             string
		policy           iamtest.Policy
		own, othersQueue string // codes
	}{
		{"as it should be", allow([]any{"sqs:ReceiveMessage"}, queues+"own"), "", "AccessDeniedException"},
		{"too wide", allow([]any{"sqs:ReceiveMessage"}, queues+"*"), "", ""},
		{"too narrow", allow([]any{"sqs:DeleteMessage"}, queues+"own"), "AccessDeniedException", "AccessDeniedException"},
	} {
		k := c.with("runner", r.policy)
		if err := c.receive(k, "own"); code(err) != r.own {
			t.Errorf("%s: its own queue: %v, want %q", r.what, err, r.own)
		}
		if err := c.receive(k, "foreign"); code(err) != r.othersQueue {
			t.Errorf("%s: another's queue: %v, want %q", r.what, err, r.othersQueue)
		}
	}
	if d, ok := errors.AsType[*iamtest.Denied](c.lastReport()); !ok || d.Action != "sqs:ReceiveMessage" || d.Resource != queues+"foreign" {
		t.Errorf("the last report is %v, want the denied call", d)
	}
}
