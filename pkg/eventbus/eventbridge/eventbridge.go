// Package eventbridge publishes domain events on an EventBridge bus.
//
// An entry has the source "fairlead", the event's type as its detail type, the subject as its only resource, and the
// event's JSON as its detail. A rule can match any of these fields, and a subscriber gets the whole event.
package eventbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/eventbus"
)

// Source is the source of every entry.
const Source = "fairlead"

// The limits of one PutEvents request, from EventBridge's documentation. The size of an entry is the sum of the sizes of
// its source, detail type, detail and resources, plus 14 bytes for the time.
const (
	maxEntries = 10
	maxRequest = 256 << 10
	timeSize   = 14
)

// attemptTimeout is the timeout of one attempt of one request.
const attemptTimeout = 10 * time.Second

// Bus implements eventbus.Bus. Safe for concurrent use.
type Bus struct {
	client *eventbridge.Client
	name   string
}

var _ eventbus.Bus = (*Bus)(nil)

// New returns the bus with the name or ARN. It sends no request.
func New(cfg aws.Config, name string) *Bus {
	if name == "" {
		panic("eventbridge: the name of the bus is empty")
	}
	return &Bus{name: name, client: eventbridge.NewFromConfig(awsapi.Bound(cfg, attemptTimeout))}
}

// Publish implements eventbus.Bus. It fills requests up to the service's limits and sends them one after the other.
func (b *Bus) Publish(ctx context.Context, list []events.Domain) []error {
	errs := make([]error, len(list))
	var entries []types.PutEventsRequestEntry
	var indexes []int
	size, failed := 0, false
	send := func() {
		if len(entries) > 0 && b.put(ctx, entries, indexes, errs) {
			failed = true
		}
		entries, indexes, size = nil, nil, 0
	}
	for i, e := range list {
		detail, err := eventbus.Check(e)
		if err != nil {
			errs[i], failed = err, true
			continue
		}
		n := timeSize + len(Source) + len(e.Type) + len(detail) + len(e.Subject)
		if len(entries) == maxEntries || size+n > maxRequest {
			send()
		}
		entries = append(entries, types.PutEventsRequestEntry{
			EventBusName: &b.name, Source: aws.String(Source), DetailType: &e.Type, Detail: aws.String(string(detail)),
			Resources: []string{e.Subject}, Time: aws.Time(e.Time),
		})
		indexes = append(indexes, i)
		size += n
	}
	send()
	if !failed {
		return nil
	}
	return errs
}

// put sends one request, stores the errors of its entries in errs, and reports whether any entry has an error.
func (b *Bus) put(ctx context.Context, entries []types.PutEventsRequestEntry, indexes []int, errs []error) (failed bool) {
	op := "publish on bus " + b.name
	if err := ctx.Err(); err != nil {
		for _, i := range indexes {
			errs[i] = fmt.Errorf("%s: %w", op, err)
		}
		return true
	}
	out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
	if err == nil && len(out.Entries) != len(entries) {
		err = fmt.Errorf("EventBridge returned results for %d of %d entries", len(out.Entries), len(entries))
	}
	if err != nil {
		err = awsapi.Classify(ctx, "EventBridge", op, err)
		for _, i := range indexes {
			errs[i] = err
		}
		return true
	}
	for n, r := range out.Entries {
		if r.ErrorCode != nil {
			// Entries have the same error codes as requests.
			refusal := &smithy.GenericAPIError{Code: *r.ErrorCode, Message: aws.ToString(r.ErrorMessage)}
			errs[indexes[n]] = awsapi.Classify(ctx, "EventBridge", op, refusal)
			failed = true
		}
	}
	return failed
}

// Decode returns the event of a delivery to a subscriber of the bus: the body of a queue's message, or the payload of
// a function's invocation.
func Decode(delivery []byte) (events.Domain, error) {
	var envelope struct {
		Source string        `json:"source"`
		Type   string        `json:"detail-type"`
		Detail events.Domain `json:"detail"`
	}
	if err := json.Unmarshal(delivery, &envelope); err != nil {
		return events.Domain{}, fmt.Errorf("decode an event of EventBridge: %w", err)
	}
	if envelope.Source != Source || envelope.Type != envelope.Detail.Type {
		return events.Domain{}, errors.New("decode an event of EventBridge: it was not published by fairlead")
	}
	if _, err := eventbus.Check(envelope.Detail); err != nil {
		return events.Domain{}, err
	}
	return envelope.Detail, nil
}
