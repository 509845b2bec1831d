// Package assume assumes a role in a customer's AWS account, for a runner beside
// the control plane.
package assume

import (
	"cmp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/pkg/runnerspec"
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
// role's session, unless auth sets one.
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
	out.Credentials = aws.NewCredentialsCache(provider, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = Left })
	return out
}
