package plane

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fairlead/fairlead/pkg/blob/s3"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbridge"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/archive"
	"github.com/fairlead/fairlead/pkg/joblog/cloudwatch"
	logtable "github.com/fairlead/fairlead/pkg/joblog/dynamo"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
)

// LogIndex wires the function that receives the deliveries of log groups and the events of
// ended jobs.
func LogIndex(_ context.Context, p Process[config.LogIndex]) (any, error) {
	c := p.Config
	live, err := logtable.New(p.AWS, logtable.Options{Table: c.LogTable, Poll: logPoll, Now: time.Now})
	if err != nil {
		return nil, err
	}
	blobs, err := s3.New(p.AWS, s3.Options{Bucket: c.LogArchive})
	if err != nil {
		return nil, err
	}
	x := logIndex{jobs: store.New(dynamo.New(p.AWS, c.Table)), log: archive.New(live, blobs), groups: c.LogGroupPrefix, aws: p.AWS, logger: p.Logger}
	x.subscriber = &cloudwatch.Subscriber{Log: live, Groups: c.LogGroupPrefix, Record: x.record, Logger: p.Logger,
		Budget: joblog.BudgetOf(c.LogBurst, c.LogPerHour), Now: time.Now,
		Owns: func(ctx context.Context, install string, s joblog.Stream) (string, error) {
			runner, err := control.OwnsLog(ctx, x.jobs, fairlead.InstallID(install), s)
			return string(runner), err
		}}
	return x.handle, nil
}

// logIndex is the state that the function's invocations share.
type logIndex struct {
	jobs       *store.Store
	log        *archive.Log
	subscriber *cloudwatch.Subscriber
	groups     string
	aws        aws.Config
	logger     *slog.Logger
}

func (x logIndex) record(group string) *cloudwatch.Transport {
	return cloudwatch.NewTransport(x.aws, group, time.Now)
}

// handle handles an invocation by a subscription or by the event bus. If handle returns an error,
// Lambda repeats the invocation, and reports it if the last attempt fails. Events and deliveries
// that do not concern this function are not an error. Refused pieces of a log are not an error
// either.
func (x logIndex) handle(ctx context.Context, event json.RawMessage) error {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	var kind struct {
		Logs   *events.CloudwatchLogsRawData `json:"awslogs"`
		Detail json.RawMessage               `json:"detail"`
	}
	if err := json.Unmarshal(event, &kind); err != nil {
		return fmt.Errorf("the invocation is no JSON object: %w", err)
	}
	switch {
	case kind.Logs != nil:
		return x.delivered(ctx, kind.Logs.Data)
	case kind.Detail != nil:
		return x.happened(ctx, event)
	}
	return errors.New("the invocation comes neither from a subscription nor from the event bus")
}

// maxDelivery limits the unpacked bytes of a subscription's delivery. The service packs about 1 MB
// at a time; a Lambda payload of 6 MB could unpack to a thousand times its size.
const maxDelivery = 32 << 20

func (x logIndex) delivered(ctx context.Context, data string) error {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return fmt.Errorf("the delivery is not gzip: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxDelivery+1))
	if err != nil {
		return fmt.Errorf("the delivery is not gzip: %w", err)
	}
	if len(text) > maxDelivery {
		return fmt.Errorf("the delivery unpacks to more than %d bytes", maxDelivery)
	}
	var d struct { // the used fields of events.CloudwatchLogsData; the other fields may have any type
		MessageType string `json:"messageType"`
		LogGroup    string `json:"logGroup"`
		LogStream   string `json:"logStream"`
		LogEvents   []struct {
			Message   string `json:"message"`
			Timestamp int64  `json:"timestamp"` // in milliseconds since 1970, from the writer's clock
		} `json:"logEvents"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("the delivery's JSON cannot be read: %w", err)
	}
	if d.MessageType != "DATA_MESSAGE" {
		return nil // CONTROL_MESSAGE: the service checks that the function is reachable
	}
	delivery := cloudwatch.Delivery{Group: d.LogGroup, Stream: d.LogStream}
	oldest := time.Now()
	for _, e := range d.LogEvents {
		delivery.Messages = append(delivery.Messages, e.Message)
		if at := time.UnixMilli(e.Timestamp); e.Timestamp > 0 && at.Before(oldest) {
			oldest = at
		}
	}
	if late, ok := cloudwatch.LateDelivery(delivery, oldest, time.Now()); ok {
		x.logger.Warn("lines of a job were delivered late", slog.Any("", late))
	}
	taken, err := x.subscriber.Take(ctx, delivery)
	x.logger.Debug("took a delivery", "group", d.LogGroup, "stream", d.LogStream, "pieces", taken.Pieces, "refused", taken.Refused)
	return err
}

// happened archives the logs of a job that has ended.
func (x logIndex) happened(ctx context.Context, event []byte) error {
	e, err := eventbridge.Decode(event)
	if err != nil {
		return err
	}
	if !slices.Contains(store.FinalEvents(), e.Type) {
		return nil
	}
	j, err := x.jobs.Job(ctx, fairlead.JobID(e.Subject))
	if err != nil {
		return fmt.Errorf("archive logs: %w", err)
	}
	var record archive.Record // nil for a job without an install
	if j.V.Install != "" {
		record = x.record(x.groups + string(j.V.Install))
	}
	kept, err := x.log.Keep(ctx, e.Subject, record)
	x.logger.Info("archived logs", slog.Any("", archive.Archived{Kept: kept, Job: e.Subject, Ran: j.V.Finished.Sub(cmp.Or(j.V.Started, j.V.Finished))}))
	return err
}
