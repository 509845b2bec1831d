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

// The retries of every call. DynamoDB refuses a transaction at once if another transaction
// is writing the same item. A retry after a short delay is likely to succeed, so the first
// delays are much shorter than the SDK's. The delay after attempt n is random, below 25 ms
// · 2ⁿ⁻¹ and at most 1 s. So the sum of the delays of 8 attempts is at most
// 25+50+100+200+400+800+1000 ms, and 1.3 s on average.
const (
	maxAttempts = 8
	firstDelay  = 25 * time.Millisecond
	maxDelay    = time.Second
)

// delay returns the time to wait after the given attempt; the first attempt is 1. The time
// is random from zero up, so that conflicting requests do not retry at the same time.
func delay(attempt int) time.Duration {
	d := maxDelay
	if n := attempt - 1; n < 10 { // a larger shift exceeds maxDelay anyway
		d = min(d, firstDelay<<max(n, 0))
	}
	return rand.N(d)
}

// newRetryer returns the retryer of all requests of this package: the SDK's retryer, which
// also retries refused transactions. All requests are safe to repeat: writes are
// conditional, and a repeat that finds its own token succeeds.
func newRetryer() *retry.Standard {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			return delay(attempt), nil
		})
		o.Retryables = retryables()
	})
}

// retryables returns the checks that decide whether a repeat of the same request may
// succeed.
func retryables() retry.IsErrorRetryables {
	return append(slices.Clone(retry.DefaultRetryables), retry.IsErrorRetryableFunc(retryable))
}

// retryable extends the SDK's decision for transactions. If DynamoDB refused a request only
// because of other requests, a retry may succeed.
func retryable(err error) aws.Ternary {
	if _, ok := errors.AsType[*types.TransactionConflictException](err); ok {
		return aws.TrueTernary // a single write conflicted with a transaction
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
		default: // a condition does not hold, or the request can never succeed
			return aws.FalseTernary
		}
	}
	return aws.BoolTernary(transient)
}

// classify wraps the error of a call after the last retry. The parameter op names the
// operation and its object. If a later repeat may succeed, the error gets KindUnavailable.
// If ctx ended, classify wraps the error of ctx instead.
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
			Message: op + ": the commit's token was used for another commit before",
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
			Message: op + ": DynamoDB did not complete the request in time",
			Hint:    "Repeat the request in a while.",
			Err:     err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
