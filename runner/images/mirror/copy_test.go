package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/regclient/regclient/types"
)

// The library's ticker reported a layer after its copy had returned, while the engine wrote its next line: a data race on the log.
func TestLateReportsOfACopyAreDropped(t *testing.T) {
	var log strings.Builder
	p := &progress{log: &log, last: map[string]time.Time{}}
	p.report(types.CallbackBlob, "sha256:1", types.CallbackFinished, 5, 5)
	p.end()
	p.report(types.CallbackBlob, "sha256:2", types.CallbackActive, 3, 5)
	if want := "layer sha256:1: copied, 5 bytes\n"; log.String() != want {
		t.Errorf("the log is %q, want %q", &log, want)
	}
}
