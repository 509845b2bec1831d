// Package tracing records OpenTelemetry traces of a program: its requests to a control plane, or
// the invocations that it handles. It sends them by OTLP over HTTP to the collector that the
// standard OTEL_ variables name. Without such a variable it does nothing.
//
// The SDK of OpenTelemetry makes, samples and batches the spans. Its exporters are not used: they
// bring gRPC and protobuf, which would nearly double the runner's program. So this package encodes
// the spans itself, in the JSON form of OTLP.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes and sends the spans of one program. A nil Tracer makes none. Safe for concurrent
// use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// sendWithin bounds the sending of spans, so that a collector that does not answer delays neither
// an invocation nor the end of the agent for longer.
const sendWithin = 2 * time.Second

// New returns a Tracer that is configured by the standard variables in environ ("name=value"
// strings), or nil if they name no collector, or turn traces off. service names the program unless
// OTEL_SERVICE_NAME does. The error names the wrong variable.
//
// The SDK itself reads the variables of sampling, batches and the resource.
func New(environ []string, service, version string, logger *slog.Logger) (*Tracer, error) {
	vars := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "OTEL_") {
			vars[name] = strings.TrimSpace(value)
		}
	}
	to, err := collector(vars)
	if err != nil || to == nil {
		return nil, err
	}
	attributes := []attribute.KeyValue{attribute.String("service.version", version)}
	if vars["OTEL_SERVICE_NAME"] == "" {
		attributes = append(attributes, attribute.String("service.name", service))
	}
	to.logger = logger
	p := sdk.NewTracerProvider(sdk.WithBatcher(to, sdk.WithExportTimeout(sendWithin)), sdk.WithResource(resource.NewSchemaless(attributes...)))
	return &Tracer{provider: p, tracer: p.Tracer("github.com/fairlead/fairlead/pkg/tracing")}, nil
}

// collector returns the exporter to the collector that the variables name, or nil.
func collector(vars map[string]string) (*exporter, error) {
	endpoint := vars["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
	if base := vars["OTEL_EXPORTER_OTLP_ENDPOINT"]; endpoint == "" && base != "" {
		endpoint = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if endpoint == "" || strings.EqualFold(vars["OTEL_SDK_DISABLED"], "true") || vars["OTEL_TRACES_EXPORTER"] == "none" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: the endpoint of traces is not a URL with http:// or https://") // a URL can hold a password
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if p := vars[name]; p != "" && p != "http/json" {
			return nil, fmt.Errorf("%s is %q; only http/json is supported", name, p)
		}
	}
	to := &exporter{endpoint: endpoint, headers: http.Header{}, http: &http.Client{Timeout: sendWithin}}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(vars[name], ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			value, err := url.PathUnescape(strings.TrimSpace(value))
			if pair != "" && (!ok || key == "" || err != nil) {
				return nil, fmt.Errorf("%s is not a list of key=value, separated by commas", name)
			}
			if pair != "" {
				to.headers.Set(strings.TrimSpace(key), value)
			}
		}
	}
	return to, nil
}

// Transport returns base with a span for each request, whose context the request carries in the
// header traceparent.
func (t *Tracer) Transport(base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return &traced{t, base}
}

type traced struct {
	*Tracer
	base http.RoundTripper
}

func (t *traced) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.Start(r.Context(), r.Method+" "+prefix(r.URL.Path), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname()), attribute.String("url.path", r.URL.Path)))
	defer span.End()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	res, err := t.base.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer") // not the error, which can hold an address of the customer's network
		return res, err
	}
	answered(span, res.StatusCode, 400)
	return res, nil
}

// prefix returns the first three segments of a path: the part without identifiers.
func prefix(path string) string {
	parts := strings.SplitN(path, "/", 5)
	return strings.Join(parts[:min(len(parts), 4)], "/")
}

// answered records the status of an answer. From failed on, it is an error.
func answered(span trace.Span, status, failed int) {
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= failed {
		span.SetStatus(codes.Error, strconv.Itoa(status))
	}
}

// Flush sends all spans that ended.
func (t *Tracer) Flush(ctx context.Context) {
	if t != nil {
		ctx, cancel := context.WithTimeout(ctx, sendWithin)
		defer cancel()
		_ = t.provider.ForceFlush(ctx) // the exporter logs its errors
	}
}

// Close sends all spans that ended, and stops. Call it once.
func (t *Tracer) Close(ctx context.Context) {
	if t != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendWithin)
		defer cancel()
		_ = t.provider.Shutdown(ctx)
	}
}

// Logs returns a handler that adds trace_id and span_id to the lines that are logged with the
// context of a span.
func Logs(next slog.Handler) slog.Handler { return logs{next} }

type logs struct{ slog.Handler }

func (l logs) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return l.Handler.Handle(ctx, r)
}

func (l logs) WithAttrs(a []slog.Attr) slog.Handler { return logs{l.Handler.WithAttrs(a)} }
func (l logs) WithGroup(name string) slog.Handler   { return logs{l.Handler.WithGroup(name)} }
