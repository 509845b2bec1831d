package tracing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/pkg/tracing"
)

// receiver is a collector in this process. It decodes requests with the official messages of OTLP
// and accepts no unknown field.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	spans   map[string]*v1.Span // by name
	service string
	headers http.Header
	status  int
}

var ids = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":"([0-9a-f]+)"`)

func newReceiver(t *testing.T) *receiver {
	c := &receiver{spans: map[string]*v1.Span{}, status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s %q, %v", r.URL.Path, r.Header, err)
		}
		// In OTLP's JSON identifiers are hexadecimal; protobuf's JSON has bytes in base64.
		body = ids.ReplaceAllFunc(body, func(b []byte) []byte {
			m := ids.FindSubmatch(b)
			raw, err := hex.DecodeString(string(m[2]))
			if err != nil {
				t.Error(err)
			}
			return fmt.Appendf(nil, `"%s":"%s"`, m[1], base64.StdEncoding.EncodeToString(raw))
		})
		var got collector.ExportTraceServiceRequest
		if err := protojson.Unmarshal(body, &got); err != nil {
			t.Errorf("the request is not OTLP: %v\n%s", err, body)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.headers = r.Header
		for _, of := range got.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					c.service = a.Value.GetStringValue()
				}
			}
			for _, in := range of.ScopeSpans {
				for _, s := range in.Spans {
					c.spans[s.Name] = s
				}
			}
		}
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

func tracer(t *testing.T, logger *slog.Logger, environ ...string) *tracing.Tracer {
	t.Helper()
	tr, err := tracing.New(environ, "runner", "v1", logger)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// An agent's request and the function that serves it are one trace, and the function's lines of
// log have its identifier.
func TestTraceGoesFromAgentToFunctionToLog(t *testing.T) {
	c := newReceiver(t)
	quiet := slog.New(slog.DiscardHandler)
	var out bytes.Buffer
	logger := slog.New(tracing.Logs(slog.NewJSONHandler(&out, nil)))
	function := tracer(t, quiet, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b").Invocations("runnerapi", func(ctx context.Context, _ []byte) ([]byte, error) {
		logger.ErrorContext(ctx, "a request failed")
		return []byte(`{"statusCode":503}`), nil
	})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // API Gateway
		event, err := json.Marshal(map[string]any{"headers": map[string]string{"traceparent": r.Header.Get("Traceparent")}, "routeKey": "ANY /runner/v1/jobs/{proxy+}",
			"requestContext": map[string]any{"requestId": "r1", "http": map[string]string{"method": r.Method, "path": r.URL.Path}}})
		if err != nil {
			t.Error(err)
		}
		if _, err := function(r.Context(), event); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer api.Close()
	agent := tracer(t, quiet, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.URL+"/v1/traces")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/runner/v1/jobs/job_1/finish?token=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	res, err := (&http.Client{Transport: agent.Transport(http.DefaultTransport)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	c.mu.Lock()
	server := c.spans["POST /runner/v1/jobs/{proxy+}"] // sent before the function answered
	if c.headers.Get("X-Key") != "a b" {
		t.Errorf("the collector got the headers %q", c.headers)
	}
	c.mu.Unlock()
	agent.Close(t.Context())
	client := c.spans["POST /runner/v1/jobs"]
	if client == nil || server == nil {
		t.Fatalf("the collector got the spans %v", c.spans)
	}
	if !bytes.Equal(client.TraceId, server.TraceId) || !bytes.Equal(server.ParentSpanId, client.SpanId) || len(client.ParentSpanId) != 0 {
		t.Errorf("the spans are not one trace: %v, %v", client, server)
	}
	if client.Kind != v1.Span_SPAN_KIND_CLIENT || server.Kind != v1.Span_SPAN_KIND_SERVER || server.Status.Code != v1.Status_STATUS_CODE_ERROR || server.EndTimeUnixNano < server.StartTimeUnixNano {
		t.Errorf("the spans have another kind, status or time: %v, %v", client, server)
	}
	if !strings.Contains(out.String(), `"trace_id":"`+hex.EncodeToString(server.TraceId)+`"`) {
		t.Errorf("the log has no identifier of the trace: %s", out.String())
	}
	if text := fmt.Sprint(client, server); strings.Contains(text, "secret") {
		t.Errorf("a span contains a secret: %s", text)
	}
	if c.service != "runner" {
		t.Errorf("the spans are of the service %q", c.service)
	}
}

// A collector that refuses or does not exist changes nothing but a line in the log.
func TestBrokenCollectorFailsNoInvocation(t *testing.T) {
	c := newReceiver(t)
	c.status = http.StatusServiceUnavailable
	for name, url := range map[string]string{"it refuses": c.URL, "it is not there": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			handle := tracer(t, slog.New(slog.NewTextHandler(&out, nil)), "OTEL_EXPORTER_OTLP_ENDPOINT="+url).Invocations("sweep", func(context.Context, []byte) ([]byte, error) { return []byte("ok"), nil })
			for range 2 {
				if answer, err := handle(t.Context(), []byte("{}")); string(answer) != "ok" || err != nil {
					t.Errorf("got %s, %v", answer, err)
				}
			}
			if n := strings.Count(out.String(), "traces are lost"); n != 1 {
				t.Errorf("%d lines report it, want 1: %s", n, out.String())
			}
		})
	}
}

func TestStandardVariablesConfigureTraces(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, tt := range []struct {
		name    string
		environ []string
		on      bool
		wrong   string // the variable that the error names
	}{
		{"nothing is set", []string{"PATH=/bin"}, false, ""},
		{"an endpoint", []string{endpoint}, true, ""},
		{"the SDK is disabled", []string{endpoint, "OTEL_SDK_DISABLED=true"}, false, ""},
		{"traces are not exported", []string{endpoint, "OTEL_TRACES_EXPORTER=none"}, false, ""},
		{"no URL", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"another protocol", []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"headers without a value", []string{endpoint, "OTEL_EXPORTER_OTLP_HEADERS=secret"}, false, "OTEL_EXPORTER_OTLP_HEADERS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr, err := tracing.New(tt.environ, "x", "v1", slog.New(slog.DiscardHandler))
			if (tr != nil) != tt.on || (err != nil) != (tt.wrong != "") {
				t.Fatalf("got %v, %v", tr, err)
			}
			if err != nil && (!strings.HasPrefix(err.Error(), tt.wrong) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("got %v, want an error that names %s without its value", err, tt.wrong)
			}
			if base := http.DefaultTransport; (tr.Transport(base) != base) != tt.on {
				t.Errorf("requests are traced: %t, want %t", !tt.on, tt.on)
			}
			tr.Close(t.Context())
		})
	}
}
