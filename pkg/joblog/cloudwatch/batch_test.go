package cloudwatch

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

func TestBatchesKeepLimitsAndOrder(t *testing.T) {
	for name, messages := range map[string][]string{
		"none":                          nil,
		"one":                           {"x"},
		"exactly the limit of events":   slicesOf(maxBatchEvents, "x"),
		"one event more than the limit": slicesOf(maxBatchEvents+1, "x"),
		"exactly a mebibyte":            slicesOf(8, strings.Repeat("x", 128<<10-eventOverhead)),
		"one byte more than a mebibyte": append(slicesOf(8, strings.Repeat("x", 128<<10-eventOverhead)), ""),
		"append of the maximum size":    Encode(0, bytes.Repeat([]byte("\x00"), joblog.MaxAppend)),
	} {
		var again []string
		all := batches(messages)
		for _, b := range all {
			size := 0
			for _, m := range b {
				size += len(m) + eventOverhead
				if len(m)+eventOverhead > 256<<10 {
					t.Errorf("%s: an event has %d bytes", name, len(m))
				}
			}
			if len(b) == 0 || len(b) > maxBatchEvents || size > maxBatchBytes {
				t.Errorf("%s: a batch has %d events and %d bytes", name, len(b), size)
			}
			again = append(again, b...)
		}
		if strings.Join(again, "|") != strings.Join(messages, "|") || len(again) != len(messages) {
			t.Errorf("%s: the batches of %d messages have %d, or different ones", name, len(messages), len(again))
		}
	}
	if n := len(batches(slicesOf(8, strings.Repeat("x", 128<<10-eventOverhead)))); n != 1 {
		t.Errorf("a full batch was split into %d", n)
	}
}

func slicesOf(n int, m string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = m
	}
	return all
}

func TestEveryPieceIsDecodedUnchanged(t *testing.T) {
	check := func(t rapid.TB, offset int64, data []byte) {
		var got []byte
		for _, m := range Encode(offset, data) {
			e, err := Decode(m)
			if err != nil || e.Offset != offset+int64(len(got)) {
				t.Fatalf("event at %d after %d bytes, %v", e.Offset, len(got), err)
			}
			got = append(got, e.Data...)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes were decoded as %d different bytes", len(data), len(got))
		}
	}
	for _, data := range []string{
		"plan: 2 to add\n", " \n ", "\x1b[31mred\x1b[0m\r\n", "\x00", "\xff\xfe", "0 t x",
		strings.Repeat("ä", maxPiece), "x" + strings.Repeat("€", maxPiece), strings.Repeat("\x80", 2*maxPiece),
	} {
		check(t, 7, []byte(data))
	}
	if m := Encode(0, []byte("x"+strings.Repeat("€", maxPiece))); !strings.HasPrefix(m[1], "131071 t") && !strings.HasPrefix(m[1], "131070 t") && !strings.HasPrefix(m[1], "131072 t") {
		t.Errorf("a character was split: %.20q", m[1])
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Int64Range(0, joblog.MaxStream/2).Draw(t, "offset"), rapid.SliceOf(rapid.Byte()).Draw(t, "data"))
	})
}

func TestForeignMessagesAreRefused(t *testing.T) {
	for _, m := range []string{"", "hello", "-1 t x", "0 t ", "0 x y", "0 b ?", "99999999999 t x", "0 t", " t x", "1e3 t x"} {
		if e, err := Decode(m); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%q was decoded as %+v, %v", m, e, err)
		}
	}
	for _, name := range []string{"", "job_1", "job_1/", "job_1/0", "job_1/01", "job_1/1/2", "a b/1", "/1"} {
		if s, err := ParseStreamName(name); fairlead.KindOf(err) != fairlead.KindInvalid {
			t.Errorf("%q was parsed as %s, %v", name, s, err)
		}
	}
	s := joblog.Stream{Job: "job_1", Epoch: 12}
	if got, err := ParseStreamName(StreamName(s)); got != s || err != nil {
		t.Errorf("%s was parsed as %s, %v", s, got, err)
	}
}
