package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans to a collector, in the JSON form of OTLP:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
type exporter struct {
	endpoint string
	headers  http.Header
	http     *http.Client
	logger   *slog.Logger
	failed   atomic.Bool // the last batch was not sent; the exporter logs the first failure only
}

// ExportSpans sends a batch. A batch that cannot be sent is lost, because traces must not hold up
// what they describe.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.send(ctx, spans)
	if before := e.failed.Swap(err != nil); err != nil && !before {
		e.logger.Warn("traces are lost: the collector does not accept them", "error", err)
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(context.Context) error { return nil }

func (e *exporter) send(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	body, err := json.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = e.headers.Clone()
	r.Header.Set("Content-Type", "application/json")
	res, err := e.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answered %s", res.Status)
	}
	return nil
}

// The messages of OTLP, as far as this package uses them. 64-bit numbers are strings.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Status     status     `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"` // 1: ok, 2: error
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
)

// encode makes a request of the spans of one program, which all have the same resource and scope.
func encode(spans []sdk.ReadOnlySpan) (out request) {
	if len(spans) == 0 {
		return out
	}
	var of resourceSpans
	of.Resource.Attributes = attributes(spans[0].Resource().Attributes())
	var in scopeSpans
	in.Scope.Name = spans[0].InstrumentationScope().Name
	for _, s := range spans {
		e := span{TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(), Name: s.Name(), Kind: int(s.SpanKind()),
			Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10), Attributes: attributes(s.Attributes())}
		if s.Parent().HasSpanID() {
			e.ParentID = s.Parent().SpanID().String()
		}
		switch s.Status().Code {
		case codes.Ok:
			e.Status.Code = 1
		case codes.Error:
			e.Status = status{Code: 2, Message: s.Status().Description}
		case codes.Unset:
		}
		in.Spans = append(in.Spans, e)
	}
	of.ScopeSpans = []scopeSpans{in}
	return request{ResourceSpans: []resourceSpans{of}}
}

func attributes(list []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(list))
	for i, a := range list {
		value := map[string]any{"stringValue": a.Value.String()}
		switch a.Value.Type() {
		case attribute.INT64:
			value = map[string]any{"intValue": a.Value.String()}
		case attribute.BOOL:
			value = map[string]any{"boolValue": a.Value.AsBool()}
		}
		out[i] = keyValue{string(a.Key), value}
	}
	return out
}
