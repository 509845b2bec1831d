package runtimetest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/oklog/ulid/v2"
	limiter "golang.org/x/time/rate"
)

// The quotas of API Gateway for HTTP APIs. None of them can be raised.
const (
	MaxBody         = 10 << 20         // bytes of a body
	MaxHeaders      = 10_240           // bytes of the request line and the headers together
	IntegrationTime = 30 * time.Second // the longest time of an integration
)

// Invoker invokes a function: one environment, or all of them.
type Invoker interface {
	Invoke(ctx context.Context, event any) ([]byte, error)
}

// Front serves HTTP as API Gateway's HTTP API does: each request invokes f with an event of payload
// version 2.0. The path of the event is decoded, as in API Gateway. It enforces the quotas of API
// Gateway and Lambda with their answers. Programs decide on the status of such an answer.
func Front(t testing.TB, f Invoker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if headerSize(r) > MaxHeaders {
			gateway(w, http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if len(body) > MaxBody {
			gateway(w, http.StatusRequestEntityTooLarge)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), IntegrationTime)
		defer cancel()
		out, err := f.Invoke(ctx, Event(r, body))
		var answer events.APIGatewayV2HTTPResponse
		if err == nil {
			err = json.Unmarshal(out, &answer)
		}
		payload := []byte(answer.Body)
		if err == nil && answer.IsBase64Encoded {
			payload, err = base64.StdEncoding.DecodeString(answer.Body)
		}
		failure, failed := errors.AsType[*Failure](err)
		switch {
		case r.Context().Err() != nil: // the client is gone
		case errors.Is(err, ErrPayload):
			gateway(w, http.StatusRequestEntityTooLarge)
		case ctx.Err() != nil:
			gateway(w, http.StatusServiceUnavailable)
		case failed && (failure.Type == ResponseTooLarge || failure.Type == TimedOut):
			t.Logf("%s %s: %v", r.Method, r.URL.Path, err)
			gateway(w, http.StatusInternalServerError)
		case err != nil:
			t.Errorf("%s %s: the function failed: %v", r.Method, r.URL, err)
			gateway(w, http.StatusInternalServerError)
		default:
			for name, value := range answer.Headers {
				w.Header().Set(name, value)
			}
			w.WriteHeader(answer.StatusCode)
			_, _ = w.Write(payload) // the client may be gone
		}
	})
}

// Throttle passes on as many requests as the settings of a route permit, and answers the others as
// API Gateway does. rate is in requests a second; burst is the number of requests at once.
func Throttle(next http.Handler, rate float64, burst int) http.Handler {
	bucket := limiter.NewLimiter(limiter.Limit(rate), burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !bucket.Allow() {
			gateway(w, http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// gateway answers as API Gateway does without the function's answer.
func gateway(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Apigw-Requestid", ulid.Make().String())
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": http.StatusText(status)}) // the client may be gone
}

func headerSize(r *http.Request) int {
	size := len(r.Method) + len(r.URL.RequestURI()) + len("  HTTP/1.1")
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	return size
}

// Event returns the event that API Gateway makes of the request with this body.
func Event(r *http.Request, body []byte) events.APIGatewayV2HTTPRequest {
	headers := map[string]string{"host": r.Host}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	now := time.Now()
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery, Headers: headers,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "$default", AccountID: "123456789012", Stage: "$default", RequestID: ulid.Make().String(), APIID: "api", DomainName: r.Host,
			DomainPrefix: "api", Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: r.Method, Path: r.URL.Path, Protocol: "HTTP/1.1",
				SourceIP: "203.0.113.7", UserAgent: r.UserAgent()},
		},
	}
	kind := r.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, "text/") {
		e.Body = string(body)
	} else if len(body) > 0 {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e
}
