package plane_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/fairlead/fairlead/functions/internal/plane"
)

// A handler that grants a state lock sets no status and writes nothing. The answer is 200, as in
// net/http; any other status would make the tool fail to lock its state.
func TestAnswerWithoutStatusIs200(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		status int
		body   string
	}{
		{"an answer without status and body", func(http.ResponseWriter) {}, 200, ""},
		{"only a body is written", func(w http.ResponseWriter) { _, _ = w.Write([]byte("yes")) }, 200, "yes"},
		{"only a status is set", func(w http.ResponseWriter) { w.WriteHeader(http.StatusLocked) }, 423, ""},
		{"only a header is set", func(w http.ResponseWriter) { w.Header().Set("Etag", "x") }, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			serve := plane.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tt.answer(w) }), slog.New(slog.DiscardHandler))
			got, err := serve(context.Background(), events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/x",
				RequestContext: events.APIGatewayV2HTTPRequestContext{DomainName: "x", HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST"}}})
			if err != nil || got.StatusCode != tt.status || got.Body != tt.body {
				t.Errorf("answered %d %q, %v; want %d %q", got.StatusCode, got.Body, err, tt.status, tt.body)
			}
		})
	}
}

// A step names the fields that it knows in one header, with commas between them. The control plane read the first name only,
// and left the provenance out of each job spec, so that each step refused a component that a build had made.
func TestHeaderWithCommasArrivesWhole(t *testing.T) {
	var got string
	serve := plane.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Fairlead-Spec-Fields") }), slog.New(slog.DiscardHandler))
	_, err := serve(context.Background(), events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: "/x", Headers: map[string]string{"fairlead-spec-fields": "version,provenance"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{DomainName: "x", HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST"}}})
	if err != nil || got != "version,provenance" {
		t.Errorf("the header is %q, %v", got, err)
	}
}
