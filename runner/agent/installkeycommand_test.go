package agent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/internal/installseed"
)

// The customer prints the key of an install, rotates the seed, and prints another key. No command prints a seed.
func TestCustomerShowsAndRotatesKeys(t *testing.T) {
	data := t.TempDir()
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errors bytes.Buffer
		if code := InstallKey(append(args, "--data", data), Options{Stdout: &out, Stderr: &errors}); code != want {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, want, errors.String())
		}
		return out.String() + errors.String()
	}
	if text := run(exitError, "show", "ins_1"); !strings.Contains(text, "no seed of its own") {
		t.Errorf("without a seed: %s", text)
	}
	run(exitOK, "rotate")
	before := run(exitOK, "show", "ins_1")
	seeds, err := installseed.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := installkey.NewRing(seeds, "ins_1")
	if err != nil || before != ring.Current().Public().String()+"\n"+ring.Current().Public().Fingerprint()+"\n" {
		t.Errorf("printed %q, %v", before, err)
	}
	if other := run(exitOK, "show", "ins_2"); other == before {
		t.Error("two installs have one key")
	}
	rotated := run(exitOK, "rotate")
	if after := run(exitOK, "show", "ins_1"); after == before {
		t.Error("the key is the same after a rotation")
	}
	for _, seed := range strings.Fields(seeds) {
		if strings.Contains(before+rotated, seed) {
			t.Error("a command prints a seed")
		}
	}
	for _, args := range [][]string{{}, {"show"}, {"print", "ins_1"}} {
		var out bytes.Buffer
		if code := InstallKey(args, Options{Stderr: &out}); code != exitUsage || !strings.Contains(out.String(), "usage:") {
			t.Errorf("%v: exit code %d: %s", args, code, out.String())
		}
	}
}
