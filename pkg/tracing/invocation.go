package tracing

import (
	"context"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Invocation handles one invocation of a function on AWS Lambda: event in, answer out.
type Invocation func(ctx context.Context, event []byte) ([]byte, error)

// Invocations returns handle with a span for each invocation. If the event is a request of API
// Gateway, the span continues the trace of its header traceparent, and has the name of its route.
// The spans are sent before the function answers, because Lambda stops the process between two
// invocations.
func (t *Tracer) Invocations(function string, handle Invocation) Invocation {
	if t == nil {
		return handle
	}
	return func(ctx context.Context, event []byte) ([]byte, error) {
		var request struct {
			Headers        map[string]string `json:"headers"` // API Gateway writes their names in lower case
			RouteKey       string            `json:"routeKey"`
			RequestContext struct {
				RequestID string `json:"requestId"`
				HTTP      struct {
					Method string `json:"method"`
					Path   string `json:"path"`
				} `json:"http"`
			} `json:"requestContext"`
		}
		_ = json.Unmarshal(event, &request) // another event has none of this
		name, http := function, request.RequestContext.HTTP
		attributes := []attribute.KeyValue{attribute.String("faas.name", function)}
		if http.Method != "" {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(request.Headers))
			_, route, _ := strings.Cut(request.RouteKey, " ")
			name = http.Method + " " + route
			attributes = append(attributes, attribute.String("http.request.method", http.Method), attribute.String("http.route", route),
				attribute.String("url.path", http.Path), attribute.String("aws.request_id", request.RequestContext.RequestID))
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
		answer, err := handle(ctx, event)
		var response struct {
			StatusCode int `json:"statusCode"`
		}
		if err != nil {
			span.SetStatus(codes.Error, "the function failed")
		} else if http.Method != "" && json.Unmarshal(answer, &response) == nil {
			answered(span, response.StatusCode, 500)
		}
		span.End()
		t.Flush(ctx)
		return answer, err
	}
}
