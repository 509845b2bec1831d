package awsapi_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/fairlead/fairlead/pkg/awsapi"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestClassifyReturnsTheKindOfEachError(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		kind fairlead.Kind
	}{
		{"throttling is temporary", t.Context(), &smithy.GenericAPIError{Code: "ThrottlingException"}, fairlead.KindUnavailable},
		{"throttling by SQS has its own code", t.Context(), &smithy.GenericAPIError{Code: "RequestThrottled"}, fairlead.KindUnavailable},
		{"throttling by KMS is temporary", t.Context(), &smithy.GenericAPIError{Code: "KmsThrottled"}, fairlead.KindUnavailable},
		{"a lost connection is temporary", t.Context(), &net.OpError{Op: "dial", Err: errors.New("connection refused")}, fairlead.KindUnavailable},
		{"a role without permission", t.Context(), &smithy.GenericAPIError{Code: "AccessDenied"}, fairlead.KindForbidden},
		{"an expired session", t.Context(), &smithy.GenericAPIError{Code: "ExpiredTokenException"}, fairlead.KindUnauthenticated},
		{"any other error is a bug", t.Context(), &smithy.GenericAPIError{Code: "ValidationError"}, fairlead.KindInternal},
		{"the context was canceled", ended, &smithy.GenericAPIError{Code: "ThrottlingException"}, fairlead.KindInternal},
		{"no error", t.Context(), nil, ""},
	} {
		err := awsapi.Classify(c.ctx, "SQS", "send to queue q", c.err)
		if got := fairlead.KindOf(err); got != c.kind {
			t.Errorf("%s: error %v has the kind %q, want %q", c.name, err, got, c.kind)
		}
		if c.ctx == ended && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v does not wrap context.Canceled", c.name, err)
		}
	}
}

func TestBoundedKeepsExistingLimits(t *testing.T) {
	own := awshttp.NewBuildableClient().WithTimeout(time.Minute)
	other := &http.Client{}
	for what, c := range map[string]struct {
		got  any
		want time.Duration
	}{
		"no client":             {awsapi.Bounded(nil, time.Second), time.Second},
		"the SDK's client":      {awsapi.Bounded(awshttp.NewBuildableClient(), time.Second), time.Second},
		"a client with a limit": {awsapi.Bounded(own, time.Second), time.Minute},
	} {
		if got := c.got.(*awshttp.BuildableClient).GetTimeout(); got != c.want {
			t.Errorf("%s: limit %s, want %s", what, got, c.want)
		}
	}
	if got := awsapi.Bounded(other, time.Second); got != other {
		t.Errorf("Bounded replaced a client of another type by %T", got)
	}
}
