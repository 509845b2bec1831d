// Package deadletter replays the messages that the functions of a control plane on AWS gave
// up. A dead-letter queue of a function has messages of four forms, because four services
// send to it:
//
//   - Lambda, for an asynchronous invocation: the envelope contains the event
//   - Lambda, for a batch of the table's stream: the envelope contains the position of the
//     records, which the stream keeps for 24 hours
//   - EventBridge, for a target of a rule: the message is the event
//   - SQS, for a message that was received too often: the message is the original one
//
// SQS can redrive only the last form.
package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/awsapi"
)

// Queues returns the logical IDs of the dead-letter queues in a control plane's stack, by the
// function's name.
func Queues() map[string]string {
	return map[string]string{"dispatch": "DispatchDeadLetters", "audit": "AuditDeadLetters", "sweep": "SweepDeadLetters", "logindex": "LogIndexDeadLetters", "webhook": "WebhookDeadLetters"}
}

// Outcome is what happened to a message.
type Outcome string

// The outcomes of a message. Every message that is not replayed stays in its queue.
const (
	Replayed Outcome = "replayed" // the function or the queue has it again; removed from the dead letters
	Failed   Outcome = "failed"   // the function failed again, or refused a part of it
	Expired  Outcome = "expired"  // the stream no longer has its records; only Options.Discard removes it
	Foreign  Outcome = "foreign"  // it has no known form, or names a resource outside the stack
)

// Message is the result for one message.
type Message struct {
	ID      string // of SQS
	Outcome Outcome
	Target  string // ARN of the function or queue; "" if it is not known
	Detail  string // why it was not replayed; no part of the message, which can contain customers' data
}

// Options of New.
type Options struct {
	// Prefix is the start of the names of the stack's functions and queues, such as
	// "fairlead-prod-". A message can name no other function or queue.
	Prefix string
	// Discard removes messages whose records the stream no longer has.
	Discard bool
	// HTTP sends the requests to the stream; nil: http.DefaultClient.
	HTTP *http.Client
}

// Replayer replays dead letters with the permissions of its caller. Safe for concurrent use.
type Replayer struct {
	o      Options
	cfg    aws.Config
	queues *sqs.Client
	stacks *cloudformation.Client
	lambda *lambda.Client
}

// invokeFor bounds one invocation: the longest timeout of a function, and the time for the
// request.
const invokeFor = 6 * time.Minute

// New returns a Replayer. It sends nothing.
func New(cfg aws.Config, o Options) *Replayer {
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	return &Replayer{o: o, cfg: cfg, queues: sqs.NewFromConfig(awsapi.Bound(cfg, 30*time.Second)), stacks: cloudformation.NewFromConfig(awsapi.Bound(cfg, 30*time.Second)),
		// An invocation can have an effect also if its answer is lost, so the SDK does not repeat it.
		lambda: lambda.NewFromConfig(awsapi.Bound(cfg, invokeFor), func(lo *lambda.Options) { lo.RetryMaxAttempts = 1 })}
}

// QueueOf returns the URL of the queue with the logical ID in a CloudFormation stack.
func (r *Replayer) QueueOf(ctx context.Context, stack, id string) (string, error) {
	found, err := r.stacks.DescribeStackResource(ctx, &cloudformation.DescribeStackResourceInput{StackName: &stack, LogicalResourceId: &id})
	if err != nil {
		return "", awsapi.Classify(ctx, "CloudFormation", "find the queue "+id+" of the stack "+stack, err)
	}
	return aws.ToString(found.StackResourceDetail.PhysicalResourceId), nil
}

// hidden is how long a received message stays invisible. A message that this run did not
// replay must not come back during the run.
const hidden = 15 * time.Minute

// maxMessages bounds one run.
const maxMessages = 10_000

// Replay replays the messages of the dead-letter queue at the URL, up to maxMessages. It
// calls report for each message. Each message is handled alone, so a poison message does
// not keep the others from being replayed. A message whose removal fails is replayed again
// by a later run: the functions accept repeated events.
func (r *Replayer) Replay(ctx context.Context, url string, report func(Message)) error {
	for n := 0; n < maxMessages; {
		out, err := r.queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1,
			VisibilityTimeout: int32(hidden / time.Second), MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameDeadLetterQueueSourceArn}})
		if err != nil {
			return awsapi.Classify(ctx, "SQS", "receive from "+url, err)
		}
		if len(out.Messages) == 0 {
			return nil
		}
		for _, m := range out.Messages {
			n++
			done := r.one(ctx, m)
			if done.Outcome == Replayed || done.Outcome == Expired && r.o.Discard {
				if _, err := r.queues.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
					return awsapi.Classify(ctx, "SQS", "delete message "+done.ID+" of "+url, err)
				}
			}
			report(done)
		}
	}
	return nil
}

// envelope is the message of Lambda for an invocation that failed.
type envelope struct {
	RequestContext struct {
		FunctionArn string `json:"functionArn"`
	} `json:"requestContext"`
	RequestPayload json.RawMessage `json:"requestPayload"` // of an asynchronous invocation
	Batch          *batch          `json:"DDBStreamBatchInfo"`
}

// one replays one message.
func (r *Replayer) one(ctx context.Context, m types.Message) Message {
	out := Message{ID: aws.ToString(m.MessageId), Outcome: Foreign}
	body := []byte(aws.ToString(m.Body))
	var e envelope
	_ = json.Unmarshal(body, &e) // a message of another form leaves the envelope empty
	source := m.Attributes[string(types.MessageSystemAttributeNameDeadLetterQueueSourceArn)]
	var err error
	switch {
	case e.Batch != nil:
		out.Target = e.RequestContext.FunctionArn
		var records []json.RawMessage
		if records, err = r.records(ctx, *e.Batch); err == nil {
			err = r.invoke(ctx, out.Target, map[string]any{"Records": records})
		}
	case len(e.RequestPayload) > 0:
		out.Target = e.RequestContext.FunctionArn
		err = r.invoke(ctx, out.Target, e.RequestPayload)
	case m.MessageAttributes["TARGET_ARN"].StringValue != nil:
		out.Target = *m.MessageAttributes["TARGET_ARN"].StringValue
		err = r.deliver(ctx, out.Target, body)
	case source != "":
		out.Target = source
		err = r.deliver(ctx, source, body)
	default:
		err = errForeign
	}
	switch {
	case err == nil:
		out.Outcome = Replayed
	case errors.Is(err, errExpired):
		out.Outcome, out.Detail = Expired, err.Error()
	case errors.Is(err, errForeign):
		out.Detail = err.Error()
	default:
		out.Outcome, out.Detail = Failed, err.Error()
	}
	return out
}

var (
	errForeign = errors.New("the message has no known form, or names a function or queue of another stack")
	errExpired = errors.New("the table's stream keeps records for 24 hours, and these records are older; the sweep has sent their wake-ups")
)

// deliver gives an event to a function or a queue.
func (r *Replayer) deliver(ctx context.Context, target string, body []byte) error {
	arn := strings.SplitN(target, ":", 6) // arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE
	if len(arn) == 6 && arn[2] == "lambda" {
		return r.invoke(ctx, target, json.RawMessage(body))
	}
	if len(arn) != 6 || arn[2] != "sqs" || !strings.HasPrefix(arn[5], r.o.Prefix) {
		return errForeign
	}
	found, err := r.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &arn[5], QueueOwnerAWSAccountId: &arn[4]})
	if err != nil {
		return awsapi.Classify(ctx, "SQS", "find the queue "+arn[5], err)
	}
	_, err = r.queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: found.QueueUrl, MessageBody: aws.String(string(body))})
	return awsapi.Classify(ctx, "SQS", "send to "+arn[5], err)
}

// invoke invokes a function and waits for its answer.
func (r *Replayer) invoke(ctx context.Context, function string, event any) error {
	name, ok := functionName(function)
	if !ok || !strings.HasPrefix(name, r.o.Prefix) {
		return errForeign
	}
	payload, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode the event of %s: %w", name, err)
	}
	out, err := r.lambda.Invoke(ctx, &lambda.InvokeInput{FunctionName: &function, Payload: payload})
	if err != nil {
		return awsapi.Classify(ctx, "Lambda", "invoke "+name, err)
	}
	if out.FunctionError != nil {
		return fmt.Errorf("%s failed again; its log has the error", name)
	}
	var answer struct {
		Failures []json.RawMessage `json:"batchItemFailures"`
	}
	_ = json.Unmarshal(out.Payload, &answer) // a function without batches answers something else
	if n := len(answer.Failures); n > 0 {
		return fmt.Errorf("%s refused %d records again; its log has the error", name, n)
	}
	return nil
}

// functionName returns the name in the ARN of a function:
// arn:PARTITION:lambda:REGION:ACCOUNT:function:NAME, and after it perhaps a qualifier.
func functionName(arn string) (string, bool) {
	parts := strings.Split(arn, ":")
	if len(parts) < 7 || parts[2] != "lambda" || parts[5] != "function" {
		return "", false
	}
	return parts[6], true
}
