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

func TestEndOfTheTimeIsNoFailure(t *testing.T) {
	const begin = "fuzz: elapsed: 1s, execs: 8455 (5928/sec), new interesting: 11 (total: 49)\n--- FAIL: FuzzParse (1.45s)\n"
	for output, want := range map[string]bool{
		begin + "    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tpkg/policy\t1.480s\n":                                                                             true,
		begin + "    --- FAIL: FuzzParse (0.00s)\n        policy_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzParse/1\nFAIL\n": false,
		begin + "    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                                                                                 false,
		"# pkg/policy\npolicy_test.go:9: undefined: x\nFAIL\tpkg/policy [build failed]\nFAIL\n":                                                                              false,
		"": false,
	} {
		if got := onlyTimeEnded(output); got != want {
			t.Errorf("%t, want %t:\n%s", got, want, output)
		}
	}
}
