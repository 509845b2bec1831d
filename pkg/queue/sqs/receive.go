package sqs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/pkg/queue"
)

// A long poll cannot be cancelled: SQS may give a message to a connection that the caller has closed, and the message
// then stays hidden until its hiding ends. So a receiver that leaves early leaves its poll running. The next receiver
// of the queue takes over the poll and its message. If no receiver waits, the message is released.

// poll is one request for a message.
type poll struct {
	done chan struct{} // closed when the fields below are set
	m    types.Message
	got  bool
	err  error
}

// idlePolls are the polls that their receivers have left, by queue.
type idlePolls struct {
	mu     sync.Mutex
	byName map[string][]*poll
}

// leave makes the poll idle.
func (i *idlePolls) leave(name string, p *poll) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.byName[name] = append(i.byName[name], p)
}

// takeOver returns an idle poll and marks it as used, or returns nil.
func (i *idlePolls) takeOver(name string) *poll {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.byName[name]) == 0 {
		return nil
	}
	p := i.byName[name][0]
	i.remove(name, p)
	return p
}

// claim removes the poll from the idle polls. It reports whether the poll was idle.
func (i *idlePolls) claim(name string, p *poll) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.remove(name, p)
}

func (i *idlePolls) remove(name string, p *poll) bool {
	at := slices.Index(i.byName[name], p)
	if at < 0 {
		return false
	}
	if i.byName[name] = slices.Delete(i.byName[name], at, at+1); len(i.byName[name]) == 0 {
		delete(i.byName, name)
	}
	return true
}

// grace has two uses. An idle poll keeps a message this long for the next receiver before
// it releases the message. And a receiver that does not wait looks at an idle poll this
// long, because a message can arrive on one connection after the empty response on another.
const grace = 200 * time.Millisecond

// Receive implements queue.Queue. It waits across processes: SQS wakes it.
func (q *Queue) Receive(ctx context.Context, name string, hide, wait time.Duration) (queue.Message, error) {
	if err := queue.CheckReceive(name, hide, wait); err != nil {
		return queue.Message{}, err
	}
	end := q.options.Now().Add(wait)
	for ctx.Err() == nil {
		left := max(end.Sub(q.options.Now()), 0)
		idle := q.idle.takeOver(name)
		if idle != nil && wholeSeconds(left) > 0 {
			if m, err := q.inherit(ctx, name, idle, hide, left); m != nil || err != nil {
				return orNone(m), err
			}
			idle, left = nil, max(end.Sub(q.options.Now()), 0)
		}
		p := q.start(ctx, name, hide, left)
		got, err := q.await(ctx, name, p, left+pollTimeout)
		switch {
		case got, err != nil, p.failure() != nil:
			if idle != nil {
				q.abandon(name, idle)
			}
			if !got {
				return queue.Message{}, cmp.Or(err, p.failure())
			}
			return q.deliver(name, p.m, hide), nil
		case idle != nil: // the message may be on its way to the idle poll
			if m, err := q.inherit(ctx, name, idle, hide, grace); m != nil || err != nil {
				return orNone(m), err
			}
		}
		if wholeSeconds(end.Sub(q.options.Now())) == 0 {
			return queue.Message{}, queue.ErrNoMessage
		}
	}
	return queue.Message{}, ctx.Err()
}

func orNone(m *queue.Message) queue.Message {
	if m == nil {
		return queue.Message{}
	}
	return *m
}

// inherit waits for the message of an idle poll. It returns nil if the poll brings no message.
func (q *Queue) inherit(ctx context.Context, name string, p *poll, hide, limit time.Duration) (*queue.Message, error) {
	got, err := q.await(ctx, name, p, limit)
	if !got || err != nil {
		return nil, err
	}
	// The message is hidden for as long as the earlier receiver asked.
	if q.hide(ctx, name, handleOf(p.m), hide) != nil {
		return nil, ctx.Err() // another receiver owns the message, or it becomes visible again
	}
	m := q.deliver(name, p.m, hide)
	return &m, nil
}

// wholeSeconds rounds a wait down, but a wait that began a moment ago keeps its full length. A past wait is zero.
func wholeSeconds(wait time.Duration) int32 { return int32((max(wait, 0) + grace) / time.Second) }

// await waits for the poll to end, at most for limit, and reports whether it brought a message. It leaves an unfinished
// poll to the next receiver. The error is that of ctx.
func (q *Queue) await(ctx context.Context, name string, p *poll, limit time.Duration) (bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.got, nil
	case <-ctx.Done():
		q.abandon(name, p)
		return false, ctx.Err()
	case <-timer.C:
		q.abandon(name, p)
		return false, nil
	}
}

// start sends a request for a message in the background.
func (q *Queue) start(ctx context.Context, name string, hide, wait time.Duration) *poll {
	p := &poll{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		ctx := context.WithoutCancel(ctx) // the client's timeout limits it
		p.err = q.use(ctx, name, "receive from queue "+name, func(url string) error {
			out, err := q.poll.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
				QueueUrl: &url, MaxNumberOfMessages: 1,
				VisibilityTimeout: seconds(hide), WaitTimeSeconds: wholeSeconds(wait),
				MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
			})
			if err == nil && len(out.Messages) > 0 {
				p.m, p.got = out.Messages[0], true
			}
			return err
		})
	}()
	return p
}

// failure returns the error of the poll, or nil while the poll is running.
func (p *poll) failure() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// abandon leaves the poll to the next receiver.
func (q *Queue) abandon(name string, p *poll) {
	q.idle.leave(name, p)
	go func() {
		<-p.done
		time.Sleep(grace)
		if !q.idle.claim(name, p) || !p.got {
			return // a receiver waits for the poll, or it brought no message
		}
		// No caller can receive an error here; the message becomes visible again by itself.
		_ = q.hide(context.Background(), name, handleOf(p.m), 0)
	}()
}

// deliver records the delivery, which hides the message for the duration hide.
func (q *Queue) deliver(name string, m types.Message, hide time.Duration) queue.Message {
	h := handleOf(m)
	// SQS always sends the requested attribute. The number of a delivery is at least 1.
	n, _ := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	n = max(n, 1)
	q.ledger.delivered(h, n, hide)
	return queue.Message{ID: h.message, Body: decode(aws.ToString(m.Body)), Receipt: h.receipt(name), Receives: n}
}

func handleOf(m types.Message) handle {
	return handle{message: aws.ToString(m.MessageId), value: aws.ToString(m.ReceiptHandle)}
}
