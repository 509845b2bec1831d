package pluginprotocol_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// A program of others writes what it wants: each line is an event that can be sent again, or a violation.
func FuzzReceiver(f *testing.F) {
	for _, line := range []string{
		`{"event":"described","name":"x","version":"1","protocol":1,"operations":["plan"]}`,
		`{"event":"mutating"}`, `{"event":"output","name":"url","value":"x","sensitive":true}`,
		`{"event":"change","address":"a","action":"create","after":{"n":12345678901234567890}}`,
		`{"event":"finished"}`, `{"event":"failed","reason":"tool-failed","message":"x"}`, `{"event":"later","optional":true}`, `{"event":`, "null", "\x00",
	} {
		f.Add([]byte(line+"\n"), uint8(0))
		f.Add([]byte(line), uint8(1))
	}
	f.Fuzz(func(t *testing.T, output []byte, n uint8) {
		ops := pluginprotocol.Operations()
		r := pluginprotocol.NewReceiver(ops[int(n)%len(ops)], func(e pluginprotocol.Event) {
			line, err := pluginprotocol.Encode(e)
			if err != nil {
				if errors.Is(err, pluginprotocol.ErrLineTooLong) {
					return
				}
				t.Fatalf("an event that was received cannot be sent: %#v: %v", e, err)
			}
			again, err := pluginprotocol.Decode(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil || !reflect.DeepEqual(again, e) {
				t.Fatalf("an event is another one after it was sent again: %#v, %#v, %v", e, again, err)
			}
		})
		_, err := r.Write(output)
		if _, ok := errors.AsType[*pluginprotocol.Violation](err); err != nil && !ok {
			t.Fatalf("the error is a %T", err)
		}
		if err != nil && strings.Contains(err.Error(), "Go ") {
			t.Fatalf("the error has terms of Go: %v", err)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"operation":"plan","job":"j","install":"i","component":"c","workspace":"/w","plan":"/p","source":"/s","vars":{"a":1},"options":{}}`))
	f.Add([]byte(`{"protocol":1,"operation":"describe"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		_, err := pluginprotocol.DecodeRequest(line)
		if _, ok := errors.AsType[*pluginprotocol.RequestError](err); err != nil && !ok {
			t.Fatalf("the error is a %T", err)
		}
	})
}
