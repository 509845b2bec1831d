package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
)

// retryPause is the first pause between two tries; each is longer, up to
// maxRetryPause. In LaunchTime that makes about eight tries.
const (
	retryPause    = 200 * time.Millisecond
	maxRetryPause = 2 * time.Second
)

// Retry calls f until it succeeds, fails in a way that passing does not accept,
// or LaunchTime is over. Each call has what is left of that.
func Retry[T any](ctx context.Context, passing func(error) bool, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, LaunchTime)
	defer cancel()
	return retry.Do(ctx, retry.Policy{First: retryPause, Longest: maxRetryPause, Within: LaunchTime, Passing: passing}, f)
}

// Try is Retry of what returns nothing.
func Try(ctx context.Context, passing func(error) bool, f func(context.Context) error) error {
	_, err := Retry(ctx, passing, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// NeverSent reports whether a request certainly did not reach its server.
func NeverSent(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return true
	}
	var dial *net.OpError
	var name *net.DNSError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &name)
}

// signalled is what a shell and a container add to the number of the signal
// that ended a process.
const signalled = 128

// ExitOf says how a container ended whose first process was the step. A step's
// own exit codes are below 128. oom is whether memory ran out meanwhile, and
// outOfMemory what a person is then told.
func ExitOf(code int, oom bool, outOfMemory string) Exit {
	x := Exit{Code: &code, Cause: fairlead.CauseExited}
	if code > signalled && code < signalled+65 {
		x = Exit{Signal: syscall.Signal(code - signalled).String(), Cause: fairlead.CauseKilled}
	}
	if !oom {
		return x
	}
	x.Message = outOfMemory
	if code == signalled+int(syscall.SIGKILL) {
		x.Cause = fairlead.CauseOutOfMemory
	}
	return x
}

// Never is the end of a step that did not begin.
func Never(cause fairlead.Cause, format string, args ...any) Exit {
	return Exit{Cause: cause, Message: fmt.Sprintf(format, args...)}
}
