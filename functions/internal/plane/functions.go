package plane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	cancels "github.com/fairlead/fairlead/pkg/cancelmark/dynamo"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbridge"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awssession"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
)

// ControlAPI wires the function that serves the Control API and creates the vendor's tokens.
func ControlAPI(ctx context.Context, p Process[config.ControlAPI]) (any, error) {
	c := p.Config
	quotas, err := fairlead.ParseQuotas(c.Quotas)
	if err != nil {
		return nil, fmt.Errorf("FAIRLEAD_QUOTAS: %w", err)
	}
	plane, err := Control(ctx, p.AWS, Resources{Quotas: quotas, Table: c.Table, LogTable: c.LogTable, Blobs: c.Blobs, QueuePrefix: c.QueuePrefix, CancelTable: c.CancelTable, Makes: true, Attests: true, Direct: c.DirectLaunch == config.On,
		LogArchive: c.LogArchive, LogGroups: cloudwatch.GroupOptions{Prefix: c.LogGroupPrefix, Days: c.LogRetention, Subscriber: c.LogSubscriber},
		Publishing: &awssession.Options{Role: c.PublisherRole, ArtifactPrefix: c.ArtifactPrefix},
		SealKey:    c.SealKey, SigningKey: c.SigningKey, TokensKey: c.TokensKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	spare, err := Spare(ctx, p.AWS, c.SpareKey, p.Logger)
	if err != nil {
		return nil, err
	}
	o, err := API(plane, p.Version, spare, c.URL)
	if err != nil {
		return nil, err
	}
	o.OrgRates = api.NewOrgRates(c.OrgRate, rand.Text(), plane.NoteRequests, time.Now, p.Logger)
	o.Stack = api.StackSource{URL: c.URL, TemplateURL: c.StackTemplateURL, Image: c.RunnerImage}
	return withOperator(plane, c.URL, HTTP(api.ControlHandler(o), p.Logger)), nil
}

// SessionAPI wires the function that serves the Runner API's routes for callers without a session. It
// has the whole Runner API, and API Gateway sends it only these routes. So a crowd of agents that start
// uses up the executions of this function, and not those of running jobs.
func SessionAPI(ctx context.Context, p Process[config.SessionAPI]) (any, error) {
	c := p.Config
	plane, err := Control(ctx, p.AWS, Resources{Table: c.Table, QueuePrefix: c.QueuePrefix, Attests: true,
		Sessions: &awssession.Options{Role: c.SessionRole, QueuePrefix: c.QueuePrefix},
		SealKey:  c.SealKey, SigningKey: c.SigningKey, TokensKey: c.TokensKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	spare, err := Spare(ctx, p.AWS, c.SpareKey, p.Logger)
	if err != nil {
		return nil, err
	}
	o, err := API(plane, p.Version, spare, c.URL, c.OtherURLs...)
	if err != nil {
		return nil, err
	}
	return HTTP(api.RunnerHandler(o), p.Logger), nil
}

// RunnerAPI wires the function that serves the Runner API to agents with a session, and to steps.
func RunnerAPI(ctx context.Context, p Process[config.RunnerAPI]) (any, error) {
	c := p.Config
	plane, err := Control(ctx, p.AWS, Resources{Table: c.Table, LogTable: c.LogTable, Blobs: c.Blobs, QueuePrefix: c.QueuePrefix, CancelTable: c.CancelTable, Attests: true,
		Sessions: &awssession.Options{Role: c.SessionRole, QueuePrefix: c.QueuePrefix, LogGroupPrefix: c.LogGroupPrefix, ArtifactPrefix: c.ArtifactPrefix},
		Building: &awssession.Options{Role: c.BuilderRole, ArtifactPrefix: c.ArtifactPrefix, Images: awssession.Images{Project: c.ImageProject, Bucket: c.ImageBucket, LogGroup: c.ImageLogGroup}},
		SealKey:  c.SealKey, SigningKey: c.SigningKey, TokensKey: c.TokensKey, LogBudget: joblog.BudgetOf(c.LogBurst, c.LogPerHour)}, p.Logger)
	if err != nil {
		return nil, err
	}
	o, err := API(plane, p.Version, nil, c.URL, c.OtherURLs...)
	if err != nil {
		return nil, err
	}
	return HTTP(api.RunnerHandler(o), p.Logger), nil
}

// Direct wires the function that answers agents of direct launch. Only the role of their service can
// invoke it, so that neither the service nor a job has to have access to the table and its keys.
func Direct(ctx context.Context, p Process[config.Direct]) (any, error) {
	plane, err := Control(ctx, p.AWS, Resources{Table: p.Config.Table, SealKey: p.Config.SealKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, in events.DirectRequest) (out events.DirectAnswer, err error) {
		switch {
		case in.Runners:
			out.Runners, err = plane.DirectRunners(ctx)
		case in.Configuration != "":
			var c *control.AgentConfiguration
			if c, err = plane.DirectConfiguration(ctx, fairlead.RunnerID(in.Configuration)); err == nil {
				out.Revision, out.Runner = c.Revision, c.Runner
			}
		case in.Enrolment != "":
			out.Token, err = plane.DirectEnrolment(ctx, fairlead.RunnerID(in.Enrolment))
		default:
			err = errors.New("the request asks for nothing")
		}
		return out, err
	}, nil
}

// Audit wires the function that appends entries to the audit, and signs checkpoints, for the records of the table's stream that have a
// note. Its event source collects records for a minute.
func Audit(ctx context.Context, p Process[config.Audit]) (any, error) {
	plane, err := Control(ctx, p.AWS, Resources{Table: p.Config.Table, SigningKey: p.Config.SigningKey}, p.Logger)
	if err != nil {
		return nil, err
	}
	return Audited(plane.NewAuditor(0, 1), p.Logger), nil
}

// Dispatch wires the function that sends wake-ups and domain events for the records of the table's
// stream.
func Dispatch(_ context.Context, p Process[config.Dispatch]) (any, error) {
	q, err := Queue(p.AWS, p.Config.QueuePrefix, false)
	if err != nil {
		return nil, err
	}
	return Stream(&control.Dispatcher{Queue: q, CancelMarks: cancels.New(p.AWS, p.Config.CancelTable, time.Now), Bus: eventbridge.New(p.AWS, p.Config.EventBus), Now: time.Now, Logger: p.Logger}), nil
}
