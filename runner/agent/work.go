package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/sqs"
)

// source is where an agent finds work. next waits for a job, at most about
// claimWait, and claims it, or returns client.ErrNoWork.
type source interface {
	next(ctx context.Context) (wire.Claim, error)
}

// viaAPI claims by a long poll of the runner API, which finds the wake-up.
type viaAPI struct{ session *session }

func (v viaAPI) next(ctx context.Context) (claim wire.Claim, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimWait+claimSlack)
	defer cancel()
	err = v.session.do(ctx, func(c *client.Client) (err error) {
		claim, err = c.Claim(ctx, claimWait)
		return err
	})
	return claim, err
}

const (
	// hideWake is how long a wake-up is hidden while its job is being claimed;
	// should that fail, it comes again after it.
	hideWake = 30 * time.Second
	// claimFor bounds the claim of a job that there is a wake-up of.
	claimFor = 15 * time.Second
	// detour is how long work is claimed through the API after the queue could
	// not be polled.
	detour = 2 * time.Minute
)

// viaQueue polls the runner's queue itself and claims what it is woken for.
type viaQueue struct {
	session *session
	queue   queue.Queue
	name    string
	log     *slog.Logger
}

// errQueue says that the queue itself could not be used, or is not to be.
type errQueue struct{ error }

func (v viaQueue) next(ctx context.Context) (wire.Claim, error) {
	msg, err := v.queue.Receive(ctx, v.name, hideWake, claimWait)
	if errors.Is(err, queue.ErrNoMessage) {
		return wire.Claim{}, client.ErrNoWork
	}
	if err != nil {
		return wire.Claim{}, errQueue{fmt.Errorf("receive from the runner's queue: %w", err)}
	}
	w, err := events.DecodeWake(msg.Body)
	if err != nil {
		// It stays hidden, comes back, and ends among the dead letters.
		v.log.Warn("a message that is no wake-up was refused", "message", msg.ID, "err", err)
		return wire.Claim{}, client.ErrNoWork
	}
	var claim wire.Claim
	bounded, cancel := context.WithTimeout(ctx, claimFor)
	defer cancel()
	err = v.session.do(bounded, func(c *client.Client) (err error) {
		claim, err = c.ClaimJob(bounded, string(w.Job))
		return err
	})
	notTaking := client.HasCode(err, fairlead.CodeRunnerNotTaking)
	if err != nil && !errors.Is(err, client.ErrNoWork) && !notTaking {
		return claim, err // the wake-up comes again
	}
	if notTaking {
		// Put back, it would come until it is a dead letter. The sweep sends another.
		err = errQueue{err}
	}
	// Claimed or nothing to claim: the wake-up has done its work. One that is not
	// deleted comes back and finds nothing.
	spent, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	if derr := v.queue.Delete(spent, v.name, msg.Receipt); derr != nil && !errors.Is(derr, queue.ErrReceipt) {
		v.log.Debug("a spent wake-up was not deleted", "job", w.Job, "err", derr)
	}
	return claim, err
}

// work finds the next job, from the runner's queue if the session has a way to
// it, or else through the API. Not safe for concurrent use.
type work struct {
	session *session
	log     *slog.Logger
	now     func() time.Time
	// open makes the queue of an access; a test has another.
	open func(ctx context.Context, a wire.QueueAccess, p aws.CredentialsProvider, now func() time.Time) (queue.Queue, error)

	onChange change
	at       string // of the queue below
	queue    *viaQueue
	avoid    time.Time // until when the queue is not polled
}

func newWork(s *session, log *slog.Logger, now func() time.Time) *work {
	return &work{session: s, log: log, now: now, open: openSQS, onChange: change{log: log}}
}

func (w *work) next(ctx context.Context) (wire.Claim, error) {
	s, err := w.source(ctx)
	if err != nil {
		return wire.Claim{}, err
	}
	claim, err := s.next(ctx)
	if bad, ok := errors.AsType[errQueue](err); ok && ctx.Err() == nil {
		// Not every network lets a runner out to SQS, and a runner that takes no work
		// leaves its queue as it is. The API is there all the same, and waits.
		w.onChange.error("the runner's queue cannot be polled; jobs are claimed through the API", bad)
		w.avoid = w.now().Add(detour)
		return viaAPI{w.session}.next(ctx)
	}
	if _, ok := s.(viaQueue); ok {
		w.onChange.error("", nil)
	}
	return claim, err
}

// source returns where work is looked for with the session as it is now.
func (w *work) source(ctx context.Context) (source, error) {
	bounded, cancel := context.WithTimeout(ctx, claimWait+claimSlack)
	defer cancel()
	a, err := w.session.queueAccess(bounded)
	if err != nil {
		return nil, err
	}
	if a == nil || w.now().Before(w.avoid) {
		return viaAPI{w.session}, nil
	}
	if at := a.Region + "/" + a.Prefix + a.Name; w.queue == nil || w.at != at {
		q, err := w.open(ctx, *a, aws.CredentialsProviderFunc(w.session.queueCredentials), w.now)
		if err != nil {
			w.log.Warn("the runner's queue cannot be used; jobs are claimed through the API", "err", err)
			w.avoid = w.now().Add(detour)
			return viaAPI{w.session}, nil
		}
		w.at, w.queue = at, &viaQueue{session: w.session, queue: q, name: a.Name, log: w.log}
	}
	return *w.queue, nil
}

// anyReceives is required to make queues, which a runner does not.
const anyReceives = 1

func openSQS(ctx context.Context, a wire.QueueAccess, p aws.CredentialsProvider, now func() time.Time) (queue.Queue, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(a.Region), awsconfig.WithCredentialsProvider(p))
	if err != nil {
		return nil, fmt.Errorf("open the runner's queue: %w", err)
	}
	cfg.Credentials = p // no cache of the SDK's: the session is one
	return sqs.New(cfg, sqs.Options{Prefix: a.Prefix, MaxReceives: anyReceives, Now: now})
}

// queueAccess returns the session's way to the runner's queue, nil if it has
// none, making a session if there is none.
func (s *session) queueAccess(ctx context.Context) (*wire.QueueAccess, error) {
	if _, err := s.get(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue, nil
}

// queueCredentials returns the session's credentials. They are renewed with the
// session, which is before they end, and at another time for each agent.
func (s *session) queueCredentials(ctx context.Context) (aws.Credentials, error) {
	a, err := s.queueAccess(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	if a == nil {
		return aws.Credentials{}, errors.New("the session has no way to the runner's queue any more")
	}
	return aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken,
		CanExpire: true, Expires: a.ExpiresAt, Source: "fairlead session"}, nil
}
