package awssession

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/identity"
)

// lifetime is how long credentials last: the least that STS gives. A runner's
// session lasts as long, and both are renewed before they end.
const lifetime = 15 * time.Minute

// attemptTimeout bounds one request to STS, which answers within milliseconds.
const attemptTimeout = 5 * time.Second

// Options says what is granted by which role.
type Options struct {
	Role                                        string // ARN of the role of all sessions
	QueuePrefix, LogGroupPrefix, ArtifactPrefix string
}

// Granter is an identity.Granter.
type Granter struct {
	client *sts.Client
	role   string
	places Places
}

var _ identity.Granter = (*Granter)(nil)

// New returns the Granter in cfg's region. It sends nothing.
func New(cfg aws.Config, o Options) (*Granter, error) {
	partition, account, err := parseRole(o.Role)
	if err != nil {
		return nil, fmt.Errorf("role of runners' sessions: %w", err)
	}
	return &Granter{
		client: sts.NewFromConfig(cfg, func(s *sts.Options) { s.HTTPClient = awsapi.Bounded(s.HTTPClient, attemptTimeout) }),
		role:   o.Role,
		places: Places{Partition: partition, Region: cfg.Region, Account: account,
			QueuePrefix: o.QueuePrefix, LogGroupPrefix: o.LogGroupPrefix, ArtifactPrefix: o.ArtifactPrefix},
	}, nil
}

// Grant implements identity.Granter.
func (g *Granter) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	document, err := Policy(g.places, s)
	if err != nil {
		return identity.Access{}, err
	}
	var tags []types.Tag
	for _, t := range [...][2]string{{TagRunner, string(s.Runner)}, {TagInstall, string(s.Install)}, {TagApp, string(s.App)}} {
		tags = append(tags, types.Tag{Key: aws.String(t[0]), Value: aws.String(t[1])})
	}
	out, err := g.client.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: &g.role, RoleSessionName: aws.String(SessionName(s)),
		Policy: &document, Tags: tags, DurationSeconds: aws.Int32(int32(lifetime / time.Second))})
	if err != nil {
		return identity.Access{}, awsapi.Classify(ctx, "STS", "open session of runner "+string(s.Runner), err)
	}
	if out.Credentials == nil {
		return identity.Access{}, fmt.Errorf("open session of runner %s: STS answered without credentials", s.Runner)
	}
	a := identity.Access{Region: g.places.Region, AccessKeyID: aws.ToString(out.Credentials.AccessKeyId), SecretAccessKey: aws.ToString(out.Credentials.SecretAccessKey),
		SessionToken: aws.ToString(out.Credentials.SessionToken), Expires: aws.ToTime(out.Credentials.Expiration)}
	if s.Queue != "" {
		a.QueuePrefix, a.Queue = g.places.QueuePrefix, s.Queue
	}
	if s.Job != "" {
		a.LogGroup, a.Repository = g.places.LogGroup(s.Install), g.places.Repository(s.App)
	}
	return a, nil
}
