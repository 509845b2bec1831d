package watch_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// A reader learns once for each attempt that its log was cut, after the last byte and while the job still runs.
func TestCutLogIsReportedOnce(t *testing.T) {
	var i watch.Incomplete
	for _, row := range []struct {
		what  string
		chunk wire.LogChunk
		want  string
	}{
		{"bytes of a cut log are shown first", wire.LogChunk{Epoch: 1, Data: []byte("x"), TruncatedBy: wire.ByLogBudget}, ""},
		{"the end of a cut log while the job runs", wire.LogChunk{Epoch: 1, TruncatedBy: wire.ByLogBudget}, "budget of log bytes"},
		{"the next answer for the same attempt", wire.LogChunk{Epoch: 1, TruncatedBy: wire.ByLogBudget}, ""},
		{"the end of the job", wire.LogChunk{Epoch: 1, TruncatedBy: wire.ByLogBudget, Truncated: true, Done: true}, ""},
		{"the cut log of the next attempt", wire.LogChunk{Epoch: 2, TruncatedBy: wire.ByLogBudget}, "budget of log bytes"},
		{"a log whose end was lost", wire.LogChunk{Epoch: 3, Truncated: true, Done: true}, "not complete"},
		{"a complete log", wire.LogChunk{Epoch: 4, Done: true}, ""},
	} {
		if got := i.Next(row.chunk); (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", row.what, got, row.want)
		}
	}
}
