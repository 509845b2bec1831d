package plane

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/artifact/ecr"
	"github.com/fairlead/fairlead/pkg/blob/s3"
	cancels "github.com/fairlead/fairlead/pkg/cancelmark/dynamo"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	logtable "github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
	"github.com/fairlead/fairlead/pkg/seal/kms"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// TokensLabel is the label from which the key of tokens is derived. A change of the label changes
// the key and ends every session.
const TokensLabel = "fairlead tokens v1"

// logPoll is the interval at which a reader that follows a log looks for new lines. One look costs
// one read unit. A line must reach the reader within 300 ms. The interval leaves time for the read
// itself.
const logPoll = 200 * time.Millisecond

// Resources names the AWS resources of a control plane. LogTable and Blobs are "" in a function that
// uses no log and no state. SigningKey and TokensKey are "" in a
// function that neither signs nor mints. LogArchive is "" in a function that never reads the log of
// an ended job. LogGroups is empty in a function that creates no installs.
type Resources struct {
	Table, LogTable, Blobs, QueuePrefix string
	CancelTable                         string // table of cancel markers
	SealKey, SigningKey, TokensKey      string
	LogArchive                          string
	LogGroups                           cloudwatch.GroupOptions
	Direct                              bool                // a service of direct launch serves runners
	Quotas                              fairlead.Quotas     // of each org, in the function that serves people
	LogBudget                           joblog.Budget       // of each runner, in the function that takes logs and grants access to them
	Makes                               bool                // create a queue at its first use: in the function that creates runners
	Attests                             bool                // verify the AWS role or OIDC token of an agent or of a step, or the ID token of a person: in the functions that open sessions, start jobs and log people in
	Sessions                            *awssession.Options // the runners' own access to queues, logs and artifacts; nil: no access
	Publishing                          *awssession.Options // the access of publishers; nil: no one can publish
	Building                            *awssession.Options // the access of builds, in the function that starts jobs; nil: no build can push
}

// Queue returns the queues of all runners.
func Queue(cfg aws.Config, prefix string, makes bool) (*sqs.Queue, error) {
	return sqs.New(cfg, sqs.Options{Prefix: prefix, MaxReceives: sqs.MaxReceives, Make: makes, Now: time.Now})
}

// grantAccess wires the access of runners, publishers and builds to resources of the control plane's account.
func grantAccess(ctx context.Context, cfg aws.Config, r Resources, parts *control.Deps) (err error) {
	if r.Sessions != nil {
		o := *r.Sessions
		if o.CancelTable = r.CancelTable; o.CancelTable != "" {
			if o.CancelURL, err = cancels.Endpoint(ctx, cfg); err != nil {
				return err
			}
		}
		sessions, err := awssession.New(cfg, o)
		if err != nil {
			return err
		}
		parts.Access = sessions
		registry := ecr.Options{Account: sessions.Account(), Prefix: r.Sessions.ArtifactPrefix}
		if r.Building != nil {
			builder, err := awssession.New(cfg, *r.Building)
			if err != nil {
				return err
			}
			registry.Build = builder.Build
			if r.Building.Images.Project != "" {
				parts.ImageBuilds = builder
			}
		}
		parts.Artifacts = ecr.New(cfg, registry)
	}
	if r.Publishing != nil {
		publisher, err := awssession.New(cfg, *r.Publishing)
		if err != nil {
			return err
		}
		parts.Artifacts = ecr.New(cfg, ecr.Options{Account: publisher.Account(), Prefix: r.Publishing.ArtifactPrefix, Publish: publisher.Publish})
	}
	return nil
}

// Control wires the use cases. It asks KMS for the public half of the signing key and for the key
// of tokens; it makes no other request.
func Control(ctx context.Context, cfg aws.Config, r Resources, logger *slog.Logger) (*control.Control, error) {
	q, err := Queue(cfg, r.QueuePrefix, r.Makes)
	if err != nil {
		return nil, err
	}
	parts := control.Deps{
		Store: store.New(dynamo.New(cfg, r.Table)), Queue: q,
		IDs: fairlead.RandomIDs(time.Now), Now: time.Now, Logger: logger, Intervals: control.Metered(), Direct: r.Direct, LogBudget: r.LogBudget, Quotas: r.Quotas,
	}
	if r.SealKey != "" {
		parts.Sealer = kms.New(cfg, time.Now, r.SealKey)
	}
	parts.Partition, _ = awsiam.PartitionOf(cfg.Region) // of a region without proofs: unknown, so every stack is accepted
	if r.CancelTable != "" {
		parts.CancelMarks = cancels.New(cfg, r.CancelTable, time.Now)
	}
	if r.Blobs != "" {
		if parts.Blobs, err = s3.New(cfg, s3.Options{Bucket: r.Blobs}); err != nil {
			return nil, err
		}
	}
	if r.LogTable != "" {
		if parts.Log, err = Log(cfg, r.LogTable, r.LogArchive); err != nil {
			return nil, err
		}
	}
	if r.LogGroups.Prefix != "" {
		if parts.Records, err = cloudwatch.NewGroups(cfg, r.LogGroups); err != nil {
			return nil, err
		}
	}
	if r.Attests {
		parts.AWS = awsiam.NewVerifier(stsTransport(), time.Now, awsiam.Options{})
		parts.OIDC = oidc.NewVerifier(oidc.Transport(oidc.Rules{}), time.Now, oidc.Rules{})
	}
	if err := grantAccess(ctx, cfg, r, &parts); err != nil {
		return nil, err
	}
	if r.SigningKey != "" {
		signing, err := kms.NewSigning(ctx, cfg, r.SigningKey)
		if err != nil {
			return nil, err
		}
		parts.Signer = events.NewRemoteSigner(signing.Public(), signing.Sign)
	}
	c := control.New(parts)
	if r.TokensKey != "" {
		key, err := kms.Derive(ctx, cfg, r.TokensKey, TokensLabel)
		if err != nil {
			return nil, err
		}
		// One read at a cold start. A restored table has another name, so its functions start again.
		generation, err := c.OpenTable(ctx, r.Table)
		if errors.Is(err, control.ErrTableIsCopy) {
			return nil, fmt.Errorf("%w\nRun `fairlead ops restore --table %s` with the stack's --stage and --region: without it, leases from before the restore would fit new attempts", err, r.Table)
		}
		if err != nil {
			return nil, err
		}
		c.Minter = identity.NewMinter(key).InGeneration(generation)
	}
	return c, nil
}

// Log returns the log in the table, which reads the logs of ended jobs from the bucket. If bucket
// is "", the log cannot read the logs of ended jobs.
func Log(cfg aws.Config, table, bucket string) (joblog.Log, error) {
	live, err := logtable.New(cfg, logtable.Options{Table: table, Poll: logPoll, Now: time.Now})
	if err != nil || bucket == "" {
		return live, err
	}
	blobs, err := s3.New(cfg, s3.Options{Bucket: bucket})
	if err != nil {
		return nil, err
	}
	return archive.New(live, blobs), nil
}

// stsTransport returns the transport to STS. STS is in the region of the runner's account and may
// be far away. Its answers are small.
func stsTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// API returns the options of both APIs of the control plane of this version, whose URL is address. Runners that
// were installed earlier can use one of the others. spare is the public half of the spare signing
// key; nil: the function reports none.
func API(c *control.Control, version string, spare ed25519.PublicKey, address string, others ...string) (api.Options, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return api.Options{}, fmt.Errorf("%q is not a URL of a control plane", address)
	}
	var audiences []string
	for _, a := range append([]string{address}, others...) {
		audience, err := awsiam.Audience(a)
		if err != nil {
			return api.Options{}, err
		}
		audiences = append(audiences, audience)
	}
	c.Spare, c.AgentURL = spare, address
	registry := u.Host
	if c.Artifacts != nil {
		registry = c.Artifacts.Host()
	}
	return api.Options{Control: c, Registry: registry, Audiences: audiences, Version: version, IDs: c.IDs, Logger: c.Logger, MaxBody: maxBody}, nil
}

// Spare returns the public half of the spare signing key. It returns nil if the key is "", or if
// it is lost: then runners pin the other key alone. Every other error is returned, because a
// runner that pins one key only cannot get the other later.
func Spare(ctx context.Context, cfg aws.Config, key string, logger *slog.Logger) (ed25519.PublicKey, error) {
	if key == "" {
		return nil, nil
	}
	signing, err := kms.NewSigning(ctx, cfg, key)
	if kms.Lost(err) {
		logger.Error("the spare signing key is lost; new runners pin one key only", "key", key, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return signing.Public(), nil
}
