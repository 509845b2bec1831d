package dynamo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The retries of every call. A transaction that meets another one on the same
// item is refused at once and is worth repeating soon, so the delays begin far
// below the SDK's own. Attempt n is followed by a random delay below
// 25 ms · 2ⁿ, at most 1 s: 8 attempts wait 25+50+100+200+400+800+1000 ms at
// the very most, 1.3 s on average.
const (
	maxAttempts = 8
	firstDelay  = 25 * time.Millisecond
	maxDelay    = time.Second
)

// delay returns how long to wait after the attempt of that number, from 1.
// Full jitter: of many that met, none waits in step with another.
func delay(attempt int) time.Duration {
	d := maxDelay
	if n := attempt - 1; n < 10 { // beyond that the shift is past maxDelay anyway
		d = min(d, firstDelay<<max(n, 0))
	}
	return rand.N(d)
}

// newRetryer returns the one retry loop of this package, which is the SDK's,
// taught about transactions. All that it repeats is safe to repeat: writes are
// conditional, and a repeat that finds its own token is a success.
func newRetryer() *retry.Standard {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return delay(attempt), nil
		})
		o.Retryables = retryables()
	})
}

// retryables judge whether a repeat of the same request may succeed.
func retryables() retry.IsErrorRetryables {
	return append(slices.Clone(retry.DefaultRetryables), retry.IsErrorRetryableFunc(retryable))
}

// retryable adds to the SDK's judgement the refusals of transactions that are
// about other requests and not about ours.
func retryable(err error) aws.Ternary {
	if _, ok := errors.AsType[*types.TransactionConflictException](err); ok {
		return aws.TrueTernary // a single write met a transaction
	}
	if _, ok := errors.AsType[*types.ReplicatedWriteConflictException](err); ok {
		return aws.TrueTernary
	}
	c, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return aws.UnknownTernary
	}
	transient := false
	for _, r := range c.CancellationReasons {
		switch aws.ToString(r.Code) {
		case "", "None":
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			transient = true
		default: // a condition that does not hold, or a request that can never succeed
			return aws.FalseTernary
		}
	}
	return aws.BoolTernary(transient)
}

// classify wraps what a call returned in the end with op, which names the
// operation and its object. What a later repeat may cure becomes an error of
// KindUnavailable; a context's end stays what it is.
func classify(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	if _, ok := errors.AsType[*types.IdempotentParameterMismatchException](err); ok {
		return &fairlead.Error{
			Kind: fairlead.KindInternal, Code: fairlead.CodeTokenReused,
			Message: op + ": the commit's token has been used for another commit",
			Err:     err,
		}
	}
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		return &fairlead.Error{
			Kind: fairlead.KindInternal, Code: fairlead.CodeTableMissing,
			Message: op + ": the table or one of its indexes does not exist",
			Hint:    "Check the table's name, and the account and region.",
			Err:     err,
		}
	}
	if retryables().IsErrorRetryable(err).Bool() {
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeStoreUnavailable,
			Message: op + ": DynamoDB did not take the request in time",
			Hint:    "Repeat the request in a while.",
			Err:     err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
