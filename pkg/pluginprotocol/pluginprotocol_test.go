package pluginprotocol_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// receive passes the lines to a receiver, a few bytes at a time, and returns the names of the events and the end.
func receive(op pluginprotocol.Operation, output string) (events []pluginprotocol.Event, last pluginprotocol.Event, err error) {
	r := pluginprotocol.NewReceiver(op, func(e pluginprotocol.Event) { events = append(events, e) })
	for part := range strings.SplitSeq(output, "") {
		if _, err := r.Write([]byte(part)); err != nil {
			break
		}
	}
	last, err = r.Close()
	return events, last, err
}

const (
	finished = `{"event":"finished"}` + "\n"
	change   = `{"event":"change","change":{"address":"a","action":"create"}}` + "\n"
)

func TestEventsRoundTrip(t *testing.T) {
	for _, e := range []pluginprotocol.Event{
		pluginprotocol.Described{Name: "p", Version: "1.0.0", Protocols: []int{1}, Operations: []pluginprotocol.Operation{"plan"}},
		pluginprotocol.Section{Name: "diff-objects", State: pluginprotocol.End, Failed: true},
		pluginprotocol.Mutating{},
		pluginprotocol.Change{Change: changeset.Change{Address: "a", Action: changeset.Update, Before: json.Number("12345678901234567890"), After: "b", Sensitive: []string{"/x"}}},
		pluginprotocol.OutputChange{Change: changeset.Change{Address: "url", Action: changeset.Create}},
		pluginprotocol.Base{Base: changeset.Base{Lineage: "l", Revision: 3}},
		pluginprotocol.Output{Name: "url", Value: json.RawMessage(`{"a":12345678901234567890}`), Sensitive: true},
		pluginprotocol.Finished{NoOp: true},
		pluginprotocol.Failed{Reason: fairlead.ReasonToolFailed, Message: "no"},
	} {
		line, err := pluginprotocol.Encode(e)
		if err != nil {
			t.Fatalf("%T: %v", e, err)
		}
		got, err := pluginprotocol.Decode(line)
		if err != nil {
			t.Errorf("%T: %v", e, err)
			continue
		}
		again, err := pluginprotocol.Encode(got)
		if err != nil || string(again) != string(line) {
			t.Errorf("%T: %s became %s (%v)", e, line, again, err)
		}
	}
}

func TestStepRefusesWhatTheProtocolForbids(t *testing.T) {
	for name, tc := range map[string]struct {
		op     pluginprotocol.Operation
		output string
	}{
		"a log line on standard output":       {"plan", "planning...\n"},
		"a list":                              {"plan", "[]\n"},
		"null":                                {"plan", "null\n"},
		"an empty line":                       {"plan", "\n"},
		"a line without an event":             {"plan", `{"no_op":true}` + "\n"},
		"an event that is not a string":       {"plan", `{"event":1}` + "\n"},
		"an unknown event":                    {"plan", `{"event":"progress","percent":5}` + "\n"},
		"an optional that is not a boolean":   {"plan", `{"event":"progress","optional":"yes"}` + "\n"},
		"a misspelt sensitive":                {"apply", `{"event":"output","name":"a","value":1,"senstive":true}` + "\n"},
		"an output without a value":           {"apply", `{"event":"output","name":"a"}` + "\n"},
		"an output with an invalid name":      {"apply", `{"event":"output","name":"a b","value":1}` + "\n"},
		"an output twice":                     {"apply", strings.Repeat(`{"event":"output","name":"a","value":1}`+"\n", 2)},
		"a change of an unknown action":       {"plan", `{"event":"change","change":{"address":"a","action":"destroy"}}` + "\n"},
		"a change without an address":         {"plan", `{"event":"change","change":{"action":"create"}}` + "\n"},
		"an unknown field of a change":        {"plan", `{"event":"change","change":{"address":"a","action":"create","senstive":["/a"]}}` + "\n"},
		"an output's change without its name": {"plan", `{"event":"output_change","change":{"address":"a b","action":"create"}}` + "\n"},
		"a change in an apply":                {"apply", change},
		"a base in an apply":                  {"apply", `{"event":"base","base":{"revision":1}}` + "\n"},
		"two bases":                           {"plan", strings.Repeat(`{"event":"base","base":{"revision":1}}`+"\n", 2)},
		"mutating in a plan":                  {"plan", `{"event":"mutating"}` + "\n"},
		"mutating twice":                      {"apply", strings.Repeat(`{"event":"mutating"}`+"\n", 2)},
		"described in a plan":                 {"plan", `{"event":"described","name":"a","version":"1","protocols":[1],"operations":["plan"]}` + "\n"},
		"a describe without an answer":        {"describe", finished},
		"an output in a describe":             {"describe", `{"event":"output","name":"a","value":1}` + "\n"},
		"an end without a begin":              {"plan", `{"event":"section","name":"a","state":"end"}` + "\n"},
		"sections that nest":                  {"plan", `{"event":"section","name":"a","state":"begin"}` + "\n" + `{"event":"section","name":"b","state":"begin"}` + "\n"},
		"a section with an invalid name":      {"plan", `{"event":"section","name":"a\u001b_b","state":"begin"}` + "\n"},
		"an event after the last one":         {"plan", finished + change},
		"two last events":                     {"apply", finished + `{"event":"failed","reason":"tool-failed","message":"x"}` + "\n"},
		"no_op with changes":                  {"plan", change + `{"event":"finished","no_op":true}` + "\n"},
		"no_op of an apply":                   {"apply", `{"event":"finished","no_op":true}` + "\n"},
		"failed without a message":            {"apply", `{"event":"failed","reason":"tool-failed"}` + "\n"},
		"an output that ends in a line":       {"plan", finished + "{"},
		"a line that is too long":             {"plan", `{"event":"x","optional":true,"a":"` + strings.Repeat("x", pluginprotocol.MaxLine)},
	} {
		_, _, err := receive(tc.op, tc.output)
		if _, ok := errors.AsType[*pluginprotocol.Violation](err); !ok {
			t.Errorf("%s is accepted: error %v", name, err)
		}
	}
}

func TestStepAcceptsWhatTheProtocolAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		op     pluginprotocol.Operation
		output string
		events int
	}{
		"a plan with changes":           {"plan", change + `{"event":"output_change","change":{"address":"url","action":"create"}}` + "\n" + `{"event":"base","base":{"revision":1}}` + "\n" + finished, 4},
		"a plan without changes":        {"plan-destroy", `{"event":"finished","no_op":true}` + "\n", 1},
		"an apply that changes":         {"apply", `{"event":"mutating"}` + "\n" + `{"event":"output","name":"a","value":null}` + "\n" + finished, 3},
		"an apply with nothing to do":   {"apply", finished, 1},
		"a failure":                     {"destroy", `{"event":"failed","reason":"x-y","message":"no"}` + "\n", 1},
		"an optional event":             {"apply", `{"event":"progress","optional":true,"percent":5}` + "\n" + finished, 1},
		"two sections":                  {"plan", `{"event":"section","name":"a","state":"begin"}` + "\n" + `{"event":"section","name":"a","state":"end"}` + "\n" + `{"event":"section","name":"b","state":"begin"}` + "\n" + finished, 4},
		"a description":                 {"describe", `{"event":"described","name":"a","version":"1","protocols":[1],"operations":["plan"]}` + "\n" + finished, 2},
		"no last event, for the caller": {"plan", change, 1},
	} {
		events, last, err := receive(tc.op, tc.output)
		if err != nil || len(events) != tc.events || (last == nil) != strings.HasPrefix(name, "no last") {
			t.Errorf("%s: events %v, last %v, error %v", name, events, last, err)
		}
	}
}

// A program that floods its output must not fill the step's memory.
func TestFloodIsRefused(t *testing.T) {
	line := []byte(`{"event":"x","optional":true,"a":"` + strings.Repeat("x", 1000) + "\"}\n")
	r := pluginprotocol.NewReceiver("plan", func(pluginprotocol.Event) {})
	for range pluginprotocol.MaxStream / len(line) {
		if _, err := r.Write(line); err != nil {
			t.Fatalf("below the limit: %v", err)
		}
	}
	if _, err := r.Write(line); err == nil {
		t.Error("the receiver accepts more than its limit")
	}
}

func TestRequestIsCheckedByTheProgram(t *testing.T) {
	good := pluginprotocol.Request{Protocol: 1, Operation: "plan", Job: "job_1", Install: "ins_1", Component: "web", Workspace: "/w", Source: "/w/src", Plan: "/w/plan",
		Vars: map[string]pluginprotocol.Var{"size": {Value: json.RawMessage("2")}}, Options: json.RawMessage(`{"a":1}`)}
	for name, tc := range map[string]struct {
		change func(*pluginprotocol.Request)
		reason fairlead.Reason // "": accepted
	}{
		"a plan":                  {func(*pluginprotocol.Request) {}, ""},
		"a describe":              {func(r *pluginprotocol.Request) { *r = pluginprotocol.Request{Protocol: 1, Operation: "describe"} }, ""},
		"another version":         {func(r *pluginprotocol.Request) { r.Protocol = 2 }, fairlead.ReasonSpecVersion},
		"an unknown operation":    {func(r *pluginprotocol.Request) { r.Operation = "dance" }, fairlead.ReasonSpecOperation},
		"no job":                  {func(r *pluginprotocol.Request) { r.Job = "" }, fairlead.ReasonSpecInvalid},
		"a relative plan":         {func(r *pluginprotocol.Request) { r.Plan = "plan" }, fairlead.ReasonSpecInvalid},
		"a plan without source":   {func(r *pluginprotocol.Request) { r.Source = "" }, fairlead.ReasonSpecInvalid},
		"an apply with a source":  {func(r *pluginprotocol.Request) { r.Operation, r.Vars, r.Options = "apply", nil, nil }, fairlead.ReasonSpecInvalid},
		"an apply with variables": {func(r *pluginprotocol.Request) { r.Operation, r.Source, r.Options = "apply", "", nil }, fairlead.ReasonSpecInvalid},
		"options that are a list": {func(r *pluginprotocol.Request) { r.Options = json.RawMessage("[]") }, fairlead.ReasonSpecInvalid},
	} {
		r := good
		tc.change(&r)
		line, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = pluginprotocol.DecodeRequest(line)
		refused, ok := errors.AsType[*pluginprotocol.RequestError](err)
		if ok != (tc.reason != "") || ok && refused.Reason != tc.reason {
			t.Errorf("%s: error %v, want the reason %q", name, err, tc.reason)
		}
	}
	if _, err := pluginprotocol.DecodeRequest([]byte("hello")); err == nil {
		t.Error("text is accepted as a request")
	}
	if _, err := pluginprotocol.DecodeRequest([]byte(`{"protocol":1,"operation":"describe","later":true}`)); err != nil {
		t.Errorf("a field of a later step is refused: %v", err)
	}
}

func TestLinesHaveALimit(t *testing.T) {
	for name, tc := range map[string]struct {
		input string
		want  string
		err   error
	}{
		"a line":           {"ab\nc", "ab", nil},
		"an empty line":    {"\n", "", nil},
		"the longest line": {"abcd\n", "abcd", nil},
		"a longer line":    {"abcde\n", "", pluginprotocol.ErrLineTooLong},
		"no input":         {"", "", io.EOF},
		"an unended line":  {"ab", "", io.ErrUnexpectedEOF},
	} {
		got, err := pluginprotocol.ReadLine(bufio.NewReader(strings.NewReader(tc.input)), 5)
		if string(got) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
