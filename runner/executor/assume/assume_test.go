package assume_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/assume"
	"github.com/fairlead/fairlead/runner/executor/cloudtest"
)

// The request to STS has the role's settings, goes to the configured region and
// asks for one hour. Credentials with less than Left remaining are renewed.
func TestRoleIsAssumed(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/manager"
	for _, tc := range []struct {
		name  string
		auth  runnerspec.AWSAuth
		life  time.Duration
		at    string // region of the STS
		id    string // external
		named string // session
		twice int    // sessions, when credentials are asked for twice
	}{
		{"only the role is set", runnerspec.AWSAuth{RoleARN: role}, time.Hour, "eu-west-1", "", "fairlead-run_1", 1},
		{"all settings", runnerspec.AWSAuth{RoleARN: role, ExternalID: "acme", SessionName: "mine", STSRegion: "eu-central-1"}, time.Hour, "eu-central-1", "acme", "mine", 1},
		{"credentials last longer than Left", runnerspec.AWSAuth{RoleARN: role}, assume.Left + time.Minute, "eu-west-1", "", "fairlead-run_1", 1},
		{"credentials last less than Left", runnerspec.AWSAuth{RoleARN: role}, assume.Left - time.Minute, "eu-west-1", "", "fairlead-run_1", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sts := ststest.New(time.Now)
			var asked []url.Values
			sts.LetAssume(func(form url.Values) (time.Duration, string) {
				asked = append(asked, form)
				return tc.life, ""
			})
			self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
			cfg := aws.Config{Region: "us-east-1", HTTPClient: &http.Client{Transport: cloudtest.Hosts{"sts." + tc.at + ".amazonaws.com": sts}},
				Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
			out := assume.Role(cfg, tc.auth, "eu-west-1", "fairlead-run_1")
			for range 2 {
				c, err := out.Credentials.Retrieve(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if who, ok := sts.Principal(c.AccessKeyID); !ok || !strings.HasPrefix(who.ARN, "arn:aws:sts::123456789012:assumed-role/manager/") {
					t.Errorf("the credentials are those of %q", who.ARN)
				}
			}
			if len(asked) != tc.twice {
				t.Errorf("the role was assumed %d times", len(asked))
			}
			f := asked[0]
			if f.Get("RoleArn") != role || f.Get("DurationSeconds") != "3600" || f.Get("RoleSessionName") != tc.named || f.Get("ExternalId") != tc.id {
				t.Errorf("STS was asked for %v", f)
			}
		})
	}
}

// STS does not tell whether the principal or the external id of a trust policy refuses. So the error names the role, the
// external id that the request had, both parts of the trust policy, and the field to change. Only a refusal of the role is
// permanent.
func TestRefusedRoleIsExplained(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/manager"
	for _, tc := range []struct {
		name, id, code string
		want           []string // parts of the message; nil: no *Refused
	}{
		{"another external id", "acme", "AccessDenied", []string{role + " cannot be assumed with the external id acme", "must name the control plane's AWS identity", "must not require another one (sts:ExternalId)",
			"Correct the trust policy, or change external_id beside role_arn in the runner's configuration", "api error AccessDenied"}},
		{"no external id", "", "AccessDenied", []string{role + " cannot be assumed without an external id", "must name the control plane's AWS identity", "must not require one (sts:ExternalId)",
			"Correct the trust policy, or set external_id beside role_arn in the runner's configuration", "api error AccessDenied"}},
		{"the control plane's own credentials expired", "acme", "ExpiredTokenException", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sts := ststest.New(time.Now)
			sts.LetAssume(func(url.Values) (time.Duration, string) { return 0, tc.code })
			self := sts.AssumeRole("aws", "999999999999", "control-plane", "AROACONTROLPLANE00001", "server")
			cfg := aws.Config{Region: "eu-west-1", HTTPClient: &http.Client{Transport: cloudtest.Hosts{"sts.eu-west-1.amazonaws.com": sts}},
				Credentials: credentials.NewStaticCredentialsProvider(self.AccessKeyID, self.SecretAccessKey, self.SessionToken)}
			_, err := assume.Role(cfg, runnerspec.AWSAuth{RoleARN: role, ExternalID: tc.id}, "", "fairlead-run_1").Credentials.Retrieve(t.Context())
			refused, is := errors.AsType[*assume.Refused](err)
			launch, permanent := errors.AsType[*executor.LaunchError](err)
			if tc.want == nil {
				if err == nil || is || permanent {
					t.Errorf("got %v, want an error that a retry can fix", err)
				}
				return
			}
			if !is || !permanent || launch.Cause != fairlead.CauseMisconfigured || refused.Role != role || refused.ExternalID != tc.id {
				t.Fatalf("got %#v, want a refusal of the role with the external id %q", err, tc.id)
			}
			for _, want := range tc.want {
				if !strings.Contains(refused.Error(), want) {
					t.Errorf("the message %q does not contain %q", refused, want)
				}
			}
		})
	}
}
