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

// source finds jobs. The method next waits for a job, at most about claimWait, and claims it. If no
// job arrives, it returns client.ErrNoWork.
type source interface {
	next(ctx context.Context) (wire.Claim, error)
}

// viaAPI claims jobs with a long poll of the runner API. The control plane receives the wake-ups.
type viaAPI struct {
	session *session
	warm    func() bool // reports whether the agent may have warm steps
	seeded  func() bool // reports whether the agent has a seed of install keys
}

func (v viaAPI) next(ctx context.Context) (claim wire.Claim, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimWait+claimSlack)
	defer cancel()
	sent := time.Now() // monotonic
	err = v.session.do(ctx, func(c *client.Client) (err error) {
		claim, err = c.Claim(ctx, claimWait, v.warm())
		return err
	})
	if errors.Is(err, client.ErrNoWork) && v.seeded() && time.Since(sent) < claimWait/2 {
		err = errKeysWanted // the control plane ends a wait early for it
	}
	return claim, err
}

// errKeysWanted reports that a wake-up asked for keys of installs: the answer to the next heartbeat names them.
var errKeysWanted = errors.New("keys of installs are wanted")

const (
	// hideWake is how long a received wake-up is hidden from other agents while its job is claimed.
	// If the claim fails, the wake-up is delivered again after this time.
	hideWake = 30 * time.Second
	// claimFor bounds the claim of a job after its wake-up.
	claimFor = 15 * time.Second
	// detour is how long jobs are claimed through the API after a failed poll of the queue.
	detour = 2 * time.Minute
)

// viaQueue polls the runner's queue and claims the job of each wake-up.
type viaQueue struct {
	session *session
	queue   queue.Queue
	name    string
	log     *slog.Logger
	warm    func() bool // as in viaAPI
}

// errQueue is the error of a queue that could not be used, or that must not be used now.
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
		// The message is not deleted. It is delivered again after hideWake, and at last it moves to the
		// dead-letter queue.
		v.log.Warn("the runner's queue holds a message that is not a wake-up; it will move to the dead-letter queue", "message", msg.ID, "err", err)
		return wire.Claim{}, client.ErrNoWork
	}
	if w.Job == events.WakeForKeys {
		if err := v.queue.Delete(ctx, v.name, msg.Receipt); err != nil {
			v.log.Debug("cannot delete a used wake-up; it is delivered again and costs a heartbeat", "err", err)
		}
		return wire.Claim{}, errKeysWanted
	}
	var claim wire.Claim
	bounded, cancel := context.WithTimeout(ctx, claimFor)
	defer cancel()
	err = v.session.do(bounded, func(c *client.Client) (err error) {
		claim, err = c.ClaimJob(bounded, string(w.Job), v.warm())
		return err
	})
	notTaking := client.HasCode(err, fairlead.CodeRunnerNotTaking)
	if e, ok := errors.AsType[*client.Error](err); ok && notTaking && e.Details[wire.DetailPinnedVersion] != "" {
		// This agent runs another version than its runner pins. An agent of the pinned version may be
		// polling the same queue, and can receive the wake-up at once.
		if eerr := v.queue.Extend(bounded, v.name, msg.Receipt, 0); eerr != nil {
			v.log.Debug("cannot return a wake-up; it is delivered again when its hiding time ends", "job", w.Job, "err", eerr)
		}
		return claim, errQueue{err}
	}
	if err != nil && !errors.Is(err, client.ErrNoWork) && !notTaking {
		return claim, err // the wake-up is delivered again
	}
	if notTaking {
		// If this wake-up stayed in the queue, it would be delivered again and again, and at last move
		// to the dead-letter queue. So the agent deletes it, and the control plane's sweep sends another
		// wake-up.
		err = errQueue{err}
	}
	// The job was claimed or is not available, so the wake-up is not needed any more. If its deletion
	// fails, it is delivered again and has no effect.
	spent, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	if derr := v.queue.Delete(spent, v.name, msg.Receipt); derr != nil && !errors.Is(derr, queue.ErrReceipt) {
		v.log.Debug("cannot delete a used wake-up; it is delivered again and has no effect", "job", w.Job, "err", derr)
	}
	return claim, err
}

// work finds the next job: from the runner's queue if the session gives access to one, else through
// the API. Not safe for concurrent use.
type work struct {
	session *session
	log     *slog.Logger
	now     func() time.Time
	warm    func() bool // as in viaAPI
	seeded  func() bool // as in viaAPI
	// open opens the queue to which the session gives access. Tests replace this function.
	open func(ctx context.Context, a wire.QueueAccess, p aws.CredentialsProvider, now func() time.Time) (queue.Queue, error)

	onChange change
	at       string // region and name of queue
	queue    *viaQueue
	avoid    time.Time // the queue is not polled before this time
}

func newWork(s *session, log *slog.Logger, now func() time.Time, warm, seeded func() bool) *work {
	return &work{session: s, log: log, now: now, warm: warm, seeded: seeded, open: openSQS, onChange: change{log: log}}
}

func (w *work) next(ctx context.Context) (wire.Claim, error) {
	s, err := w.source(ctx)
	if err != nil {
		return wire.Claim{}, err
	}
	claim, err := s.next(ctx)
	if bad, ok := errors.AsType[errQueue](err); ok && ctx.Err() == nil {
		// Some networks block SQS. A runner that takes no jobs must not poll its queue. In both cases the
		// agent can use the API, which also waits for a job.
		w.onChange.error("the runner's queue cannot be polled; jobs are claimed through the API", bad)
		w.avoid = w.now().Add(detour)
		return viaAPI{w.session, w.warm, w.seeded}.next(ctx)
	}
	if _, ok := s.(viaQueue); ok {
		w.onChange.error("", nil)
	}
	return claim, err
}

// source returns the source of jobs for the current session.
func (w *work) source(ctx context.Context) (source, error) {
	bounded, cancel := context.WithTimeout(ctx, claimWait+claimSlack)
	defer cancel()
	a, err := w.session.queueAccess(bounded)
	if err != nil {
		return nil, err
	}
	if a == nil || w.now().Before(w.avoid) {
		return viaAPI{w.session, w.warm, w.seeded}, nil
	}
	if at := a.Region + "/" + a.Prefix + a.Name; w.queue == nil || w.at != at {
		q, err := w.open(ctx, *a, aws.CredentialsProviderFunc(w.session.queueCredentials), w.now)
		if err != nil {
			w.log.Warn("the runner's queue cannot be used; jobs are claimed through the API", "err", err)
			w.avoid = w.now().Add(detour)
			return viaAPI{w.session, w.warm, w.seeded}, nil
		}
		w.at, w.queue = at, &viaQueue{session: w.session, queue: q, name: a.Name, log: w.log, warm: w.warm}
	}
	return *w.queue, nil
}

// anyReceives is an arbitrary value of a required option. The option matters only to programs that
// create queues, and a runner creates no queue.
const anyReceives = 1

func openSQS(ctx context.Context, a wire.QueueAccess, p aws.CredentialsProvider, now func() time.Time) (queue.Queue, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(a.Region), awsconfig.WithCredentialsProvider(p))
	if err != nil {
		return nil, fmt.Errorf("open the runner's queue: %w", err)
	}
	cfg.Credentials = p // not in a cache of the SDK: the session caches the credentials
	return sqs.New(cfg, sqs.Options{Prefix: a.Prefix, MaxReceives: anyReceives, Now: now})
}

// queueAccess returns the session's access to the runner's queue, or nil if the session has no access.
// If no session is open, it opens a session.
func (s *session) queueAccess(ctx context.Context) (*wire.QueueAccess, error) {
	if _, err := s.get(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue, nil
}

// queueCredentials returns the session's credentials for the queue. The agent renews the credentials
// together with the session, before they expire. Each agent does so at a different, random time.
func (s *session) queueCredentials(ctx context.Context) (aws.Credentials, error) {
	a, err := s.queueAccess(ctx)
	if err != nil {
		return aws.Credentials{}, err
	}
	if a == nil {
		return aws.Credentials{}, errors.New("the session no longer gives access to the runner's queue")
	}
	return aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken,
		CanExpire: true, Expires: a.ExpiresAt, Source: "fairlead session"}, nil
}
