// Package awsapi is what the adapters of AWS services share: how long one
// attempt of a request may take, and what an error means to the caller.
package awsapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Bound returns the configuration with its client Bounded, for the client of one
// service.
func Bound(cfg aws.Config, limit time.Duration) aws.Config {
	cfg.HTTPClient = Bounded(cfg.HTTPClient, limit)
	return cfg
}

// Bounded returns the client with a limit on one attempt of a request, all of
// its answer included, unless it is of another kind than the SDK's or has a
// limit already. The SDK has none, and a connection that died unnoticed, as it
// does while a function is frozen or behind a NAT gateway that forgot it,
// would otherwise hold the caller until its own time is up.
func Bounded(client aws.HTTPClient, limit time.Duration) aws.HTTPClient {
	if client == nil {
		client = awshttp.NewBuildableClient()
	}
	if c, ok := client.(*awshttp.BuildableClient); ok && c.GetTimeout() == 0 {
		return c.WithTimeout(limit)
	}
	return client
}

// Code returns the service's own code of the error, or "".
func Code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// Throttled reports whether the service refused the request for coming too
// often.
func Throttled(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err).Bool() ||
		slices.Contains([]string{"KMS.ThrottlingException", "KmsThrottled", "OverLimit"}, Code(err))
}

// Classify wraps what a call returned in the end, after the SDK's retries,
// with op, which names the operation and its object. service is the service's
// name. A context's end stays what it is; what a later repeat may cure is of
// KindUnavailable, a refused caller of KindForbidden or KindUnauthenticated.
// What is left is a fault of ours, and has no kind.
func Classify(ctx context.Context, service, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	code := Code(err)
	switch {
	case slices.Contains([]string{"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "KMS.AccessDeniedException", "KmsAccessDenied"}, code):
		return &fairlead.Error{
			Kind: fairlead.KindForbidden, Code: fairlead.CodeAWSAccessDenied,
			Message: op + ": " + service + " does not allow it to this role",
			Hint:    "Compare the role's policies, its permissions boundary and the key's policy with what docs/contributing/architecture.md says the adapter needs.",
			Err:     err,
		}
	case slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "MissingAuthenticationToken"}, code):
		return &fairlead.Error{
			Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeAWSCredentials,
			Message: op + ": " + service + " does not accept the credentials",
			Hint:    "They are missing or expired, or this machine's clock is wrong.",
			Err:     err,
		}
	case Throttled(err) || retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err).Bool():
		return &fairlead.Error{
			Kind: fairlead.KindUnavailable, Code: fairlead.CodeAWSUnavailable,
			Message: op + ": " + service + " did not take the request in time",
			Hint:    "Repeat the request in a while.",
			Err:     err,
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
