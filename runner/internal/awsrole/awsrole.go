// Package awsrole takes the AWS role of a job's operation and hands its
// credentials to the job's tool, for as long as the tool runs: through the
// container credentials protocol, from an address that only this machine
// reaches and a token that only the tool is told. So an apply that takes longer
// than a session, which AWS ends after an hour, has fresh ones when it needs
// them, and nothing of them is in its environment.
package awsrole

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
)

// The tags of a session, which the trust of the roles asks for and CloudTrail
// shows.
const (
	TagInstall = "fairlead-install"
	TagJob     = "fairlead-job"
)

// sessionFor is how long a session lasts: an hour is the most that STS gives to
// who has a role already (AssumeRole, role chaining).
const sessionFor = time.Hour

// renewBefore is when credentials that are asked for are replaced rather than
// given out: earlier than the SDKs ask again, which is 5 minutes before the end.
const renewBefore = 15 * time.Minute

// Wanted says which role is taken, and for what.
type Wanted struct {
	Role       string // ARN
	ExternalID string // "": none
	Region     string // in which the tool works, and whose STS is asked
	Install    string // identifier; "": the session has no such tag
	Job        string // identifier, and the session's name
}

// Source has the credentials of one role. Safe for concurrent use; one request
// at a time goes to STS.
type Source struct {
	provider aws.CredentialsProvider
	want     Wanted
	now      func() time.Time
	hide     func(secret string)

	one  chan struct{} // held while last is read or made; a channel, so that waiting ends with a context
	last aws.Credentials
}

// NewSource returns the source of w's credentials, which asks STS as cfg says.
// It sends nothing. Each secret goes to hide before it goes anywhere else.
func NewSource(cfg aws.Config, w Wanted, now func() time.Time, hide func(secret string)) *Source {
	cfg.Region = cmp.Or(w.Region, cfg.Region)
	return &Source{want: w, now: now, hide: hide, one: make(chan struct{}, 1),
		provider: stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), w.Role, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName, o.Duration = w.Job, sessionFor
			if w.ExternalID != "" {
				o.ExternalID = &w.ExternalID
			}
			for key, value := range map[string]string{TagInstall: w.Install, TagJob: w.Job} {
				if value != "" {
					o.Tags = append(o.Tags, types.Tag{Key: &key, Value: &value})
				}
			}
		})}
}

// Retrieve returns credentials that are good for some time yet: those from
// before, or new ones. While STS cannot be asked, those from before do until
// they end.
func (s *Source) Retrieve(ctx context.Context) (aws.Credentials, error) {
	select {
	case s.one <- struct{}{}:
		defer func() { <-s.one }()
	case <-ctx.Done():
		return aws.Credentials{}, ctx.Err()
	}
	left := s.last.Expires.Sub(s.now())
	if s.last.HasKeys() && left > renewBefore {
		return s.last, nil
	}
	fresh, err := s.provider.Retrieve(ctx)
	if err != nil {
		if s.last.HasKeys() && left > 0 {
			return s.last, nil
		}
		return aws.Credentials{}, fmt.Errorf("take the role %s: %w", s.want.Role, err)
	}
	s.hide(fresh.SecretAccessKey)
	s.hide(fresh.SessionToken)
	s.last = fresh
	return fresh, nil
}

// Taken is a role that the tool of a job has until Close.
type Taken struct {
	// Environ is what the tool is told. A variable with the value "" is one that
	// it must not have: it would look for credentials there first.
	Environ  map[string]string
	endpoint *endpoint
}

// Take takes the role with the credentials that the process's environment leads
// to, and serves them until Close. It fails if the role cannot be taken now.
func Take(ctx context.Context, w Wanted, hide func(secret string)) (*Taken, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx) // reads the environment itself, as every program on the SDK does
	if err != nil {
		return nil, fmt.Errorf("find the AWS role of this process: %w", err)
	}
	return TakeFrom(ctx, NewSource(cfg, w, time.Now, hide))
}

// TakeFrom is Take with a source of one's own.
func TakeFrom(ctx context.Context, s *Source) (*Taken, error) {
	if _, err := s.Retrieve(ctx); err != nil {
		return nil, err
	}
	e, err := serve(s)
	if err != nil {
		return nil, err
	}
	s.hide(e.token)
	environ := map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": e.url,
		"AWS_CONTAINER_AUTHORIZATION_TOKEN":  e.token,
		// Without credentials of the job, the tool must not find the machine's.
		"AWS_EC2_METADATA_DISABLED": "true",
	}
	for _, name := range before {
		environ[name] = ""
	}
	if s.want.Region != "" {
		environ["AWS_REGION"], environ["AWS_DEFAULT_REGION"] = s.want.Region, s.want.Region
	}
	return &Taken{Environ: environ, endpoint: e}, nil
}

// before are the variables in which the SDKs look for credentials before they
// ask a container's endpoint, or for another endpoint.
var before = [...]string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
}

// Close takes the role from the tool: its endpoint is gone. Sessions that were
// given out end by themselves.
func (t *Taken) Close() error { return t.endpoint.close() }
