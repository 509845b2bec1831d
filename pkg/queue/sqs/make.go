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
	// retention is how long SQS keeps a message that no agent receives. The table is the
	// source of truth: the sweep sends new wake-ups to a runner that was offline for
	// longer.
	retention = 4 * 24 * time.Hour
	// deadRetention is the longest retention that SQS permits. It includes the time in the main queue.
	deadRetention = 14 * 24 * time.Hour
	// keyReuse is how long SQS uses a data key before it requests the next one from KMS,
	// which costs money. It is the default of SQS.
	keyReuse = 5 * time.Minute
)

// Make creates the queue and its dead-letter queue, encrypted and closed to requests
// without TLS, and tags both. It changes existing queues to these settings. It adds tags to
// those of Options. It runs when a runner is created; repeating it is harmless.
//
// For a name dropped less than a minute ago, it returns an error of KindUnavailable.
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

	// The dead-letter queue is first, because the main queue refers to it. After a crash between the two calls, the
	// dead-letter queue exists and costs nothing. A repeat of Make continues there.
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
		// The SDK sends no zeros. Without these defaults a receiver could not hide a
		// message for 0 s, or receive without a wait.
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

// tlsOnly is the policy of every queue. In a queue's policy "*" as resource means that
// queue.
const tlsOnly = `{"Version":"2012-10-17","Statement":[{"Sid":"TLSOnly","Effect":"Deny","Principal":"*",` +
	`"Action":"sqs:*","Resource":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}}]}`

// ensure creates a queue, or sets the attributes and tags of an existing one. It returns
// the queue's URL.
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
			Message: op + ": a queue of that name was deleted less than 60 seconds ago",
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
	for _, n := range []string{live, dead} { // with this order, a crash never leaves a queue without its dead-letter queue
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
