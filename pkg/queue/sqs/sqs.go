// Package sqs stores each queue in one SQS standard queue, with a second one for its dead
// letters.
//
// SQS guarantees less than a queue inside one process:
//
//   - Messages repeat and overtake each other, as the contract allows. A receive without a
//     wait asks only some of SQS's servers, so it may miss a message.
//   - An old receipt is refused if this process has received the message again. If another
//     process has, SQS may accept the delete and do nothing, or delete the message.
//   - A message becomes a dead letter at the next attempt to receive it.
//   - A dropped queue may accept and return messages for another minute. Its name cannot be
//     used again before that.
//   - Times are whole seconds: the queue rounds hide times and delays up, and waits down.
package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/queue"
)

// MaxReceives is the number of deliveries after which a wake-up becomes a dead letter. If a
// process dies during a claim, its wake-up is delivered again for the next claim. So two or
// three deliveries are normal.
const MaxReceives = 5

// Options are the settings of the queues of one control plane.
type Options struct {
	// Prefix is the start of the names of all queues in SQS: up to 42 letters, digits,
	// hyphens and underscores. It separates the control planes of one account.
	Prefix string
	// MaxReceives is the number of deliveries after which a message becomes a dead letter:
	// 1 to 1,000. All processes that create the queues must have the same number.
	MaxReceives int
	// Make creates a missing queue on its first use, as the contract requires. Without it,
	// a missing queue is an error of KindNotFound, because a runner's role may not create
	// queues.
	Make bool
	// KMSKey encrypts the messages: a key's id, ARN or alias. With "" SQS uses its own key,
	// which is free.
	KMSKey string
	// Tags are set on every queue that Make creates.
	Tags map[string]string
	// Now is the clock for waits.
	Now func() time.Time
}

// prefixPattern is compiled on first use, so that a process that uses no queue does not pay
// for it.
var prefixPattern = pattern.New(`^[A-Za-z0-9_-]*$`)

// Queue is a queue.Queue. Safe for concurrent use. It caches the URL of every used queue,
// about 200 bytes each.
type Queue struct {
	client  *sqs.Client
	poll    *sqs.Client // its timeout allows a long poll
	options Options

	mu   sync.Mutex
	urls map[string]string // by name in SQS

	idle   idlePolls
	ledger ledger
}

var (
	_ queue.Queue = (*Queue)(nil)
	_ queue.Maker = (*Queue)(nil)
)

// The timeouts of one attempt of a request. SQS answers within milliseconds; a long poll
// may take queue.MaxWait longer.
const (
	attemptTimeout = 10 * time.Second
	pollTimeout    = queue.MaxWait + attemptTimeout
)

// New returns the queues that o describes. It sends no request.
func New(cfg aws.Config, o Options) (*Queue, error) {
	switch {
	case len(o.Prefix) > maxPrefix || !prefixPattern.MatchString(o.Prefix):
		return nil, fairlead.Invalid(fairlead.CodeInvalidQueuePrefix, "%.100q cannot be the prefix of queue names: use up to %d letters, digits, hyphens and underscores", o.Prefix, maxPrefix)
	case o.MaxReceives < 1 || o.MaxReceives > 1000: // SetQueueAttributes, RedrivePolicy
		return nil, fairlead.Invalid(fairlead.CodeInvalidMaxReceives, "a message cannot become a dead letter after %d deliveries: 1 to 1,000 are allowed", o.MaxReceives)
	case o.Now == nil:
		return nil, fairlead.Invalid(fairlead.CodeInvalidQueueOptions, "the options of the queues have no clock")
	}
	return &Queue{
		client: sqs.NewFromConfig(awsapi.Bound(cfg, attemptTimeout)), poll: sqs.NewFromConfig(awsapi.Bound(cfg, pollTimeout)), options: o,
		urls: map[string]string{}, idle: idlePolls{byName: map[string][]*poll{}},
		ledger: ledger{now: o.Now, messages: map[string]entry{}},
	}, nil
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, name string, body []byte, delay time.Duration) error {
	if err := cmp.Or(queue.CheckSend(name, body, delay), ctx.Err()); err != nil {
		return err
	}
	text := encode(body)
	return q.use(ctx, name, "send to queue "+name, func(url string) error {
		_, err := q.client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: &url, MessageBody: &text, DelaySeconds: seconds(delay),
		})
		return err
	})
}

// Delete implements queue.Queue.
func (q *Queue) Delete(ctx context.Context, name, receipt string) error {
	if err := cmp.Or(queue.CheckName(name), ctx.Err()); err != nil {
		return err
	}
	h, err := readReceipt(name, receipt)
	if err != nil {
		return err
	}
	if q.ledger.superseded(h) {
		return queue.ErrReceipt
	}
	err = q.find(ctx, name, func(url string) error {
		_, err := q.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: &h.value})
		return err
	})
	// The receipt belongs to this queue. If the message or the queue is missing, the
	// message was already deleted.
	if isMissing(err) || isOldReceipt(err) {
		err = nil
	}
	if err == nil {
		q.ledger.gone(h)
	}
	return awsapi.Classify(ctx, "SQS", "delete from queue "+name, err)
}

// Extend implements queue.Queue. SQS hides a message for at most 12 hours in total since its delivery. For a longer
// time, SQS returns the same error as for an old receipt.
func (q *Queue) Extend(ctx context.Context, name, receipt string, hide time.Duration) error {
	if err := cmp.Or(queue.CheckExtend(name, hide), ctx.Err()); err != nil {
		return err
	}
	h, err := readReceipt(name, receipt)
	if err != nil {
		return err
	}
	if q.ledger.over(h) {
		return queue.ErrReceipt
	}
	err = q.hide(ctx, name, h, hide)
	if isMissing(err) || isOldReceipt(err) {
		return queue.ErrReceipt
	}
	return awsapi.Classify(ctx, "SQS", "extend in queue "+name, err)
}

func (q *Queue) hide(ctx context.Context, name string, h handle, hide time.Duration) error {
	err := q.find(ctx, name, func(url string) error {
		_, err := q.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
			QueueUrl: &url, ReceiptHandle: &h.value, VisibilityTimeout: seconds(hide),
		})
		return err
	})
	if err == nil {
		q.ledger.extended(h, hide)
	}
	return err
}

// hideDead hides dead letters during DeadLetters from other callers. The dead letters become visible again if the
// caller's process dies.
const hideDead = 30 * time.Second

// maxBatch is the maximum number of messages in one request.
const maxBatch = 10

// DeadLetters implements queue.Queue. It asks all of SQS's servers, so an empty result
// takes a second.
func (q *Queue) DeadLetters(ctx context.Context, name string, limit int) ([]queue.Message, error) {
	if err := cmp.Or(queue.CheckDeadLetters(name, limit), ctx.Err()); err != nil {
		return nil, err
	}
	_, dead := names(q.options.Prefix, name)
	var taken []queue.Message
	err := q.findNamed(ctx, dead, func(url string) error {
		var err error
		taken, err = q.takeDead(ctx, url, min(limit, maxBatch))
		return err
	})
	if isMissing(err) {
		return nil, nil
	}
	return taken, awsapi.Classify(ctx, "SQS", "take dead letters of queue "+name, err)
}

// takeDead receives messages and deletes them with one request. It does not return a
// message that SQS did not delete, because that message becomes visible again.
func (q *Queue) takeDead(ctx context.Context, url string, limit int) ([]queue.Message, error) {
	out, err := q.poll.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: int32(limit), WaitTimeSeconds: 1, VisibilityTimeout: seconds(hideDead),
	})
	if err != nil || len(out.Messages) == 0 {
		return nil, err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
	for i, m := range out.Messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	deleted, err := q.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return nil, err
	}
	taken := make([]queue.Message, 0, len(deleted.Successful))
	for _, d := range deleted.Successful {
		i, err := strconv.Atoi(aws.ToString(d.Id))
		if err != nil || i < 0 || i >= len(out.Messages) {
			return nil, fmt.Errorf("SQS reports the delete of entry %q, but the request had %d entries", aws.ToString(d.Id), len(out.Messages))
		}
		m := out.Messages[i]
		taken = append(taken, queue.Message{
			ID: aws.ToString(m.MessageId), Body: decode(aws.ToString(m.Body)),
			Receives: q.options.MaxReceives, // SQS continues its own count in the dead-letter queue
		})
	}
	if len(taken) == 0 {
		f := deleted.Failed[0]
		return nil, fmt.Errorf("SQS deleted none of %d messages: %s: %s", len(entries), aws.ToString(f.Code), aws.ToString(f.Message))
	}
	return taken, nil
}

// seconds rounds up: a message that becomes visible slightly too late does no harm.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// use is find for operations that need the queue: it creates a missing queue if
// Options.Make is set.
func (q *Queue) use(ctx context.Context, name, op string, do func(url string) error) error {
	err := q.find(ctx, name, do)
	if isMissing(err) && q.options.Make {
		if err := q.Make(ctx, name, nil); err != nil {
			return err
		}
		err = q.find(ctx, name, do)
	}
	if isMissing(err) && !q.options.Make {
		return &fairlead.Error{
			Kind: fairlead.KindNotFound, Code: fairlead.CodeQueueNotFound,
			Message: op + ": the queue does not exist",
			Hint:    "The control plane creates the queue with its runner and removes it with the runner.",
			Err:     err,
		}
	}
	return awsapi.Classify(ctx, "SQS", op, err)
}

// find calls do with the URL of the queue.
func (q *Queue) find(ctx context.Context, name string, do func(url string) error) error {
	live, _ := names(q.options.Prefix, name)
	return q.findNamed(ctx, live, do)
}

// findNamed calls do with the URL of the queue that has this name in SQS.
func (q *Queue) findNamed(ctx context.Context, sqsName string, do func(url string) error) error {
	q.mu.Lock()
	url, known := q.urls[sqsName]
	q.mu.Unlock()
	if !known {
		out, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &sqsName})
		if err != nil {
			return err
		}
		url = aws.ToString(out.QueueUrl)
		q.remember(sqsName, url)
	}
	err := do(url)
	if isMissing(err) {
		q.forget(sqsName)
	}
	return err
}

func (q *Queue) remember(sqsName, url string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urls[sqsName] = url
}

func (q *Queue) forget(sqsNames ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range sqsNames {
		delete(q.urls, n)
	}
}

// isMissing reports whether the queue does not exist.
func isMissing(err error) bool {
	_, typed := errors.AsType[*types.QueueDoesNotExist](err)
	return typed || awsapi.Code(err) == "AWS.SimpleQueueService.NonExistentQueue" // the code of the query protocol
}

// isOldReceipt reports whether the handle owns no message. For a deleted or visible message
// SQS reports an invalid parameter (errors of ChangeMessageVisibility). All other
// parameters were checked before.
func isOldReceipt(err error) bool {
	if _, ok := errors.AsType[*types.ReceiptHandleIsInvalid](err); ok {
		return true
	}
	if _, ok := errors.AsType[*types.MessageNotInflight](err); ok {
		return true
	}
	return awsapi.Code(err) == "InvalidParameterValue"
}
