// Package sqs keeps each queue in one SQS standard queue, with another one for
// its dead letters.
//
// What SQS promises less of than a queue inside one process:
//
//   - Messages repeat and overtake each other, as the contract says they may,
//     and a receive that does not wait asks some of SQS's servers only, so that
//     it may find nothing although there is a message.
//   - An old receipt is refused where this process has received the message
//     again. Where another one has, SQS may accept the delete and do nothing, or
//     delete the message.
//   - A message becomes a dead letter at the next attempt to receive it.
//   - A dropped queue may take and give messages for another minute, and its
//     name cannot be used again before that.
//   - Times are whole seconds: a hiding and a delay are rounded up, a wait down.
package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
)

// Options says how the queues of one control plane are made and found.
type Options struct {
	// Prefix begins the names of all queues in SQS: up to 42 letters, digits,
	// hyphens and underscores. It keeps the control planes of one account apart.
	Prefix string
	// MaxReceives is after how many deliveries a message becomes a dead letter:
	// 1 to 1,000. The same for all who use the queues.
	MaxReceives int
	// Make lets the first use of a queue make it, as the contract says. Without
	// it a queue that is missing is an error of KindNotFound: a runner's role
	// makes no queues.
	Make bool
	// KMSKey encrypts the messages: a key's id, ARN or alias. "" leaves that to a
	// key of SQS's own, which costs nothing.
	KMSKey string
	// Tags are put on every queue that is made.
	Tags map[string]string
	// Now is the clock that measures waits.
	Now func() time.Time
}

// prefixPattern is compiled when it is first needed, by those that use a queue.
var prefixPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]*$`) })

// Queue is a queue.Queue. Safe for concurrent use. It remembers the URL of
// every queue that it has used, some 200 bytes each.
type Queue struct {
	client  *sqs.Client
	poll    *sqs.Client // with time for a long poll
	options Options

	mu   sync.Mutex
	urls map[string]string // by the name in SQS

	idle   idlePolls
	ledger ledger
}

var (
	_ queue.Queue = (*Queue)(nil)
	_ queue.Maker = (*Queue)(nil)
)

// How long one attempt of a request may take beyond what it was asked to wait.
// SQS answers within milliseconds.
const (
	attemptTimeout = 10 * time.Second
	pollTimeout    = queue.MaxWait + attemptTimeout
)

// New returns the queues that o describes. It sends nothing.
func New(cfg aws.Config, o Options) (*Queue, error) {
	switch {
	case len(o.Prefix) > maxPrefix || !prefixPattern().MatchString(o.Prefix):
		return nil, fairlead.Invalid(fairlead.CodeInvalidQueuePrefix, "%.100q cannot begin the names of queues: up to %d letters, digits, hyphens and underscores do", o.Prefix, maxPrefix)
	case o.MaxReceives < 1 || o.MaxReceives > 1000: // SetQueueAttributes, RedrivePolicy
		return nil, fairlead.Invalid(fairlead.CodeInvalidMaxReceives, "a message cannot become a dead letter after %d deliveries: 1 to 1,000 are possible", o.MaxReceives)
	case o.Now == nil:
		return nil, fairlead.Invalid(fairlead.CodeInvalidQueueOptions, "the queues were given no clock")
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
	// The receipt is one of this queue's. If its message is not there, or the
	// queue is not, it is gone.
	if isMissing(err) || isOldReceipt(err) {
		err = nil
	}
	if err == nil {
		q.ledger.gone(h)
	}
	return awsapi.Classify(ctx, "SQS", "delete from queue "+name, err)
}

// Extend implements queue.Queue. SQS hides a message for no more than 12 hours
// in all from its delivery on; a longer hiding is refused as a dead receipt is.
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

// The dead letters that are being taken are hidden for a while from others who
// take some; those whose taker died come out again after it.
const hideDead = 30 * time.Second

// maxBatch is the most messages in one request.
const maxBatch = 10

// DeadLetters implements queue.Queue. It asks all of SQS's servers, so finding
// none takes it a second.
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

// takeDead receives messages and deletes them in one request for all. What
// could not be deleted is not taken: it comes out again.
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
			return nil, fmt.Errorf("SQS says that it deleted entry %q of %d", aws.ToString(d.Id), len(out.Messages))
		}
		m := out.Messages[i]
		taken = append(taken, queue.Message{
			ID: aws.ToString(m.MessageId), Body: decode(aws.ToString(m.Body)),
			Receives: q.options.MaxReceives, // SQS's own count goes on in the other queue
		})
	}
	if len(taken) == 0 {
		f := deleted.Failed[0]
		return nil, fmt.Errorf("SQS deleted none of %d messages: %s: %s", len(entries), aws.ToString(f.Code), aws.ToString(f.Message))
	}
	return taken, nil
}

// seconds rounds up: a message that shows a moment too late does no harm.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// use is find for what a missing queue does not excuse: it makes the queue, if
// it may.
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
			Message: op + ": there is no such queue",
			Hint:    "It is made with its runner and removed with it.",
			Err:     err,
		}
	}
	return awsapi.Classify(ctx, "SQS", op, err)
}

// find runs do with the URL of the queue.
func (q *Queue) find(ctx context.Context, name string, do func(url string) error) error {
	live, _ := names(q.options.Prefix, name)
	return q.findNamed(ctx, live, do)
}

// findNamed runs do with the URL of the queue of that name in SQS.
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

// isMissing reports whether there is no such queue.
func isMissing(err error) bool {
	_, typed := errors.AsType[*types.QueueDoesNotExist](err)
	return typed || awsapi.Code(err) == "AWS.SimpleQueueService.NonExistentQueue" // the query protocol's name
}

// isOldReceipt reports whether the handle gives no right to a message. SQS
// calls a message that is gone or visible an invalid parameter (errors of
// ChangeMessageVisibility); all else that we give it has been checked.
func isOldReceipt(err error) bool {
	if _, ok := errors.AsType[*types.ReceiptHandleIsInvalid](err); ok {
		return true
	}
	if _, ok := errors.AsType[*types.MessageNotInflight](err); ok {
		return true
	}
	return awsapi.Code(err) == "InvalidParameterValue"
}
