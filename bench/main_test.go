package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var errBroken = errors.New("broken")

// recording returns a section that records value for each of its figures and then
// returns err.
func recording(name string, value float64, err error, figures ...string) section {
	return section{name: name, measures: figures, run: func(_ context.Context, b *bench) error {
		for _, f := range figures {
			b.set(f, value)
		}
		return err
	}}
}

func newBench(notes io.Writer) *bench {
	return &bench{report: report{values: map[string]float64{}}, notes: notes}
}

// values returns each result's value by the result's name. The name of a kept result has
// a star at its end.
func values(results []Result) map[string]float64 {
	all := map[string]float64{}
	for _, r := range results {
		name := r.Name
		if r.Kept {
			name += "*"
		}
		all[name] = r.Value
	}
	return all
}

func wantValues(t *testing.T, got []Result, want map[string]float64) {
	t.Helper()
	if found := values(got); !maps.Equal(found, want) {
		t.Errorf("got %v, want %v", found, want)
	}
}

func older() []Result {
	return []Result{
		{Figure: Figure{Name: "claim_ms_p50", Value: 1, Unit: "ms", Reference: "an older goal"}},
		{Figure: Figure{Name: "log_ms_p50", Value: 2, Unit: "ms"}},
		{Figure: Figure{Name: "log_ms_p95", Value: 3, Unit: "ms"}, Kept: true},
		{Figure: Figure{Name: "gone_ms", Value: 4, Unit: "ms"}},
	}
}

func TestFailedSectionDoesNotStopTheOthers(t *testing.T) {
	var notes strings.Builder
	b := newBench(&notes)
	o := b.measure(t.Context(), []section{
		recording("claim", 10, errBroken, "claim_ms_p50", "claim_ms_p95"),
		recording("log", 20, nil, "log_ms_p50", "log_ms_p95"),
		{"partial", []string{"queue20_s"}, func(context.Context, *bench) error { return nil }},
		recording("check", 30, nil, "check_ms_p50"),
		{"machine", []string{"cpus"}, nil},
	})
	if o.measured != 2 || len(o.unmeasured) != 0 {
		t.Errorf("got %+v, want 2 sections measured and none interrupted", o)
	}
	if !strings.Contains(notes.String(), "failed: broken") {
		t.Errorf("the failure is not reported at once:\n%s", notes.String())
	}
	err := o.err()
	if !errors.Is(err, errBroken) {
		t.Errorf("%v does not wrap the failure", err)
	}
	for _, want := range []string{"sections that failed: claim, partial", "partial: the section did not measure queue20_s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
	measured, _ := b.figures()
	wantValues(t, withOlder(measured, older()), map[string]float64{"claim_ms_p50*": 1, "log_ms_p50": 20, "log_ms_p95": 20, "check_ms_p50": 30})
}

func TestInterruptKeepsMeasuredFigures(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	b := newBench(io.Discard)
	o := b.measure(ctx, []section{
		recording("claim", 10, nil, "claim_ms_p50"),
		{"log", []string{"log_ms_p50"}, func(ctx context.Context, b *bench) error {
			b.set("log_ms_p50", 20)
			interrupt(errBroken)
			return ctx.Err()
		}},
		{"check", []string{"check_ms_p50"}, func(context.Context, *bench) error {
			t.Error("a section started after the interruption")
			return nil
		}},
	})
	if o.measured != 1 || len(o.failed) != 0 || !slices.Equal(o.unmeasured, []string{"log", "check"}) {
		t.Errorf("got %+v, want only the section claim measured, and log and check not", o)
	}
	if err := o.err(); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "not measured: log, check") {
		t.Errorf("got %v, want the cause and the sections' names", err)
	}
	measured, _ := b.figures()
	wantValues(t, withOlder(measured, older()), map[string]float64{"claim_ms_p50": 10, "log_ms_p50*": 2, "log_ms_p95*": 3})
}

func TestRunWithoutFailuresHasNoError(t *testing.T) {
	b := newBench(io.Discard)
	if err := b.measure(t.Context(), []section{recording("claim", 10, nil, "claim_ms_p50")}).err(); err != nil {
		t.Error(err)
	}
}

func TestKeptResultsAreMarked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if got, err := readResults(path); len(got) > 0 || err != nil {
		t.Errorf("without a file: got %v, %v", got, err)
	}
	results := withOlder(nil, older())
	if results[0].Reference == "an older goal" {
		t.Error("a kept value has its old reference, want the current one")
	}
	if err := writeResults(path, results); err != nil {
		t.Fatal(err)
	}
	got, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, results) {
		t.Errorf("got %+v, want %+v", got, results)
	}
	var table strings.Builder
	if err := writeTable(&table, results); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(table.String(), "(kept, not measured)"); n != len(results) {
		t.Errorf("the table marks %d of %d:\n%s", n, len(results), table.String())
	}
	if err := os.WriteFile(path, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResults(path); err == nil {
		t.Error("readResults accepted a truncated file")
	}
}

func TestSaveRefusesEmptyAndBusyRuns(t *testing.T) {
	tests := []struct {
		name     string
		measured int
		others   float64
		force    bool
		written  bool
	}{
		{"some sections were measured", 1, maxOthers, false, true},
		{"no section was measured", 0, 0, true, false},
		{"on a busy machine", 1, maxOthers + 1, false, false},
		{"on a busy machine with -force", 1, maxOthers + 1, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results.json")
			err := save(path, older(), test.measured, test.others, test.force)
			if (err == nil) != test.written {
				t.Errorf("got error %v, want written: %t", err, test.written)
			}
			if _, err := os.Stat(path); (err == nil) != test.written {
				t.Errorf("stat: %v, want written: %t", err, test.written)
			}
		})
	}
}

func TestSmokeCountsCoverEverySection(t *testing.T) {
	least, most := reflect.ValueOf(smoke()), reflect.ValueOf(full())
	for i := range least.NumField() {
		name := least.Type().Field(i).Name
		switch least, most := least.Field(i), most.Field(i); least.Kind() {
		case reflect.Slice:
			if least.Len() < 1 || least.Len() > most.Len() {
				t.Errorf("%s has %d values, want 1 to %d", name, least.Len(), most.Len())
			}
		default:
			if least.Int() < 1 || least.Int() > most.Int() {
				t.Errorf("%s is %d, want 1 to %d", name, least.Int(), most.Int())
			}
		}
	}
}
