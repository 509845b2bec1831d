package sqs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
)

const (
	// retention is how long SQS keeps a message that no agent receives. The table
	// is the truth: the sweep sends new wake-ups to a runner that was away longer.
	retention = 4 * 24 * time.Hour
	// deadRetention is SQS's longest. The time in the other queue counts.
	deadRetention = 14 * 24 * time.Hour
	// keyReuse is how long SQS uses a data key before it asks KMS for the next
	// one, which costs: SQS's default.
	keyReuse = 5 * time.Minute
)

// Make makes the queue and the one of its dead letters, encrypted and closed
// to requests without TLS, and tags both; or brings those that are there to
// that form. It is called where a runner is made, and harmless to repeat.
// Tags are added to those of Options.
//
// A name that was dropped less than a minute ago is of KindUnavailable.
func (q *Queue) Make(ctx context.Context, name string, tags map[string]string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	live, dead := names(q.options.Prefix, name)
	all := maps.Clone(q.options.Tags)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, tags)
	op := "make queue " + name

	// Dead letters first: the other refers to them. A crash in between leaves a
	// queue that costs nothing, and the repeat goes on from there.
	url, err := q.ensure(ctx, dead, q.attributes(deadRetention), all)
	if err != nil {
		return classifyMake(ctx, op, err)
	}
	out, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return classifyMake(ctx, op, err)
	}
	deadARN := out.Attributes[string(types.QueueAttributeNameQueueArn)]
	attributes := q.attributes(retention)
	redrive, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": deadARN, "maxReceiveCount": strconv.Itoa(q.options.MaxReceives),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	attributes[string(types.QueueAttributeNameRedrivePolicy)] = string(redrive)
	liveURL, err := q.ensure(ctx, live, attributes, all)
	if err != nil {
		return classifyMake(ctx, op, err)
	}
	q.remember(dead, url)
	q.remember(live, liveURL)
	return nil
}

func (q *Queue) attributes(retention time.Duration) map[string]string {
	a := map[string]string{
		string(types.QueueAttributeNameMessageRetentionPeriod): strconv.Itoa(int(retention / time.Second)),
		string(types.QueueAttributeNamePolicy):                 tlsOnly,
		// The SDK sends no zeros: a receiver that wants to hide a message for no
		// time, or not to wait, gets what the queue says.
		string(types.QueueAttributeNameVisibilityTimeout):             "0",
		string(types.QueueAttributeNameReceiveMessageWaitTimeSeconds): "0",
	}
	if q.options.KMSKey == "" {
		a[string(types.QueueAttributeNameSqsManagedSseEnabled)] = "true"
		return a
	}
	a[string(types.QueueAttributeNameKmsMasterKeyId)] = q.options.KMSKey
	a[string(types.QueueAttributeNameKmsDataKeyReusePeriodSeconds)] = strconv.Itoa(int(keyReuse / time.Second))
	return a
}

// tlsOnly is the policy of every queue. In a queue's policy the resource is
// that queue.
const tlsOnly = `{"Version":"2012-10-17","Statement":[{"Sid":"TLSOnly","Effect":"Deny","Principal":"*",` +
	`"Action":"sqs:*","Resource":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}`

// ensure makes a queue, or gives the one that is there the attributes and the
// tags, and returns its URL.
func (q *Queue) ensure(ctx context.Context, sqsName string, attributes, tags map[string]string) (string, error) {
	out, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &sqsName, Attributes: attributes, Tags: tags})
	if err == nil {
		return aws.ToString(out.QueueUrl), nil
	}
	if _, ok := errors.AsType[*types.QueueNameExists](err); !ok && !strings.HasSuffix(awsapi.Code(err), "QueueAlreadyExists") {
		return "", err
	}
	found, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &sqsName})
	if err != nil {
		return "", err
	}
	if _, err := q.client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: found.QueueUrl, Attributes: attributes}); err != nil {
		return "", err
	}
	if len(tags) > 0 {
		if _, err := q.client.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: found.QueueUrl, Tags: tags}); err != nil {
			return "", err
		}
	}
	return aws.ToString(found.QueueUrl), nil
}

func classifyMake(ctx context.Context, op string, err error) error {
	if _, ok := errors.AsType[*types.QueueDeletedRecently](err); ok {
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeQueueDeletedRecently,
			Message: op + ": a queue of that name was removed less than 60 seconds ago",
			Hint:    "Repeat the request in a minute.",
			Err:     err,
		}
	}
	return awsapi.Classify(ctx, "SQS", op, err)
}

// Drop implements queue.Queue.
func (q *Queue) Drop(ctx context.Context, name string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	live, dead := names(q.options.Prefix, name)
	for _, n := range []string{live, dead} { // in this order a crash leaves no queue without dead letters
		err := q.findNamed(ctx, n, func(url string) error {
			_, err := q.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url})
			return err
		})
		if err != nil && !isMissing(err) {
			return awsapi.Classify(ctx, "SQS", "drop queue "+name, err)
		}
	}
	q.forget(live, dead)
	return nil
}
