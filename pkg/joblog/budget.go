package joblog

import (
	"cmp"
	"context"
	"math"
	"time"
)

// Budget limits how many bytes of log all jobs of one runner may add over time. The zero value is no limit.
type Budget struct {
	Burst   int64 // bytes that a runner may add at once after a pause; at least 1
	PerHour int64 // bytes by which the rest of the budget grows in an hour, up to Burst; 0: no limit
}

// The defaults of BudgetOf are far above what jobs print: a log of 1 MiB every 14 s, without end.
const (
	defaultBurst   = 1024 // MiB
	defaultPerHour = 256  // MiB
)

// BudgetOf returns a budget of burst and perHour MiB; 0: the default, which is 1,024 and 256.
func BudgetOf(burst, perHour int) Budget {
	return Budget{Burst: int64(cmp.Or(burst, defaultBurst)) << 20, PerHour: int64(cmp.Or(perHour, defaultPerHour)) << 20}
}

// countedAt is the longest piece of a log that is counted at once. Each count is a write, which costs money on AWS.
const countedAt = 1 << 20

// Step returns the size in bytes of the pieces in which a log is counted. A log that is shorter counts nothing: an ordinary
// job costs no write, and each job can show how it begins. The number of such logs is the number of the attempts, which
// the runner does not decide.
func (b Budget) Step() int64 { return max(1, min(countedAt, b.Burst/64)) }

// counted returns the bytes to count for an append of the bytes from offset up to, but not including, next.
func (b Budget) counted(offset, next int64) int64 {
	if b.PerHour == 0 {
		return 0
	}
	step := b.Step()
	return (next/step - offset/step) * step
}

// Account is the rest of a runner's budget at a time. The zero value is a whole budget.
type Account struct {
	Left int64 // bytes; below 0 after an append that was larger than the rest
	At   time.Time
}

// Take returns the account after n bytes were taken from it, and true. If nothing is left, it returns the account unchanged,
// and false. With n = 0 it only reports whether something is left.
func (b Budget) Take(a Account, n int64, now time.Time) (Account, bool) {
	if b.PerHour == 0 {
		return a, true
	}
	left := b.Burst
	if !a.At.IsZero() {
		since := max(0, now.Sub(a.At)) // the clock may go back
		now = a.At.Add(since)
		left = int64(math.Min(float64(b.Burst), float64(a.Left)+since.Hours()*float64(b.PerHour)))
	}
	if left <= 0 {
		return a, false
	}
	return Account{Left: left - n, At: now}, true
}

// Full returns how long an account needs until it is whole again, at most.
func (b Budget) Full(a Account) time.Duration {
	if b.PerHour == 0 {
		return 0
	}
	return time.Duration(float64(b.Burst-a.Left) / float64(b.PerHour) * float64(time.Hour))
}

// Budgeted is a Log whose appends count against the budget of one runner. The append that uses up the budget is stored;
// then the stream is cut. Other streams of the runner are cut when they reach their next Step. Bytes that are repeated
// may count twice.
type Budgeted struct {
	Log
	Runner string
	Budget Budget
	Now    func() time.Time
	OnCut  func(s Stream) // called after a stream was cut; may be called again for the same stream
}

// Append implements Log. If the bytes are stored but cannot be counted, it returns an error, and the repeat counts them.
func (l Budgeted) Append(ctx context.Context, s Stream, offset int64, data []byte) (int64, error) {
	next, err := l.Log.Append(ctx, s, offset, data)
	if err != nil {
		return next, err
	}
	n := l.Budget.counted(offset, next)
	if n == 0 {
		return next, nil
	}
	left, err := l.Spend(ctx, l.Runner, n, l.Budget, l.Now())
	if err != nil || left {
		return next, err
	}
	if err := l.Cut(ctx, s); err != nil {
		return next, err
	}
	l.OnCut(s)
	return next, nil
}
