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

// answerWithin is how long before its time is up a function ends what it waits
// for: a long poll that is answered is asked again, one that is cut off is an
// error, to API Gateway and to whoever called it.
const answerWithin = time.Second

// withMargin returns a context that ends answerWithin before ctx does.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-answerWithin))
	}
	return context.WithCancel(ctx)
}

// HTTP returns the handler of an API Gateway HTTP API's events, payload version
// 2.0, that h answers.
func HTTP(h http.Handler, logger *slog.Logger) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	adapter := httpadapter.NewV2(withStatus(h))
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		answer, err := adapter.ProxyWithContext(ctx, e)
		if err == nil {
			return answer, nil
		}
		// The adapter fails on a path, a method or base64 that is none. That is
		// the caller's doing, and no failure of the function.
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

// withStatus has each answer have a status. A handler that sets none and writes
// nothing has answered 200, as net/http would send it; the adapter takes it for
// one that has not answered.
func withStatus(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w}
		h.ServeHTTP(s, r)
		if !s.set {
			w.WriteHeader(http.StatusOK)
		}
	})
}

// statusWriter notes whether a status was set.
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

// Unwrap is for http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
