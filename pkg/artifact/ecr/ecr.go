// Package ecr stores the artifacts of apps in Amazon ECR. Each component of an app has a
// repository, which is created at the first publication. There are no permanent logins. The
// control plane gets a login for each publication, and for each job that fetches an
// artifact. It gets the login with credentials that can access only the repositories of one
// app.
package ecr

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// attemptTimeout limits one attempt of one request to ECR.
const attemptTimeout = 5 * time.Second

// Options of a Registry.
type Options struct {
	Account string // owner of the registry; aws.Config has the region
	Prefix  string // start of the repositories' names: <prefix><app id>/<component>
	// Publish returns credentials that can push only the artifacts of the app. It is nil if
	// this process does not publish apps.
	Publish func(context.Context, fairlead.AppID) (identity.Access, error)
	// Build returns credentials that can push only the built artifacts of the component. It is nil if this process starts
	// no builds.
	Build func(ctx context.Context, app fairlead.AppID, component string) (identity.Access, error)
}

// Registry is the ECR registry of one account in one region. Safe for
// concurrent use.
type Registry struct {
	cfg     aws.Config
	options Options
}

// New returns the registry that o describes. It sends no request.
func New(cfg aws.Config, o Options) *Registry { return &Registry{cfg, o} }

// Host returns the host name of the registry for clients.
func (r *Registry) Host() string {
	suffix := "amazonaws.com"
	if strings.HasPrefix(r.cfg.Region, "cn-") {
		suffix += ".cn"
	}
	return r.options.Account + ".dkr.ecr." + r.cfg.Region + "." + suffix
}

// Repository returns the name of the repository of an app's component.
func (r *Registry) Repository(app fairlead.AppID, component string) string {
	return r.options.Prefix + string(app) + "/" + component
}

// OpenForPush creates the missing repositories of an app's components. It returns a login
// that can push only to these repositories.
func (r *Registry) OpenForPush(ctx context.Context, app fairlead.AppID, components []string) (identity.Login, error) {
	if r.options.Publish == nil {
		return identity.Login{}, errors.New("this process does not publish artifacts")
	}
	if err := r.Make(ctx, app, components); err != nil {
		return identity.Login{}, err
	}
	a, err := r.options.Publish(ctx, app)
	if err != nil {
		return identity.Login{}, err
	}
	return r.Login(ctx, a)
}

// OpenForBuild returns a login that can push only to the repository of the component's built artifacts, which must exist.
func (r *Registry) OpenForBuild(ctx context.Context, app fairlead.AppID, component string) (identity.Login, error) {
	if r.options.Build == nil {
		return identity.Login{}, errors.New("this process starts no builds")
	}
	a, err := r.options.Build(ctx, app, component)
	if err != nil {
		return identity.Login{}, err
	}
	return r.Login(ctx, a)
}

// Make creates the missing repositories of the names below an app. Calling it again is safe.
func (r *Registry) Make(ctx context.Context, app fairlead.AppID, names []string) error {
	client := r.client(r.cfg)
	for _, c := range names {
		name := r.Repository(app, c)
		// Artifacts are pushed and fetched by digest, so the tags can be immutable.
		_, err := client.CreateRepository(ctx, &ecr.CreateRepositoryInput{RepositoryName: &name, ImageTagMutability: types.ImageTagMutabilityImmutable,
			Tags: []types.Tag{{Key: aws.String("fairlead-app"), Value: aws.String(string(app))}}})
		if _, there := errors.AsType[*types.RepositoryAlreadyExistsException](err); err != nil && !there {
			return awsapi.Classify(ctx, "ECR", "create repository "+name, err)
		}
	}
	return nil
}

// Login returns a login with the permissions of the credentials.
func (r *Registry) Login(ctx context.Context, a identity.Access) (identity.Login, error) {
	cfg := r.cfg.Copy()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(a.AccessKeyID, a.SecretAccessKey, a.SessionToken)
	out, err := r.client(cfg).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return identity.Login{}, awsapi.Classify(ctx, "ECR", "log in to the registry", err)
	}
	if len(out.AuthorizationData) != 1 {
		return identity.Login{}, fmt.Errorf("log in to the registry: ECR returned %d logins, want 1", len(out.AuthorizationData))
	}
	d := out.AuthorizationData[0]
	pair, err := base64.StdEncoding.DecodeString(aws.ToString(d.AuthorizationToken))
	user, password, ok := strings.Cut(string(pair), ":")
	if err != nil || !ok {
		return identity.Login{}, errors.New("log in to the registry: ECR's token is not a user name and a password")
	}
	// A login expires no later than the credentials that created it.
	expires := aws.ToTime(d.ExpiresAt)
	if expires.IsZero() || !a.Expires.IsZero() && a.Expires.Before(expires) {
		expires = a.Expires
	}
	return identity.Login{Username: user, Password: password, Expires: expires}, nil
}

func (r *Registry) client(cfg aws.Config) *ecr.Client {
	return ecr.NewFromConfig(awsapi.Bound(cfg, attemptTimeout))
}
