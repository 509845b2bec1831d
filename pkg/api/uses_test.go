package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// CloudFormation refuses a link with a longer value.
func TestSentencesFitAParameter(t *testing.T) {
	if got := usesForm([]string{"One.", "Two."}); got != "One. Two." {
		t.Errorf("two sentences are %q", got)
	}
	long := slices.Repeat([]string{strings.Repeat("x", 99) + "."}, 60)
	if got := usesForm(long); len(got) > wire.MaxStackParameter || len(got) < 3900 || !strings.HasSuffix(got, "x. There is more: see AppActions.") {
		t.Errorf("60 sentences have %d bytes and end with %q", len(got), got[len(got)-40:])
	}
	if got := usesForm([]string{strings.Repeat("x", 5000)}); got != "There is more: see AppActions." {
		t.Errorf("a sentence that is too long gives %.60q", got)
	}
}
