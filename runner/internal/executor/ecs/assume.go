package ecs

import (
	"cmp"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Assume returns the configuration with which the account of the role is
// reached, and nothing else: the role is assumed anew before its hour is over.
func Assume(cfg aws.Config, auth runnerspec.AWSAuth, region, session string) aws.Config {
	asking := cfg.Copy()
	asking.Region = cmp.Or(auth.STSRegion, region, cfg.Region)
	out := cfg.Copy()
	out.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(asking), auth.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = cmp.Or(auth.SessionName, session)
		if auth.ExternalID != "" {
			o.ExternalID = &auth.ExternalID
		}
	}))
	return out
}
