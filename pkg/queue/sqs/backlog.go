package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/queue"
)

// Backlog is a queue from which Lambda receives for a function. Messages that the function does not finish return; Hide
// sets when. With Send a function starts itself later. Safe for concurrent use.
type Backlog struct {
	client *sqs.Client
	url    string
}

// NewBacklog returns the queue at the URL. It sends nothing.
func NewBacklog(cfg aws.Config, url string) *Backlog {
	if url == "" {
		panic("sqs: the queue URL is empty")
	}
	return &Backlog{url: url, client: sqs.NewFromConfig(awsapi.Bound(cfg, backlogTimeout))}
}

// backlogTimeout limits one attempt of one request.
const backlogTimeout = 5 * time.Second

// Hide hides a received message for the duration d from now on. It rounds d up to seconds, and limits it to
// queue.MaxHide.
func (b *Backlog) Hide(ctx context.Context, receipt string, d time.Duration) error {
	_, err := b.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &b.url, ReceiptHandle: &receipt, VisibilityTimeout: seconds(min(d, queue.MaxHide))})
	return awsapi.Classify(ctx, "SQS", "hide a message of "+b.url, err)
}

// Send sends a message with the body for each of the delays, all in one request: at most ten, of up to queue.MaxDelay
// each, rounded to seconds. If SQS refuses some of them, the error lists each refused one.
func (b *Backlog) Send(ctx context.Context, body string, delays ...time.Duration) error {
	entries := make([]types.SendMessageBatchRequestEntry, len(delays))
	for i, d := range delays {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i + 1)), MessageBody: &body, DelaySeconds: seconds(d)}
	}
	op := "send to " + b.url
	out, err := b.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &b.url, Entries: entries})
	if err != nil {
		return awsapi.Classify(ctx, "SQS", op, err)
	}
	var refused []error
	for _, f := range out.Failed {
		refused = append(refused, fmt.Errorf("message %s of %d: %s: %s", aws.ToString(f.Id), len(entries), aws.ToString(f.Code), aws.ToString(f.Message)))
	}
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
