// Package awsapi holds what the adapters of AWS services share: the time limit of one
// attempt of a request, and the classification of errors.
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

// Bound returns cfg with its HTTP client Bounded. Use it for the client of one service.
func Bound(cfg aws.Config, limit time.Duration) aws.Config {
	cfg.HTTPClient = Bounded(cfg.HTTPClient, limit)
	return cfg
}

// Bounded returns the client with a time limit for one attempt of a request, including
// the whole answer. It does not change a client that is not the SDK's client or that
// already has a limit. The SDK has no limit of its own. Without a limit, a dead
// connection would block the caller until the caller's own deadline. A connection can
// die without a notice while a Lambda function is frozen, or when a NAT gateway drops
// an idle connection.
func Bounded(client aws.HTTPClient, limit time.Duration) aws.HTTPClient {
	if client == nil {
		client = awshttp.NewBuildableClient()
	}
	if c, ok := client.(*awshttp.BuildableClient); ok && c.GetTimeout() == 0 {
		return c.WithTimeout(limit)
	}
	return client
}

// Code returns the service's error code in err, or "".
func Code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// Throttled reports whether the service refused the request because of too many
// requests.
func Throttled(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err).Bool() ||
		slices.Contains([]string{"KMS.ThrottlingException", "KmsThrottled", "OverLimit"}, Code(err))
}

// Classify wraps the error of a call after the SDK's retries. op names the operation
// and its object; service names the AWS service.
//
// If ctx has ended, the result wraps the context's error. An error that a later retry
// may resolve is of KindUnavailable, and a refused caller is of KindForbidden or
// KindUnauthenticated. All other errors are bugs of Fairlead and have no kind.
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
			Message: op + ": " + service + " denies this to the role",
			Hint:    "Compare the role's policies, its permissions boundary and the key's policy with infra/control/access.go, which lists every permission. See docs/vendor/control-plane-on-aws.md.",
			Err:     err,
		}
	case slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "MissingAuthenticationToken"}, code):
		return &fairlead.Error{
			Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeAWSCredentials,
			Message: op + ": " + service + " does not accept the credentials",
			Hint:    "The credentials are missing or expired, or this machine's clock is wrong.",
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
