package plane

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
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
	adapter := httpadapter.NewV2(withHeaders(withStatus(h)))
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		ctx = context.WithValue(ctx, headersKey{}, e.Headers)
		answer, err := adapter.ProxyWithContext(ctx, e)
		if err == nil {
			return fitting(answer), nil
		}
		// The adapter fails on an invalid path, method or base64 body. That is the caller's
		// mistake, not a failure of the function.
		logger.Warn("a request could not be read", "request", e.RequestContext.RequestID, "error", err)
		return malformed(), nil
	}
}

// headersKey is the key of the event's headers in the context of a request.
type headersKey struct{}

// withHeaders gives requests the headers of the event. The adapter cuts each value at its commas into several headers with
// one name, and a handler that reads the first one would miss the rest.
func withHeaders(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers, _ := r.Context().Value(headersKey{}).(map[string]string)
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		h.ServeHTTP(w, r)
	})
}

// The limits of API Gateway and Lambda. An event and an answer have at most 6 MB of JSON. A binary body becomes
// base64, a third longer. The body of a JSON request becomes a JSON text, in which each quotation mark and each
// backslash has two bytes, so such a body can double.
const (
	// maxBody is the largest body that fits in each of these forms, in bytes.
	maxBody = 2 << 20
	// maxAnswer is the largest body of an answer, in bytes.
	maxAnswer = 4_600_000
)

// fitting returns the answer in a form that Lambda accepts. The adapter returns a text as it is, and JSON escapes
// "<", ">", "&" and control characters with six bytes each. In base64 the size depends only on the length.
func fitting(a events.APIGatewayV2HTTPResponse) events.APIGatewayV2HTTPResponse {
	size := len(a.Body)
	if a.IsBase64Encoded {
		size = base64.StdEncoding.DecodedLen(size)
	}
	switch {
	case size > maxAnswer:
		return problem(http.StatusRequestEntityTooLarge, fairlead.CodeAnswerTooLarge,
			fmt.Sprintf("the answer has %d bytes: AWS Lambda accepts about %d", size, maxAnswer))
	case size > maxAnswer/6 && !a.IsBase64Encoded:
		a.Body, a.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(a.Body)), true
	}
	return a
}

func malformed() events.APIGatewayV2HTTPResponse {
	return problem(http.StatusBadRequest, fairlead.CodeMalformedRequest, "the request's method, path or body cannot be read")
}

// problem returns an answer of this package, in the form of the APIs' problems.
func problem(status int, code fairlead.Code, detail string) events.APIGatewayV2HTTPResponse {
	body, _ := json.Marshal(wire.Problem{Type: wire.ProblemType + string(code), Title: http.StatusText(status), Status: status, Detail: detail}) // it has only texts and a number
	return events.APIGatewayV2HTTPResponse{StatusCode: status, Body: string(body), Headers: map[string]string{"Content-Type": "application/problem+json"}}
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
