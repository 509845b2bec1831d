// Package awsrole assumes the AWS role of a job's operation and serves the role's credentials to the
// job's tool while the tool runs. It uses the container credentials protocol, at a loopback address
// and with a token that only the tool gets, in a file. AWS ends a role session after an hour. A longer
// apply gets new credentials when it needs them. Neither the credentials nor the token are in the
// tool's environment.
package awsrole

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/sign"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// The tags of a role session. The trust policies of the roles require them, and CloudTrail shows them.
const (
	TagInstall = "fairlead-install"
	TagJob     = "fairlead-job"
)

// TagResource is the tag that a stack's boundary requires on the resources of an install. Its key has no hyphen,
// because it is part of a variable's name, and some shells drop variables whose names have hyphens. So the tag
// also survives a tool that is a shell script.
const TagResource = "fairlead_install"

// sessionFor is the lifetime of a role session. If the caller itself uses a role (role chaining), STS
// permits at most an hour.
const sessionFor = time.Hour

// renewBefore is how long before their expiry Retrieve replaces credentials. The SDKs ask for new
// credentials 5 minutes before the expiry; credentials with less time left would be useless to them.
const renewBefore = 15 * time.Minute

// Wanted names the role to assume and the job that it is for.
type Wanted struct {
	Role       string // ARN
	ExternalID string // "": none
	Region     string // region of the tool and of STS; "": STS uses the process's region, and the tool gets no region
	Install    string // install ID; "": the session has no such tag
	Job        string // job ID; also the session's name
	Policy     string // session policy as JSON: the session may do what the role and the policy permit; "": what the role permits
}

// ErrPolicySize reports that STS refuses a session policy, because it is too large in the form in which STS packs it.
var ErrPolicySize = errors.New("the session policy is too large for STS")

// Source caches and renews the credentials of one role. Safe for concurrent use; it sends one request
// at a time to STS.
type Source struct {
	client stscreds.AssumeRoleAPIClient
	want   Wanted // without its policy, which SetPolicy changes
	now    func() time.Time
	hide   func(secret string)

	one      chan struct{} // a lock that is held while the fields below are used; it is a channel so that a wait for it ends with a context
	provider aws.CredentialsProvider
	last     aws.Credentials
}

// NewSource returns a source of credentials for the role of w. cfg is the AWS configuration for its
// requests to STS. NewSource itself sends no request. The source passes each secret to hide before it
// returns the secret.
func NewSource(cfg aws.Config, w Wanted, now func() time.Time, hide func(secret string)) *Source {
	cfg.Region = cmp.Or(w.Region, cfg.Region)
	s := &Source{client: sts.NewFromConfig(cfg), want: w, now: now, hide: hide, one: make(chan struct{}, 1)}
	s.provider = s.with(w.Policy)
	return s
}

// with returns the provider of credentials with a session policy.
func (s *Source) with(policy string) aws.CredentialsProvider {
	return stscreds.NewAssumeRoleProvider(s.client, s.want.Role, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName, o.Duration = s.want.Job, sessionFor
		if s.want.ExternalID != "" {
			o.ExternalID = &s.want.ExternalID
		}
		if policy != "" {
			o.Policy = &policy
		}
		for key, value := range map[string]string{TagInstall: s.want.Install, TagJob: s.want.Job} {
			if value != "" {
				o.Tags = append(o.Tags, types.Tag{Key: &key, Value: &value})
			}
		}
	})
}

// lock takes the lock, and returns the function that releases it.
func (s *Source) lock(ctx context.Context) (func(), error) {
	select {
	case s.one <- struct{}{}:
		return func() { <-s.one }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SetPolicy gets credentials with another session policy, which Retrieve returns from then on; "": none. Credentials that a tool already
// has keep their policy until they expire. If it fails, the source is unchanged. The error is ErrPolicySize if STS refuses the policy for
// its size.
func (s *Source) SetPolicy(ctx context.Context, policy string) error {
	release, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	provider := s.with(policy)
	fresh, err := provider.Retrieve(ctx)
	if packed, ok := errors.AsType[*types.PackedPolicyTooLargeException](err); ok {
		return errors.Join(ErrPolicySize, packed)
	}
	if err != nil {
		return fmt.Errorf("assume the role %s with a session policy: %w", s.want.Role, err)
	}
	s.keep(fresh)
	s.provider = provider
	return nil
}

// keep hides the secrets of credentials and caches these. The caller holds the lock.
func (s *Source) keep(c aws.Credentials) {
	s.hide(c.SecretAccessKey)
	s.hide(c.SessionToken)
	s.last = c
}

// Retrieve returns the cached credentials if they are valid for more than renewBefore. Otherwise it gets
// new credentials. If STS fails, it returns the cached credentials until they expire.
func (s *Source) Retrieve(ctx context.Context) (aws.Credentials, error) {
	release, err := s.lock(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	defer release()
	left := s.last.Expires.Sub(s.now())
	if s.last.HasKeys() && left > renewBefore {
		return s.last, nil
	}
	fresh, err := s.provider.Retrieve(ctx)
	if err != nil {
		if s.last.HasKeys() && left > 0 {
			return s.last, nil
		}
		return aws.Credentials{}, fmt.Errorf("assume the role %s: %w", s.want.Role, err)
	}
	s.keep(fresh)
	return fresh, nil
}

// Taken is an assumed role whose credentials the tool of a job can get until Close.
type Taken struct {
	// Environ holds environment variables for the tool. If a value is "", the tool must not have that
	// variable at all, because the tool would look for credentials there first.
	Environ  map[string]string
	source   *Source
	endpoint *endpoint
	file     string // holds the endpoint's token
}

// tokenFile is the name of the file with the endpoint's token. Another process of the same user can
// read the environment of a tool. It cannot read this file if its job has another disk, or if Landlock
// keeps it out of this job's folder. Without either, the file protects as little as the environment.
const tokenFile = "aws-token"

// Take assumes the role with the credentials of this process, and serves the role's credentials until
// Close. It writes the endpoint's token to a file in folder, which only the job's tool may read. It
// fails if the role cannot be assumed now.
func Take(ctx context.Context, w Wanted, folder string, hide func(secret string)) (*Taken, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment, like every program that uses the SDK
	if err != nil {
		return nil, fmt.Errorf("find the AWS role of this process: %w", err)
	}
	return TakeFrom(ctx, NewSource(cfg, w, time.Now, hide), folder)
}

// Prove proves the AWS role of this process for a challenge. It sends no request to STS: the control plane does. region is
// STS's region; "": the process's region.
func Prove(ctx context.Context, region string, c awsiam.Challenge) (awsiam.Proof, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return awsiam.Proof{}, fmt.Errorf("find the AWS role of this process: %w", err)
	}
	region = cmp.Or(region, cfg.Region)
	e, ok := awsiam.EndpointOf(region, strings.EqualFold(os.Getenv("AWS_USE_FIPS_ENDPOINT"), "true"))
	if !ok {
		return awsiam.Proof{}, fmt.Errorf("STS has no regional endpoint in %q. Set AWS_REGION, and AWS_USE_FIPS_ENDPOINT only in regions that have one", region)
	}
	return sign.Proof(ctx, cfg.Credentials, e, c, time.Now())
}

// TakeFrom is Take with the given source.
func TakeFrom(ctx context.Context, s *Source, folder string) (*Taken, error) {
	if _, err := s.Retrieve(ctx); err != nil {
		return nil, err
	}
	e, err := serve(s)
	if err != nil {
		return nil, err
	}
	s.hide(e.token)
	file := filepath.Join(folder, tokenFile)
	if err := safefile.Replace(file, []byte(e.token), 0o400); err != nil {
		return nil, errors.Join(fmt.Errorf("write the token of the job's credentials: %w", err), e.close())
	}
	environ := map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI":     e.url,
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file,
		// If the endpoint fails, the tool must not fall back to the machine's credentials.
		"AWS_EC2_METADATA_DISABLED": "true",
	}
	for _, name := range before {
		environ[name] = ""
	}
	if s.want.Install != "" {
		environ[defaultTag+TagResource] = s.want.Install
	}
	if s.want.Region != "" {
		environ["AWS_REGION"], environ["AWS_DEFAULT_REGION"] = s.want.Region, s.want.Region
	}
	return &Taken{Environ: environ, source: s, endpoint: e, file: file}, nil
}

// SetPolicy is that of the source: a tool that starts after it gets credentials with the policy.
func (t *Taken) SetPolicy(ctx context.Context, policy string) error {
	return t.source.SetPolicy(ctx, policy)
}

// defaultTag starts the name of a variable from which the provider hashicorp/aws (5.62 and later) takes a
// default tag; the tag's key follows. A stack's roles may use only resources with the install's tag, and public
// modules do not set it. A module that sets another value for the key only loses access to its resources.
const defaultTag = "TF_AWS_DEFAULT_TAGS_"

// before lists the variables in which the SDKs look for credentials, or for another endpoint, before
// they use the container credentials endpoint.
var before = [...]string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
	"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
}

// Close stops the endpoint and removes its token, so the tool gets no new credentials. Credentials
// that it already has stay valid until they expire.
func (t *Taken) Close() error {
	err := os.Remove(t.file)
	if errors.Is(err, fs.ErrNotExist) { // the tool may have removed it: its folder
		err = nil
	}
	return errors.Join(err, t.endpoint.close())
}
