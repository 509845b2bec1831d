package step

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
)

const (
	// firstRenewal delays the first renewal. Jobs that end before it, such as checks, need no renewal.
	firstRenewal = 250 * time.Millisecond
	// maxRenewalWait is the longest time for which a renewal asks the control plane to delay its answer.
	maxRenewalWait = 20 * time.Second
	// renewalSlack is how much later than requested an answer may come.
	renewalSlack = 10 * time.Second
	// defaultRenewal is the renewal period if the control plane sends none.
	defaultRenewal = 15 * time.Second
	// leasePeriods is the length of a lease in renewal periods.
	leasePeriods = 3
)

// lease renews the lease of a job and calls a function for each event. The functions are called in the goroutine of keep or
// in the goroutine of a timer. The functions canceled and lost are called at most once.
type lease struct {
	client *client.Client
	job    string
	renew  time.Duration
	log    *slog.Logger

	canceled func(reason string) // the job is canceled
	lost     func()              // another attempt owns the job: stop at once, write nothing
	expired  func()              // the lease ran out without an answer; called each time when this happens
	renewed  func(late bool)     // the lease was renewed; late: more than two renewal periods after the last. May be nil

	// logTerms gets, after each renewal, the control plane's intervals between two pieces of the log, of any size and of more than 8
	// KiB (0: the default), and
	// whether it accepts no more of the log. May be nil.
	logTerms func(every, bulk time.Duration, cut bool)
	// hint makes keep renew the lease at once instead of at the end of the pause; nil: none does.
	hint <-chan struct{}

	noOutput func() time.Duration // returns how long the job's tool has written nothing; nil: there is no tool
}

// keep renews the lease until ctx ends or the lease is lost. A renewal is a long poll: the control plane answers when the
// job is canceled or the next renewal is due, so a cancellation arrives without delay.
func (l *lease) keep(ctx context.Context) {
	if l.renew <= 0 {
		l.renew = defaultRenewal
	}
	// While this step cannot reach the control plane, the lease may expire and another attempt may claim the job. When the
	// lease has run out, expired interrupts the tool and does not kill it: the tool stops where it can and saves its state.
	// The next attempt plans first.
	expiry := time.AfterFunc(leasePeriods*l.renew, l.expired)
	defer expiry.Stop()
	canceled, down := false, false
	last := time.Now() // a monotonic time, as below
	pause := firstRenewal
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-l.hint:
		}
		wait := min(l.renew, maxRenewalWait)
		if canceled || down {
			// If the job is canceled, the control plane answers each renewal at once. If the control plane was down, it
			// renews the lease when the request arrives, but with a delayed answer the lease could run out here first.
			wait = 0
		}
		asked := time.Now() // a monotonic time: the machine's clock may jump during the wait
		if !down {
			// The lease starts again with this request: the control plane renews the lease when the request arrives, and
			// answers later. A timer's clock is monotonic. If the request does not arrive, the tool is interrupted one
			// renewal later than possible. This time is short compared to the tool's grace period.
			expiry.Reset(leasePeriods * l.renew)
		}
		request, cancel := context.WithTimeout(ctx, wait+renewalSlack)
		var noOutput time.Duration
		if l.noOutput != nil {
			noOutput = l.noOutput()
		}
		answer, err := l.client.HeartbeatJob(request, l.job, noOutput, wait)
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
		if l.logTerms != nil {
			l.logTerms(time.Duration(answer.LogEveryMS)*time.Millisecond, time.Duration(answer.LogBulkMS)*time.Millisecond, answer.LogCut)
		}
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
		// The answer may have come before the wait was over. Without the pause, the step would send renewals in a busy
		// loop.
		pause = max(0, wait-time.Since(asked))
		if canceled {
			pause = l.renew
		}
	}
}
