package fairlead_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// TestEffectiveModeIsTheStricterOne checks pairs of a mode that the vendor sets and a
// mode that the customer sets. The stricter mode applies. The runner accepts jobs only if
// neither mode forbids it.
func TestEffectiveModeIsTheStricterOne(t *testing.T) {
	const enabled, paused, draining, disabled = fairlead.ModeEnabled, fairlead.ModePaused, fairlead.ModeDraining, fairlead.ModeDisabled
	for _, c := range []struct{ vendor, customer, want fairlead.RunnerMode }{
		{"", "", enabled}, {enabled, "", enabled}, {"", enabled, enabled}, {enabled, enabled, enabled},
		{paused, "", paused}, {"", paused, paused}, {paused, enabled, paused}, {enabled, paused, paused}, {paused, paused, paused},
		{draining, enabled, draining}, {enabled, draining, draining}, {paused, draining, draining}, {draining, paused, draining}, {draining, draining, draining},
		{disabled, enabled, disabled}, {enabled, disabled, disabled}, {disabled, paused, disabled}, {paused, disabled, disabled},
		{disabled, draining, disabled}, {draining, disabled, disabled}, {disabled, disabled, disabled}, {disabled, "", disabled},
	} {
		got := fairlead.EffectiveMode(c.vendor, c.customer)
		if got != c.want {
			t.Errorf("vendor %q, customer %q: the mode is %q, want %q", c.vendor, c.customer, got, c.want)
		}
		if want := c.want == enabled; got.TakesJobs() != want {
			t.Errorf("vendor %q, customer %q: jobs are accepted: %t", c.vendor, c.customer, !want)
		}
	}
}

func TestParseRunnerMode(t *testing.T) {
	for _, m := range fairlead.RunnerModes() {
		if got, err := fairlead.ParseRunnerMode(string(m)); err != nil || got != m {
			t.Errorf("%q parses as %q: %v", m, got, err)
		}
	}
	if m, err := fairlead.ParseRunnerMode(""); err != nil || m != fairlead.ModeEnabled {
		t.Errorf("the empty mode parses as %q: %v", m, err)
	}
	for _, s := range []string{"off", "Enabled", "paused "} {
		if m, err := fairlead.ParseRunnerMode(s); err == nil {
			t.Errorf("%q parses as %q", s, m)
		}
	}
}
