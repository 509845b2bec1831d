// Package assume takes a role of a customer's AWS account, from beside the
// control plane.
package assume

import (
	"cmp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// sessionFor is how long a session lasts: an hour is what every role allows,
// and the most that STS gives to who has a role already.
const sessionFor = time.Hour

// Left is how long credentials of Role last at least when they are given out:
// what is signed with them is good for as long.
const Left = 15 * time.Minute

// Role returns the configuration with which the account of the role is reached,
// and nothing else: the role is assumed anew before its hour is over. STS is
// asked when credentials are needed, in auth.STSRegion or else in region.
// session names the role's session, unless auth does.
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
