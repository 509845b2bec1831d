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

func TestClassify(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		kind fairlead.Kind
	}{
		{"throttling passes", t.Context(), &smithy.GenericAPIError{Code: "ThrottlingException"}, fairlead.KindUnavailable},
		{"a queue's throttling has a name of its own", t.Context(), &smithy.GenericAPIError{Code: "RequestThrottled"}, fairlead.KindUnavailable},
		{"the key's throttling passes, too", t.Context(), &smithy.GenericAPIError{Code: "KmsThrottled"}, fairlead.KindUnavailable},
		{"a lost connection is worth a repeat", t.Context(), &net.OpError{Op: "dial", Err: errors.New("connection refused")}, fairlead.KindUnavailable},
		{"a role that may not", t.Context(), &smithy.GenericAPIError{Code: "AccessDenied"}, fairlead.KindForbidden},
		{"a session that is over", t.Context(), &smithy.GenericAPIError{Code: "ExpiredTokenException"}, fairlead.KindUnauthenticated},
		{"anything else is our fault", t.Context(), &smithy.GenericAPIError{Code: "ValidationError"}, fairlead.KindInternal},
		{"the caller gave up", ended, &smithy.GenericAPIError{Code: "ThrottlingException"}, fairlead.KindInternal},
		{"nothing happened", t.Context(), nil, ""},
	} {
		err := awsapi.Classify(c.ctx, "SQS", "send to queue q", c.err)
		if got := fairlead.KindOf(err); got != c.kind {
			t.Errorf("%s: %v is of kind %q, want %q", c.name, err, got, c.kind)
		}
		if c.ctx == ended && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v does not say so", c.name, err)
		}
	}
}

func TestBoundedKeepsWhatTheCallerChose(t *testing.T) {
	own := awshttp.NewBuildableClient().WithTimeout(time.Minute)
	other := &http.Client{}
	for what, c := range map[string]struct {
		got  any
		want time.Duration
	}{
		"none":           {awsapi.Bounded(nil, time.Second), time.Second},
		"the SDK's":      {awsapi.Bounded(awshttp.NewBuildableClient(), time.Second), time.Second},
		"one of its own": {awsapi.Bounded(own, time.Second), time.Minute},
	} {
		if got := c.got.(*awshttp.BuildableClient).GetTimeout(); got != c.want {
			t.Errorf("%s: an attempt may take %s, want %s", what, got, c.want)
		}
	}
	if got := awsapi.Bounded(other, time.Second); got != other {
		t.Errorf("a client of another kind was replaced by %T", got)
	}
}
