package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(op pluginprotocol.Operation) string {
	r := pluginprotocol.Request{Protocol: 1, Type: "greeting", Operation: op, Job: "job_1", Install: "ins_1", Component: "web", Workspace: "/w", Plan: "/w/plan"}
	if op.Plans() {
		r.Source = "/w/src"
	}
	b, err := r.Encode()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// run serves the operation with a handler, and returns the exit code, the events as a step receives them, and the logs. rest is
// what follows the request; the input stays open afterwards unless rest is nil.
func run(t *testing.T, op pluginprotocol.Operation, rest *string, h serve.Handler) (code int, last pluginprotocol.Event, text, log string) {
	t.Helper()
	in, feed := io.Pipe()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		io.WriteString(feed, request(op))
		if rest == nil {
			feed.Close()
		} else {
			io.WriteString(feed, *rest)
		}
	}()
	var out, logged bytes.Buffer
	ops := map[pluginprotocol.Operation]serve.Handler{op: h}
	code = serve.Run(t.Context(), serve.Plugin{Name: "greeting", Version: "1.0.0", Types: []string{"greeting"}, Operations: ops}, in, &out, &logged)
	feed.Close()
	in.Close()
	<-fed
	r := pluginprotocol.NewReceiver(op, func(pluginprotocol.Event) {})
	r.Write(out.Bytes())
	last, err := r.Close()
	if err != nil {
		t.Errorf("the step refuses the output: %v\n%s", err, out.String())
	}
	return code, last, out.String(), logged.String()
}

func ptr[T any](v T) *T { return &v }

func TestHandlerSendsItsEvents(t *testing.T) {
	code, last, text, _ := run(t, pluginprotocol.Plan, ptr(""), func(_ context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
		return out.Section("compare", func() error {
			return errors.Join(out.Base(changeset.Base{Revision: 2}), out.Change(changeset.Change{Address: req.Component, Action: changeset.Create}),
				out.OutputChange(changeset.Change{Address: "url", Action: changeset.Create}))
		})
	})
	if code != 0 || last != (pluginprotocol.Finished{}) || strings.Count(text, "\n") != 6 || !strings.Contains(text, `"address":"web"`) {
		t.Errorf("exit code %d, last event %v, events\n%s", code, last, text)
	}
	code, last, text, _ = run(t, pluginprotocol.Apply, ptr(""), func(_ context.Context, _ pluginprotocol.Request, out *serve.Emitter) error {
		return errors.Join(out.Mutating(), out.Output("secret", map[string]any{"a": 1}, true))
	})
	if code != 0 || last != (pluginprotocol.Finished{}) || !strings.Contains(text, `"value":{"a":1},"sensitive":true`) {
		t.Errorf("exit code %d, last event %v, events\n%s", code, last, text)
	}
	code, last, _, _ = run(t, pluginprotocol.Plan, ptr(""), func(_ context.Context, _ pluginprotocol.Request, out *serve.Emitter) error { out.NoOp(); return nil })
	if code != 0 || last != (pluginprotocol.Finished{NoOp: true}) {
		t.Errorf("exit code %d, last event %v, want no_op", code, last)
	}
}

func TestErrorBecomesTheLastEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		rest   *string
		h      serve.Handler
		reason fairlead.Reason
		text   string
	}{
		"a failure with its reason": {ptr(""), func(context.Context, pluginprotocol.Request, *serve.Emitter) error {
			return errors.Join(errors.New("wrapped"), serve.Fail(fairlead.ReasonPlanStale, "release web is at revision 3"))
		}, fairlead.ReasonPlanStale, "revision 3"},
		"a plain error":           {ptr(""), func(context.Context, pluginprotocol.Request, *serve.Emitter) error { return errors.New("no disk") }, fairlead.ReasonToolFailed, "no disk"},
		"an error without a text": {ptr(""), func(context.Context, pluginprotocol.Request, *serve.Emitter) error { return errors.New("") }, fairlead.ReasonToolFailed, "see the log"},
		"a panic":                 {ptr(""), func(context.Context, pluginprotocol.Request, *serve.Emitter) error { panic("s3cret") }, fairlead.ReasonToolFailed, "internal error"},
		"a cancel line": {ptr(`{"later":1}` + "\n" + `{"cancel":{"reason":"canceled"}}` + "\n"), func(ctx context.Context, _ pluginprotocol.Request, _ *serve.Emitter) error {
			<-ctx.Done()
			return ctx.Err()
		}, fairlead.ReasonCanceled, "canceled"},
		"the end of the step": {nil, func(ctx context.Context, _ pluginprotocol.Request, _ *serve.Emitter) error {
			<-ctx.Done()
			return ctx.Err()
		}, fairlead.ReasonCanceled, "the step has ended"},
		"an output that is too large": {ptr(""), func(_ context.Context, _ pluginprotocol.Request, out *serve.Emitter) error {
			out.Output("a", strings.Repeat("x", pluginprotocol.MaxLine), false)
			return nil // ignores the error
		}, fairlead.ReasonOutputsTooLarge, "keep large values"},
		"an output that the step would refuse": {ptr(""), func(_ context.Context, _ pluginprotocol.Request, out *serve.Emitter) error {
			return out.Output("a b", 1, false)
		}, fairlead.ReasonToolFailed, "not a valid name"},
	} {
		code, last, text, log := run(t, pluginprotocol.Apply, tc.rest, tc.h)
		f, ok := last.(pluginprotocol.Failed)
		if code != 1 || !ok || f.Reason != tc.reason || !strings.Contains(f.Message, tc.text) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: exit code %d, last event %+v, events\n%s", name, code, last, text)
		}
		if name == "a panic" && !strings.Contains(log, "serve_test.go") {
			t.Errorf("the log has no stack:\n%s", log)
		}
	}
}

func TestUnfitRequestIsRefused(t *testing.T) {
	p := serve.Plugin{Name: "greeting", Version: "1.0.0", Types: []string{"greeting"}, Operations: map[pluginprotocol.Operation]serve.Handler{
		pluginprotocol.Plan: func(context.Context, pluginprotocol.Request, *serve.Emitter) error {
			t.Error("the handler ran")
			return nil
		}}}
	for name, tc := range map[string]struct {
		input  string
		reason fairlead.Reason
	}{
		"no input":             {"", fairlead.ReasonSpecMalformed},
		"half a request":       {`{"protocol":1`, fairlead.ReasonSpecMalformed},
		"another version":      {`{"protocol":7,"operation":"plan"}` + "\n", fairlead.ReasonSpecVersion},
		"an unknown operation": {`{"protocol":1,"operation":"dance"}` + "\n", fairlead.ReasonSpecOperation},
		"a missing operation":  {request(pluginprotocol.Apply), fairlead.ReasonSpecOperation},
		"another type":         {strings.Replace(request(pluginprotocol.Plan), "greeting", "helm", 1), fairlead.ReasonSpecInvalid},
	} {
		var out bytes.Buffer
		code := serve.Run(t.Context(), p, strings.NewReader(tc.input), &out, io.Discard)
		var f struct{ Event, Reason string }
		if err := json.Unmarshal(out.Bytes(), &f); err != nil || code != 1 || f.Event != "failed" || f.Reason != string(tc.reason) {
			t.Errorf("%s: exit code %d, output %s", name, code, &out)
		}
	}
	var out bytes.Buffer
	code := serve.Run(t.Context(), p, strings.NewReader(`{"protocol":1,"operation":"describe"}`+"\n"), &out, io.Discard)
	want := `{"event":"described","name":"greeting","version":"1.0.0","protocols":[1],"operations":["plan"],"types":["greeting"]}` + "\n" + `{"event":"finished"}` + "\n"
	if code != 0 || out.String() != want {
		t.Errorf("exit code %d, output %s", code, &out)
	}
}

// A plugin whose step is dead must stop instead of working without a reader.
func TestBrokenOutputStopsTheHandler(t *testing.T) {
	in, feed := io.Pipe()
	go io.WriteString(feed, request(pluginprotocol.Apply))
	r, w := io.Pipe()
	r.Close()
	stopped := false
	code := serve.Run(t.Context(), serve.Plugin{Name: "g", Version: "1", Operations: map[pluginprotocol.Operation]serve.Handler{
		pluginprotocol.Apply: func(ctx context.Context, _ pluginprotocol.Request, out *serve.Emitter) error {
			if out.Mutating() == nil {
				t.Error("mutating was sent to no reader")
			}
			<-ctx.Done()
			stopped = true
			return nil
		}}}, in, w, io.Discard)
	feed.Close()
	if code != 1 || !stopped {
		t.Errorf("exit code %d, stopped %v", code, stopped)
	}
}
