package runtimetest

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/oklog/ulid/v2"
)

// Front serves HTTP as API Gateway's HTTP API does: each request invokes f with an event of payload
// version 2.0. The path of the event is decoded, as in API Gateway.
func Front(t testing.TB, f *Function) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		out, err := f.Invoke(r.Context(), Event(r, body))
		if r.Context().Err() != nil {
			return
		}
		var answer events.APIGatewayV2HTTPResponse
		if err == nil {
			err = json.Unmarshal(out, &answer)
		}
		payload := []byte(answer.Body)
		if err == nil && answer.IsBase64Encoded {
			payload, err = base64.StdEncoding.DecodeString(answer.Body)
		}
		if err != nil {
			t.Errorf("%s %s: the function failed: %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusInternalServerError) // as API Gateway answers for it
			return
		}
		for name, value := range answer.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(payload) // the client may be gone
	})
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
