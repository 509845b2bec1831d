package awssession_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/tools/moto"
)

var server moto.Server

func TestMain(m *testing.M) {
	code := m.Run()
	server.Stop()
	os.Exit(code)
}

var places = awssession.Places{Partition: "aws", Region: "eu-central-1", Account: "123456789012",
	QueuePrefix: "fairlead-prod-", LogGroupPrefix: "/fairlead-prod/install/", ArtifactPrefix: "fairlead-prod/app/", CancelTable: "fairlead-prod-cancels",
	Images: awssession.Images{Project: "fairlead-prod-image-build", Bucket: "builds-1a2b", LogGroup: "/fairlead-prod/image-build"}}

var (
	session = identity.Scope{Runner: "run_a", Queue: "runner-run_a"}
	attempt = identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 3}
)

// The test compares the complete policies of a session, an attempt and a publisher.
func TestPolicyIsExact(t *testing.T) {
	for name, tt := range map[string]struct {
		scope identity.Scope
		want  string
	}{
		"a session polls its queue": {session, `{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Action":["sqs:GetQueueUrl","sqs:ReceiveMessage","sqs:DeleteMessage","sqs:ChangeMessageVisibility"],"Resource":"arn:aws:sqs:eu-central-1:123456789012:fairlead-prod-runner-run_a-q"}]}`},
		"an attempt writes its log and fetches its app": {attempt, `{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Action":["logs:CreateLogStream","logs:PutLogEvents"],"Resource":"arn:aws:logs:eu-central-1:123456789012:log-group:/fairlead-prod/install/ins_a:log-stream:job_a/3"},` +
			`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/*"},` +
			`{"Effect":"Allow","Action":["ecr:GetAuthorizationToken"],"Resource":"*"},` +
			`{"Effect":"Allow","Action":["dynamodb:GetItem"],"Resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/fairlead-prod-cancels",` +
			`"Condition":{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["ins_a/job_a/3"]}}}]}`},
		"a warm step reads its marker": {identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Warm: "wrm_a"}, `{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Action":["dynamodb:GetItem"],"Resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/fairlead-prod-cancels",` +
			`"Condition":{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["ins_a/wrm_a/1"]}}}]}`},
		"an attempt whose runner has no budget of log bytes fetches its app": {identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Job: "job_a", Epoch: 3, NoLog: true}, `{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/*"},` +
			`{"Effect":"Allow","Action":["ecr:GetAuthorizationToken"],"Resource":"*"},` +
			`{"Effect":"Allow","Action":["dynamodb:GetItem"],"Resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/fairlead-prod-cancels",` +
			`"Condition":{"ForAllValues:StringEquals":{"dynamodb:LeadingKeys":["ins_a/job_a/3"]}}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := awssession.Policy(places, tt.scope)
			if err != nil || got != tt.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	if got, err := awssession.PublishPolicy(places, "app_a"); err != nil || got != `{"Version":"2012-10-17","Statement":[`+
		`{"Effect":"Allow","Action":["ecr:BatchCheckLayerAvailability","ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:InitiateLayerUpload",`+
		`"ecr:UploadLayerPart","ecr:CompleteLayerUpload","ecr:PutImage"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/*"},`+
		`{"Effect":"Deny","Action":["ecr:InitiateLayerUpload","ecr:UploadLayerPart","ecr:CompleteLayerUpload","ecr:PutImage"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/*/built"},`+
		`{"Effect":"Allow","Action":["ecr:GetAuthorizationToken"],"Resource":"*"}]}` {
		t.Errorf("the policy for publishing is %s, %v", got, err)
	}
	if got, err := awssession.BuildPolicy(places, "app_a", "web"); err != nil || got != `{"Version":"2012-10-17","Statement":[`+
		`{"Effect":"Allow","Action":["ecr:BatchCheckLayerAvailability","ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:InitiateLayerUpload",`+
		`"ecr:UploadLayerPart","ecr:CompleteLayerUpload","ecr:PutImage"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/web/built"},`+
		`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability"],"Resource":"arn:aws:ecr:eu-central-1:123456789012:repository/fairlead-prod/app/app_a/web"},`+
		`{"Effect":"Allow","Action":["ecr:GetAuthorizationToken"],"Resource":"*"}]}` {
		t.Errorf("the policy of a build is %s, %v", got, err)
	}
	if got, err := awssession.ImageBuildPolicy(places, "app_a", "job_a", 3); err != nil || got != `{"Version":"2012-10-17","Statement":[`+
		`{"Effect":"Allow","Action":["codebuild:StartBuild","codebuild:BatchGetBuilds","codebuild:StopBuild"],"Resource":"arn:aws:codebuild:eu-central-1:123456789012:project/fairlead-prod-image-build"},`+
		`{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject","s3:DeleteObject"],"Resource":"arn:aws:s3:::builds-1a2b/builds/app_a/job_a/3/*"},`+
		`{"Effect":"Allow","Action":["s3:GetObject"],"Resource":"arn:aws:s3:::builds-1a2b/builds/app_a/job_a/*/build"},`+
		`{"Effect":"Allow","Action":["logs:GetLogEvents"],"Resource":"arn:aws:logs:eu-central-1:123456789012:log-group:/fairlead-prod/image-build:log-stream:app_a/job_a/3/*"}]}` {
		t.Errorf("the policy of an image's build is %s, %v", got, err)
	}
	for _, id := range []fairlead.JobID{"", "*", "job_*", "job_a/../job_b", "${aws:userid}"} {
		if got, err := awssession.ImageBuildPolicy(places, "app_a", id, 3); err == nil {
			t.Errorf("ImageBuildPolicy of %q returns %s, want an error", id, got)
		}
	}
	none := places
	none.Images = awssession.Images{}
	for name, policy := range map[string]func() (string, error){
		"no epoch":   func() (string, error) { return awssession.ImageBuildPolicy(places, "app_a", "job_a", 0) },
		"a wildcard": func() (string, error) { return awssession.ImageBuildPolicy(places, "app_*", "job_a", 1) },
		"no project": func() (string, error) { return awssession.ImageBuildPolicy(none, "app_a", "job_a", 1) },
	} {
		if got, err := policy(); err == nil {
			t.Errorf("%s: ImageBuildPolicy returns %s, want an error", name, got)
		}
	}
	for _, component := range []string{"", "*", "web/*", "../web", "web?", "${aws:PrincipalTag/x}", "Web"} {
		if got, err := awssession.BuildPolicy(places, "app_a", component); err == nil {
			t.Errorf("BuildPolicy of %q returns %s, want an error", component, got)
		}
	}
	for _, app := range []fairlead.AppID{"", "*", "app_*", "app_a/../app_b", "${aws:PrincipalTag/x}"} {
		if got, err := awssession.PublishPolicy(places, app); err == nil {
			t.Errorf("PublishPolicy(%q) returns %s, want an error", app, got)
		}
	}
	stream := cloudwatch.StreamName(joblog.Stream{Job: "job_a", Epoch: 3})
	if got, _ := awssession.Policy(places, attempt); !strings.Contains(got, ":log-stream:"+stream+`"`) {
		t.Errorf("the log stream is %s, but the policy is %s", stream, got)
	}
}

// With the longest possible names the policy stays below the limits: STS accepts 2,048 characters, and packs them
// with the tags.
func TestPolicyIsBelowLimits(t *testing.T) {
	ids := fairlead.RandomIDs(time.Now)
	long := places
	long.Partition, long.Region = "aws-us-gov", "ap-southeast-99"
	long.QueuePrefix = strings.Repeat("x", 38)
	long.CancelTable = strings.Repeat("x", 64)
	long.LogGroupPrefix, long.ArtifactPrefix = "/"+strings.Repeat("x", 99), strings.Repeat("x", 100)
	runner := fairlead.RunnerID(ids(fairlead.PrefixRunner))
	s := identity.Scope{Runner: runner, Install: fairlead.InstallID(ids(fairlead.PrefixInstall)), App: fairlead.AppID(ids(fairlead.PrefixApp)),
		Queue: "runner-" + string(runner), Job: fairlead.JobID(ids(fairlead.PrefixJob)), Epoch: 1 << 40}
	got, err := awssession.Policy(long, s)
	if err != nil || len(got) > awssession.MaxPolicy*2/3 {
		t.Errorf("the policy has %d characters, %v", len(got), err)
	}
	long.Images = awssession.Images{Project: strings.Repeat("x", 100), Bucket: strings.Repeat("x", 63), LogGroup: "/" + strings.Repeat("x", 99)}
	if got, err := awssession.ImageBuildPolicy(long, s.App, s.Job, s.Epoch); err != nil || len(got) > awssession.MaxPolicy*2/3 {
		t.Errorf("the policy of an image's build has %d characters, %v", len(got), err)
	}
	if n := len(awssession.SessionName(s)); n > 64 {
		t.Errorf("the session's name has %d characters, want at most 64", n)
	}
	long.QueuePrefix += "x"
	if got, err := awssession.Policy(long, s); err == nil {
		t.Errorf("a queue whose name package sqs replaces by a hash: got %s, want an error", got)
	}
}

// No value of a scope may be a wildcard or a variable, or change the structure of the policy.
func TestPolicyRefusesInvalidNames(t *testing.T) {
	for name, change := range map[string]func(*identity.Scope){
		"a wildcard for the queue":   func(s *identity.Scope) { s.Queue = "*" },
		"a variable in the queue":    func(s *identity.Scope) { s.Queue = "${aws:userid}" },
		"a quote in the queue":       func(s *identity.Scope) { s.Queue = "a\",\"b" },
		"a wildcard for the install": func(s *identity.Scope) { s.Install = "*" },
		"a variable in the install":  func(s *identity.Scope) { s.Install = "ins_${aws:PrincipalTag/x}" },
		"a stream in the install":    func(s *identity.Scope) { s.Install = "ins_a:log-stream:x" },
		"a wildcard in the job":      func(s *identity.Scope) { s.Job = "job_*" },
		"a placeholder in the job":   func(s *identity.Scope) { s.Job = "job_a?" },
		"no epoch":                   func(s *identity.Scope) { s.Epoch = 0 },
		"no runner":                  func(s *identity.Scope) { s.Runner = "" },
		"no app":                     func(s *identity.Scope) { s.App = "" },
		"a job without an install":   func(s *identity.Scope) { s.Install, s.App = "", "" },
		"a warm step and a job":      func(s *identity.Scope) { s.Warm = "wrm_a" },
		"a wildcard for a warm step": func(s *identity.Scope) {
			*s = identity.Scope{Runner: "run_a", Install: "ins_a", App: "app_a", Warm: "*"}
		},
		"a warm step of no install": func(s *identity.Scope) { *s = identity.Scope{Runner: "run_a", App: "app_a", Warm: "wrm_a"} },
		"neither a queue nor a job": func(s *identity.Scope) { s.Queue, s.Job = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := attempt
			s.Queue = session.Queue
			change(&s)
			if got, err := awssession.Policy(places, s); err == nil {
				t.Errorf("Policy returns %s, want an error", got)
			}
		})
	}
}

func granter(t *testing.T, cfg aws.Config) *awssession.Granter {
	t.Helper()
	g, err := awssession.New(cfg, awssession.Options{Role: "arn:aws:iam::123456789012:role/fairlead-prod-runner-session-eu-central-1",
		QueuePrefix: places.QueuePrefix, LogGroupPrefix: places.LogGroupPrefix, ArtifactPrefix: places.ArtifactPrefix,
		CancelTable: places.CancelTable, CancelURL: "https://dynamodb.eu-central-1.amazonaws.com", Images: places.Images})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// fake serves s over TLS. The returned configuration connects to it for every host.
func fake(t *testing.T, s *ststest.Server) aws.Config {
	srv := httptest.NewTLSServer(s)
	t.Cleanup(srv.Close)
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"} // the name in its certificate
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	t.Cleanup(tr.CloseIdleConnections)
	c := s.AssumeRole("aws", "123456789012", "runnerapi", "AROAEXAMPLEEXAMPLE001", "function")
	return aws.Config{Region: "eu-central-1", HTTPClient: &http.Client{Transport: tr}, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)}
}

// tagsIn returns the tags of a request to STS.
func tagsIn(form url.Values) string {
	tags := map[string]string{}
	for i := 1; i <= 4; i++ {
		if k := form.Get(fmt.Sprintf("Tags.member.%d.Key", i)); k != "" {
			tags[k] = form.Get(fmt.Sprintf("Tags.member.%d.Value", i))
		}
	}
	return fmt.Sprint(tags)
}

// Grant assumes the role with the session policy, and with a name and tags that identify the runner.
func TestGrantAssumesRoleWithPolicyAndTags(t *testing.T) {
	s := ststest.New(time.Now)
	var form url.Values
	code := ""
	s.LetAssume(func(f url.Values) (time.Duration, string) { form = f; return 15 * time.Minute, code })
	g := granter(t, fake(t, s))
	a, err := g.Grant(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	want, err := awssession.Policy(places, session)
	if err != nil {
		t.Fatal(err)
	}
	if form.Get("Policy") != want || form.Get("RoleSessionName") != "run_a" || form.Get("DurationSeconds") != "900" || form.Has("PolicyArns.member.1.arn") ||
		tagsIn(form) != "map[fairlead-runner:run_a]" || form.Has("TransitiveTagKeys.member.1") {
		t.Errorf("the request is %v", form)
	}
	if left := time.Until(a.Expires); left < 14*time.Minute || left > 15*time.Minute || a.SecretAccessKey == "" || a.SessionToken == "" {
		t.Errorf("got credentials %s for %s", a.AccessKeyID, left)
	}
	if a.Region != "eu-central-1" || a.QueuePrefix != "fairlead-prod-" || a.Queue != "runner-run_a" || a.LogGroup != "" || a.Repository != "" {
		t.Errorf("got access to %+v", a)
	}
	if a, err = g.Grant(t.Context(), attempt); err != nil || a.LogGroup != "/fairlead-prod/install/ins_a" || a.Repository != "fairlead-prod/app/app_a" || a.Queue != "" {
		t.Errorf("an attempt got access to %+v, %v", a, err)
	}
	if got := tagsIn(form); form.Get("RoleSessionName") != "run_a@ins_a" || got != "map[fairlead-app:app_a fairlead-install:ins_a fairlead-runner:run_a]" {
		t.Errorf("the session of an attempt is %s with %s", form.Get("RoleSessionName"), got)
	}
	a, err = g.BuildImage(t.Context(), "app_a", "job_a", 3)
	image := identity.ImagePlace{Project: "fairlead-prod-image-build", Bucket: "builds-1a2b", Prefix: "builds/app_a/job_a/3/", LogGroup: "/fairlead-prod/image-build", LogStream: "app_a/job_a/3"}
	if err != nil || a.Image != image || a.Repository != "" || form.Get("DurationSeconds") != "3600" || form.Get("RoleSessionName") != "app_a" || tagsIn(form) != "map[fairlead-app:app_a]" {
		t.Errorf("the build of an image got %+v, %v with %v", a.Image, err, form)
	}
	code = "AccessDenied"
	if _, err := g.Grant(t.Context(), session); err == nil || strings.Contains(err.Error(), a.SecretAccessKey) {
		t.Errorf("STS refuses the request: got error %v", err)
	}
}

func TestGranterConforms(t *testing.T) {
	endpoint := server.Endpoint(t)
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIAVENDOR", "vendor", "")}
	accesstest.Run(t, accesstest.Harness{Open: func(t *testing.T) identity.Granter { return granter(t, cfg) }})
}

// Moto is an independent implementation of STS. It accepts the request, and its credentials are those of the session.
func TestGrantedCredentialsWorkInMoto(t *testing.T) {
	endpoint := server.Endpoint(t)
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIAVENDOR", "vendor", "")}
	a, err := granter(t, cfg).Grant(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Credentials = credentials.NewStaticCredentialsProvider(a.AccessKeyID, a.SecretAccessKey, a.SessionToken)
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil || !strings.HasSuffix(*who.Arn, "/run_a") {
		t.Errorf("the caller identity is %v, %v", who, err)
	}
	if _, err := awssession.New(cfg, awssession.Options{Role: "arn:aws:iam::123456789012:user/x"}); err == nil {
		t.Error("New accepts the ARN of a user as the session role")
	}
}
