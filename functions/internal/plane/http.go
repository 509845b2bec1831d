package plane

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// answerWithin is the margin before a function's deadline at which it ends its waits. If a long
// poll gets an answer, the client repeats it. If the deadline cuts off a long poll, API Gateway
// and the client see an error.
const answerWithin = time.Second

// withMargin returns a context that ends answerWithin before ctx does.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-answerWithin))
	}
	return context.WithCancel(ctx)
}

// HTTP returns a handler of an API Gateway HTTP API's events, payload version 2.0; h answers the
// requests.
func HTTP(h http.Handler, logger *slog.Logger) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	adapter := httpadapter.NewV2(withStatus(h))
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		answer, err := adapter.ProxyWithContext(ctx, e)
		if err == nil {
			return answer, nil
		}
		// The adapter fails on an invalid path, method or base64 body. That is the caller's
		// mistake, not a failure of the function.
		logger.Warn("a request could not be read", "request", e.RequestContext.RequestID, "error", err)
		return malformed()
	}
}

func malformed() (events.APIGatewayV2HTTPResponse, error) {
	body, err := json.Marshal(wire.Problem{Type: wire.ProblemType + "malformed-request", Title: http.StatusText(http.StatusBadRequest),
		Status: http.StatusBadRequest, Detail: "the request's method, path or body cannot be read"})
	return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusBadRequest, Body: string(body),
		Headers: map[string]string{"Content-Type": "application/problem+json"}}, err
}

// withStatus sets status 200 on each response without a status. net/http sends 200 when a handler
// sets no status and writes nothing; the adapter would treat the request as not answered.
func withStatus(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w}
		h.ServeHTTP(s, r)
		if !s.set {
			w.WriteHeader(http.StatusOK)
		}
	})
}

// statusWriter records whether a status was set.
type statusWriter struct {
	http.ResponseWriter
	set bool
}

func (s *statusWriter) WriteHeader(status int) {
	s.set = true
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Write(b []byte) (int, error) {
	s.set = true
	return s.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer for http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
