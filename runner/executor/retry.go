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

// retryPause is the first pause between two calls. Each pause is longer than the
// pause before it, up to maxRetryPause. About eight calls fit into LaunchTime.
const (
	retryPause    = 200 * time.Millisecond
	maxRetryPause = 2 * time.Second
)

// Retry calls f until f succeeds, until the function passing returns false for the
// error of f, or until LaunchTime is over. Each call gets the remaining time as its
// deadline.
func Retry[T any](ctx context.Context, passing func(error) bool, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, LaunchTime)
	defer cancel()
	return retry.Do(ctx, retry.Policy{First: retryPause, Longest: maxRetryPause, Within: LaunchTime, Passing: passing}, f)
}

// Try is Retry for a function that returns only an error.
func Try(ctx context.Context, passing func(error) bool, f func(context.Context) error) error {
	_, err := Retry(ctx, passing, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// NeverSent reports whether err proves that the request did not reach its server.
func NeverSent(err error) bool {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
		return true
	}
	var dial *net.OpError
	var name *net.DNSError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &name)
}

// signalled is added to a signal's number: if a signal ended a process, shells and
// containers report 128 plus the number as its exit code.
const signalled = 128

// ExitOf returns how a step ended, if the step was the first process of its
// container. code is the exit code of the container. A step's own exit codes are
// below 128. oom reports whether the container ran out of memory. If so,
// outOfMemory is the message of the Exit.
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

// Never returns the Exit of a step that did not start.
func Never(cause fairlead.Cause, format string, args ...any) Exit {
	return Exit{Cause: cause, Message: fmt.Sprintf(format, args...)}
}
