// Package parts has the parts of a step that need large packages. Only programs that run every job link it.
package parts

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	"github.com/fairlead/fairlead/runner/internal/awsrole"
	"github.com/fairlead/fairlead/runner/internal/cancelwatch"
	"github.com/fairlead/fairlead/runner/internal/secretsource/awsstore"
	ledgers3 "github.com/fairlead/fairlead/runner/ledger/s3"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/terraform/bucket"
	"github.com/fairlead/fairlead/runner/step"
)

// All returns every part.
func All() step.Parts {
	return step.Parts{TakeRole: takeRole, ProveRole: awsrole.Prove, ReadSecret: awsstore.Read, OpenLedger: ledgers3.Open, OpenLog: openLog, FindMarker: findMarker,
		Buckets: bucket.Buckets{}, Plugins: plugins}
}

func plugins(passEnv, environ []string) plugin.Registry {
	return plugin.Registry{build.Name: build.New(build.Config{PassEnv: passEnv, Environ: environ})}
}

func takeRole(ctx context.Context, w step.RoleWanted, folder string, hide func(string)) (*step.Role, error) {
	taken, err := awsrole.Take(ctx, awsrole.Wanted(w), folder, hide)
	if err != nil {
		return nil, err
	}
	return &step.Role{Environ: taken.Environ, Close: taken.Close, SetPolicy: func(ctx context.Context, policy string) error {
		err := taken.SetPolicy(ctx, policy)
		if errors.Is(err, awsrole.ErrPolicySize) {
			return errors.Join(step.ErrPolicySize, err)
		}
		return err
	}}, nil
}

func openLog(ctx context.Context, at step.LogPlace) (step.DirectLog, error) {
	provider := access(at.Credentials)
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(at.Region), awsconfig.WithCredentialsProvider(provider), awsconfig.WithHTTPClient(at.HTTP))
	if err != nil {
		return nil, err
	}
	cfg.Credentials = provider // without the SDK's cache: the step caches them
	return cloudwatch.NewTransport(cfg, at.Group, at.Now), nil
}

func findMarker(m step.Marker) func(context.Context) (bool, error) {
	w := &cancelwatch.Marker{Place: m.Place, Region: m.Region, Credentials: access(m.Credentials), HTTP: m.HTTP, Now: m.Now}
	return w.Found
}

// access is the control plane's access to its cloud as credentials of the SDK.
type access func(context.Context) (wire.CloudAccess, error)

// Retrieve implements aws.CredentialsProvider.
func (f access) Retrieve(ctx context.Context) (aws.Credentials, error) {
	a, err := f(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	return aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken,
		CanExpire: !a.ExpiresAt.IsZero(), Expires: a.ExpiresAt, Source: "fairlead lease"}, nil
}
