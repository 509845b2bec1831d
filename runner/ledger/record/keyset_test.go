package record_test

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/runner/ledger/file"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

// A control plane that hides the newest key set would let a revoked key sign. Each row is a job after the ones before it; its key sets
// are those that it followed, by number and content.
func TestHiddenKeySetIsRefused(t *testing.T) {
	l := file.New(t.TempDir())
	pinned, later := []string{"1", "2"}, []string{"2", "3"}
	for _, job := range []struct {
		what    string
		pinned  []string
		sets    []string
		refused bool
	}{
		{"the keys never changed", pinned, nil, false},
		{"the keys are rotated", pinned, []string{"1a"}, false},
		{"the next job has the same keys", pinned, []string{"1a"}, false},
		{"a key is revoked", pinned, []string{"1a", "2b"}, false},
		{"the control plane hides the revocation", pinned, []string{"1a"}, true},
		{"the control plane hides all changes", pinned, nil, true},
		{"another key set of the same number", pinned, []string{"1a", "2x"}, true},
		{"another key set with a higher number", pinned, []string{"3x"}, true},
		{"the customer pinned the newest keys", later, nil, false},
		{"two later changes follow", pinned, []string{"1a", "2b", "3c", "4d"}, false},
		{"the control plane hides the last of them", pinned, []string{"1a", "2b", "3c"}, true},
	} {
		var followed []record.KeySet
		for _, s := range job.sets {
			followed = append(followed, record.KeySet{Number: int64(s[0] - '0'), Digest: "sha256:" + s[1:], Job: "job_1"})
		}
		err := record.KeepKeySet(t.Context(), l, job.pinned, followed)
		if _, refused := errors.AsType[*record.LostKeySetError](err); refused != job.refused || !refused && err != nil {
			t.Errorf("%s: %v", job.what, err)
		}
	}
}
