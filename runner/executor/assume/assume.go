// Package assume assumes a role in a customer's AWS account, for a runner beside
// the control plane.
package assume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
)

// sessionFor is the duration of a session. Every role allows one hour, and STS
// grants no more to a caller that already uses an assumed role.
const sessionFor = time.Hour

// Left is the least remaining lifetime of credentials that Role returns. A URL or
// token signed with them is valid for at least as long.
const Left = 15 * time.Minute

// Role returns a copy of cfg that uses only the credentials of the role. The copy
// assumes the role again before the hour is over. It calls STS when credentials
// are needed: in auth.STSRegion or, if that is empty, in region. session is the name of the
// role's session, unless auth sets one. If STS refuses the role, the error of each request has an
// *executor.LaunchError with CauseMisconfigured and a *Refused.
func Role(cfg aws.Config, auth runnerspec.AWSAuth, region, session string) aws.Config {
	asking := cfg.Copy()
	asking.Region = cmp.Or(auth.STSRegion, region, cfg.Region)
	out := cfg.Copy()
	provider := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(asking), auth.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName, o.Duration = cmp.Or(auth.SessionName, session), sessionFor
		if auth.ExternalID != "" {
			o.ExternalID = &auth.ExternalID
		}
	})
	out.Credentials = aws.NewCredentialsCache(explained{provider, auth}, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = Left })
	return out
}

// Refused means that STS does not give the role to the control plane. STS does not tell which part
// of the trust policy refuses.
type Refused struct {
	Role       string // ARN
	ExternalID string // that the request had; "": none
	Err        error  // of STS
}

// Error names what must be compared, in the role's account and in the runner's configuration.
func (e *Refused) Error() string {
	with, another, fix := "without an external id", "one", "set"
	if e.ExternalID != "" {
		with, another, fix = "with the external id "+e.ExternalID, "another one", "change"
	}
	return fmt.Sprintf("the role %s cannot be assumed %s: its trust policy must name the control plane's AWS identity, and must not require %s (sts:ExternalId). "+
		"Correct the trust policy, or %s external_id beside role_arn in the runner's configuration: %v", e.Role, with, another, fix, e.Err)
}

// Unwrap returns the error of STS.
func (e *Refused) Unwrap() error { return e.Err }

// explained is a provider whose error for a refused role is a *Refused.
type explained struct {
	aws.CredentialsProvider
	auth runnerspec.AWSAuth
}

// Retrieve implements aws.CredentialsProvider.
func (e explained) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := e.CredentialsProvider.Retrieve(ctx)
	if answer, ok := errors.AsType[smithy.APIError](err); ok && answer.ErrorCode() == "AccessDenied" {
		err = &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: &Refused{Role: e.auth.RoleARN, ExternalID: e.auth.ExternalID, Err: err}}
	}
	return c, err
}
