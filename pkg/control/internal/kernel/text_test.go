package kernel_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
)

// Values have limits, and an escaped < is six times as large.
func TestEncodedJSONHasNoEscapesOfHTML(t *testing.T) {
	got, err := kernel.EncodeJSON(map[string]string{"a": "<b> & c"})
	if want := `{"a":"<b> & c"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
