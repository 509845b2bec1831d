package step

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
)

const (
	// firstBeat delays the first renewal: jobs that are over by then, such as
	// checks, need none.
	firstBeat = 250 * time.Millisecond
	// maxBeatWait is the longest that the control plane is asked to wait.
	maxBeatWait = 20 * time.Second
	// beatSlack is what an answer may take beyond the wait that was asked for.
	beatSlack = 10 * time.Second
	// defaultRenew stands in for a period that the control plane did not say.
	defaultRenew = 15 * time.Second
	// leasePeriods is how many renewals a lease outlives, until the first
	// renewal tells when it really ends.
	leasePeriods = 3
)

// lease renews the lease of a job and tells what it hears. Each function
// but renewed is called at most once, from keep's goroutine or a timer's.
type lease struct {
	client *client.Client
	job    string
	renew  time.Duration
	log    *slog.Logger

	canceled func(reason string) // somebody wants the job to stop
	lost     func()              // somebody else has the job: stop at once, write nothing
	expired  func()              // nobody answered until the lease ran out
	renewed  func(late bool)     // it was renewed, late if two thirds of it were over; nil: nobody counts

	noOutput func() time.Duration // how long the job's tool has written nothing; nil: it has none
}

// keep renews the lease until ctx ends or the lease is lost. A renewal is a
// question that the control plane answers when the job is canceled, or when
// the next renewal is due, so a cancellation comes without delay.
func (l *lease) keep(ctx context.Context) {
	if l.renew <= 0 {
		l.renew = defaultRenew
	}
	// A dead control plane hands the lease to nobody, but one that merely
	// cannot be reached from here may. When the lease has run out the tool is
	// interrupted, not killed: it stops where it can and saves its state, and
	// whoever has the lease next begins with a plan.
	expiry := time.AfterFunc(leasePeriods*l.renew, l.expired)
	defer expiry.Stop()
	canceled, down := false, false
	last := time.Now() // by the clock that nobody sets, as below
	pause := firstBeat
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		wait := min(l.renew, maxBeatWait)
		if canceled || down {
			// Canceled: it would be answered at once, again and again. Down: the
			// lease is renewed when the question arrives, and may run out here
			// before an answer that takes its time says so.
			wait = 0
		}
		asked := time.Now() // by the clock that nobody sets: a machine's may jump while it waits
		if !down {
			// The lease is counted from the question, by a timer's clock, which
			// nobody sets: the control plane counts from when it arrives, and its
			// answer takes its time. Should it not arrive, the tool is interrupted
			// a renewal later than it might be, which is little beside its grace.
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
				l.log.Warn("the lease cannot be renewed; trying on", "job", l.job, "err", err)
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
		// The answer came early: it did not wait. Do not ask in a circle.
		pause = max(0, wait-time.Since(asked))
		if canceled {
			pause = l.renew
		}
	}
}
