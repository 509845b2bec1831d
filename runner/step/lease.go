package step

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
)

const (
	// firstBeat delays the first renewal. Jobs that end before it, such as checks, need no renewal.
	firstBeat = 250 * time.Millisecond
	// maxBeatWait is the longest wait that a heartbeat asks of the control plane.
	maxBeatWait = 20 * time.Second
	// beatSlack is the time an answer may take beyond the requested wait.
	beatSlack = 10 * time.Second
	// defaultRenew replaces a renewal period that the control plane did not send.
	defaultRenew = 15 * time.Second
	// leasePeriods is the length of a lease in renewal periods.
	leasePeriods = 3
)

// lease renews the lease of a job and calls a function for each event. keep's goroutine or a timer calls them, each at
// most once except renewed.
type lease struct {
	client *client.Client
	job    string
	renew  time.Duration
	log    *slog.Logger

	canceled func(reason string) // the job is canceled
	lost     func()              // another attempt owns the job: stop at once, write nothing
	expired  func()              // no answer came until the lease ran out
	renewed  func(late bool)     // the lease was renewed; late if two thirds of it were over. May be nil

	noOutput func() time.Duration // how long the job's tool has written nothing; nil: there is no tool
}

// keep renews the lease until ctx ends or the lease is lost. A renewal is a long poll: the control plane answers when the
// job is canceled or the next renewal is due, so a cancellation arrives without delay.
func (l *lease) keep(ctx context.Context) {
	if l.renew <= 0 {
		l.renew = defaultRenew
	}
	// While this step cannot reach the control plane, the job may be given to another attempt. When the lease has run
	// out, the tool is interrupted, not killed: it stops where it can and saves its state. The next attempt plans first.
	expiry := time.AfterFunc(leasePeriods*l.renew, l.expired)
	defer expiry.Stop()
	canceled, down := false, false
	last := time.Now() // a monotonic time, as below
	pause := firstBeat
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		wait := min(l.renew, maxBeatWait)
		if canceled || down {
			// Canceled: the answer would come at once, again and again. Down: the control plane renews the lease when
			// the request arrives, but the lease may run out here before a delayed answer comes.
			wait = 0
		}
		asked := time.Now() // a monotonic time: the machine's clock may jump during the wait
		if !down {
			// The lease counts from the request: the control plane renews it when the request arrives, and answers
			// later. A timer's clock is monotonic. If the request does not arrive, the tool is interrupted one renewal
			// later than possible, which is little compared to its grace period.
			expiry.Reset(leasePeriods * l.renew)
		}
		beat, cancel := context.WithTimeout(ctx, wait+beatSlack)
		var noOutput time.Duration
		if l.noOutput != nil {
			noOutput = l.noOutput()
		}
		answer, err := l.client.HeartbeatJob(beat, l.job, noOutput, wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case stale(err):
			l.lost()
			return
		case err != nil:
			if !down {
				l.log.Warn("the lease cannot be renewed; retrying", "job", l.job, "err", err)
			}
			down, pause = true, min(l.renew/4, time.Second)
			continue
		}
		down = false
		if l.renewed != nil {
			l.renewed(asked.Sub(last) > (leasePeriods-1)*l.renew)
		}
		last = asked
		if answer.RenewSeconds > 0 {
			l.renew = time.Duration(answer.RenewSeconds) * time.Second
		}
		if left := leasePeriods*l.renew - time.Since(asked); left > 0 {
			expiry.Reset(left)
		}
		if answer.Cancel && !canceled {
			canceled = true
			l.canceled(answer.CancelReason)
		}
		// The answer came before the wait was over. Sleep, or this becomes a busy loop.
		pause = max(0, wait-time.Since(asked))
		if canceled {
			pause = l.renew
		}
	}
}
