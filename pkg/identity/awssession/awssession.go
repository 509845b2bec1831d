package awssession

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/cancelmark"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// lifetime is the lifetime of credentials: the shortest that STS permits. A runner's session has the same lifetime.
// The credentials and the session are renewed before they expire.
const lifetime = 15 * time.Minute

// imageLifetime is the lifetime of a build's access to the service that builds its image. The URLs that the service gets are
// valid as long as the credentials, and the service uses the last one at the end of its build. It is the longest that STS
// permits to a caller that has a role itself. The timeouts of the stack's project are shorter in sum.
const imageLifetime = time.Hour

// attemptTimeout is the timeout of one request to STS, which normally responds within milliseconds.
const attemptTimeout = 5 * time.Second

// Options configure a Granter: the role, and the name prefixes of the resources to which it grants access.
type Options struct {
	Role                                        string // ARN of the role that all sessions assume
	QueuePrefix, LogGroupPrefix, ArtifactPrefix string
	// CancelTable is the table of cancel markers, and CancelURL the endpoint of DynamoDB for
	// steps; "": steps find no markers.
	CancelTable, CancelURL string
	Images                 Images
}

// Granter is an identity.Granter for runners' sessions and attempts. A second Granter, with another role, grants
// access to publish artifacts. Safe for concurrent use.
type Granter struct {
	client *sts.Client
	role   string
	places Places
	url    string // of DynamoDB
}

var _ identity.Granter = (*Granter)(nil)

// New returns a Granter for cfg's region. It sends no request.
func New(cfg aws.Config, o Options) (*Granter, error) {
	partition, account, err := parseRole(o.Role)
	if err != nil {
		return nil, fmt.Errorf("session role: %w", err)
	}
	return &Granter{
		client: sts.NewFromConfig(awsapi.Bound(cfg, attemptTimeout)),
		role:   o.Role,
		places: Places{Partition: partition, Region: cfg.Region, Account: account,
			QueuePrefix: o.QueuePrefix, LogGroupPrefix: o.LogGroupPrefix, ArtifactPrefix: o.ArtifactPrefix, CancelTable: o.CancelTable, Images: o.Images},
		url: o.CancelURL,
	}, nil
}

// Account returns the account of the role and of all resources to which it grants access.
func (g *Granter) Account() string { return g.places.Account }

// Grant implements identity.Granter.
func (g *Granter) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	document, err := Policy(g.places, s)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, SessionName(s), document, Tags(s), lifetime)
	if err != nil {
		return identity.Access{}, err
	}
	if s.Queue != "" {
		a.QueuePrefix, a.Queue = g.places.QueuePrefix, s.Queue
	}
	if s.Job != "" {
		a.LogGroup, a.Repository = g.places.LogGroup(s.Install), g.places.Repository(s.App)
	}
	if g.places.CancelTable != "" && (s.Job != "" || s.Warm != "") {
		a.Cancel = cancelmark.Place{URL: g.url, Table: g.places.CancelTable, Key: cancelKey(s)}
	}
	return a, nil
}

// Publish returns credentials for pushing the app's artifacts.
func (g *Granter) Publish(ctx context.Context, app fairlead.AppID) (identity.Access, error) {
	document, err := PublishPolicy(g.places, app)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, string(app), document, []Tag{{TagApp, string(app)}}, lifetime)
	a.Repository = g.places.Repository(app)
	return a, err
}

// Build returns credentials for pushing the built artifacts of one component of the app. They have the session name of a
// publisher, because a session has no other name that the role's trust policy could check.
func (g *Granter) Build(ctx context.Context, app fairlead.AppID, component string) (identity.Access, error) {
	document, err := BuildPolicy(g.places, app, component)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, string(app), document, []Tag{{TagApp, string(app)}}, lifetime)
	a.Repository = g.places.Repository(app)
	return a, err
}

// BuildImage returns credentials with which an attempt of a build lets AWS CodeBuild build an image.
func (g *Granter) BuildImage(ctx context.Context, app fairlead.AppID, id fairlead.JobID, epoch int64) (identity.Access, error) {
	document, err := ImageBuildPolicy(g.places, app, id, epoch)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := g.assume(ctx, string(app), document, []Tag{{TagApp, string(app)}}, imageLifetime)
	if err != nil {
		return identity.Access{}, err
	}
	a.Image = g.places.image(app, id, epoch)
	return a, nil
}

func (g *Granter) assume(ctx context.Context, name, document string, tagged []Tag, life time.Duration) (identity.Access, error) {
	var tags []types.Tag
	for _, t := range tagged {
		tags = append(tags, types.Tag{Key: aws.String(t.Key), Value: aws.String(t.Value)})
	}
	out, err := g.client.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: &g.role, RoleSessionName: &name,
		Policy: &document, Tags: tags, DurationSeconds: aws.Int32(int32(life / time.Second))})
	if err != nil {
		return identity.Access{}, awsapi.Classify(ctx, "STS", "assume the role of session "+name, err)
	}
	if out.Credentials == nil {
		return identity.Access{}, fmt.Errorf("assume the role of session %s: the response of STS has no credentials", name)
	}
	return identity.Access{Region: g.places.Region, AccessKeyID: aws.ToString(out.Credentials.AccessKeyId), SecretAccessKey: aws.ToString(out.Credentials.SecretAccessKey),
		SessionToken: aws.ToString(out.Credentials.SessionToken), Expires: aws.ToTime(out.Credentials.Expiration)}, nil
}
