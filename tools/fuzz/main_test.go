package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// A failed target does not hide the targets after it.
func TestEachTargetRunsAlsoAfterAFailure(t *testing.T) {
	var ran []target
	err := run(t.Context(), "../..", time.Minute, "", io.Discard, func(_ context.Context, tg target, long time.Duration) error {
		ran = append(ran, tg)
		if long != time.Minute {
			t.Errorf("%s runs for %s", tg.name, long)
		}
		if tg.name == "FuzzReceiver" {
			return errors.New("it failed")
		}
		return nil
	})
	if err == nil || err.Error() != "failed: FuzzReceiver in ./pkg/pluginprotocol" {
		t.Errorf("got %v", err)
	}
	if len(ran) < 25 {
		t.Errorf("only %d targets were found: %v", len(ran), ran)
	}
	for _, want := range []target{{"./pkg/pluginprotocol", "FuzzDecodeRequest"}, {"./pkg/policy", "FuzzParse"}, {"./runner/internal/redact", "FuzzNoSplitLeaks"}} {
		if !slices.Contains(ran, want) {
			t.Errorf("%v was not found", want)
		}
	}
}

func TestOnlySelectsByPackageAndName(t *testing.T) {
	var ran []string
	if err := run(t.Context(), "../..", time.Second, "pkg/bundle FuzzRead", io.Discard, func(_ context.Context, tg target, _ time.Duration) error {
		ran = append(ran, tg.name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if strings.Join(ran, " ") != "FuzzReadLock FuzzReadWhole" {
		t.Errorf("ran %v", ran)
	}
}
