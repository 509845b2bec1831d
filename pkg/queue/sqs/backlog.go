package sqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/queue"
)

// Backlog is a queue that Lambda receives from, in a function's name. What the
// function does not finish comes again; Hide says when. Safe for concurrent use.
type Backlog struct {
	client *sqs.Client
	url    string
}

// NewBacklog returns the queue at the URL. It sends nothing.
func NewBacklog(cfg aws.Config, url string) *Backlog {
	if url == "" {
		panic("sqs: no queue is named")
	}
	return &Backlog{url: url, client: sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.HTTPClient = awsapi.Bounded(o.HTTPClient, backlogTimeout) })}
}

// backlogTimeout bounds one attempt of one request.
const backlogTimeout = 5 * time.Second

// Hide hides a received message for at least d from now on, to the second, and
// at most queue.MaxHide.
func (b *Backlog) Hide(ctx context.Context, receipt string, d time.Duration) error {
	seconds := (min(d, queue.MaxHide) + time.Second - 1) / time.Second
	_, err := b.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &b.url, ReceiptHandle: &receipt, VisibilityTimeout: int32(seconds)})
	return awsapi.Classify(ctx, "SQS", "hide a message of "+b.url, err)
}
