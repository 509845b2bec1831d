package awssession

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
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

// Granter is an identity.Granter of runners' sessions; by another role it lets
// those in who publish. Safe for concurrent use.
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
		return nil, fmt.Errorf("role of sessions: %w", err)
	}
	return &Granter{
		client: sts.NewFromConfig(awsapi.Bound(cfg, attemptTimeout)),
		role:   o.Role,
		places: Places{Partition: partition, Region: cfg.Region, Account: account,
			QueuePrefix: o.QueuePrefix, LogGroupPrefix: o.LogGroupPrefix, ArtifactPrefix: o.ArtifactPrefix},
	}, nil
}

// Account returns the account in which the role is, and all that it reaches.
func (g *Granter) Account() string { return g.places.Account }

// Grant implements identity.Granter.
func (g *Granter) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	document, err := Policy(g.places, s)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, SessionName(s), document, [][2]string{{TagRunner, string(s.Runner)}, {TagInstall, string(s.Install)}, {TagApp, string(s.App)}})
	if err != nil {
		return identity.Access{}, err
	}
	if s.Queue != "" {
		a.QueuePrefix, a.Queue = g.places.QueuePrefix, s.Queue
	}
	if s.Job != "" {
		a.LogGroup, a.Repository = g.places.LogGroup(s.Install), g.places.Repository(s.App)
	}
	return a, nil
}

// Publish returns credentials with which the app's artifacts are pushed.
func (g *Granter) Publish(ctx context.Context, app fairlead.AppID) (identity.Access, error) {
	document, err := PublishPolicy(g.places, app)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, string(app), document, [][2]string{{TagApp, string(app)}})
	a.Repository = g.places.Repository(app)
	return a, err
}

func (g *Granter) assume(ctx context.Context, name, document string, tagged [][2]string) (identity.Access, error) {
	var tags []types.Tag
	for _, t := range tagged {
		tags = append(tags, types.Tag{Key: aws.String(t[0]), Value: aws.String(t[1])})
	}
	out, err := g.client.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: &g.role, RoleSessionName: &name,
		Policy: &document, Tags: tags, DurationSeconds: aws.Int32(int32(lifetime / time.Second))})
	if err != nil {
		return identity.Access{}, awsapi.Classify(ctx, "STS", "open the session "+name, err)
	}
	if out.Credentials == nil {
		return identity.Access{}, fmt.Errorf("open the session %s: STS answered without credentials", name)
	}
	return identity.Access{Region: g.places.Region, AccessKeyID: aws.ToString(out.Credentials.AccessKeyId), SecretAccessKey: aws.ToString(out.Credentials.SecretAccessKey),
		SessionToken: aws.ToString(out.Credentials.SessionToken), Expires: aws.ToTime(out.Credentials.Expiration)}, nil
}
