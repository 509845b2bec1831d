package record_test

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/runner/ledger/file"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

func set(number int64, keys ...string) record.KeySet {
	return record.KeySet{Number: number, Keys: keys, Job: "job_1"}
}

// A control plane that hides the newest key set would let a revoked key sign. Each row is a job after the ones before it.
func TestHiddenKeySetIsRefused(t *testing.T) {
	l := file.New(t.TempDir())
	pinned, later := []string{"1", "2"}, []string{"2", "3"}
	for _, job := range []struct {
		what    string
		pinned  []string
		set     record.KeySet
		refused bool
	}{
		{"the keys never changed", pinned, set(0, "1", "2"), false},
		{"the keys are rotated", pinned, set(1, "2", "1", "3"), false},
		{"the next job has the same keys", pinned, set(1, "2", "1", "3"), false},
		{"key 1 is revoked", pinned, set(2, "2", "3"), false},
		{"the control plane hides the revocation", pinned, set(1, "2", "1", "3"), true},
		{"the control plane hides all changes", pinned, set(0, "1", "2"), true},
		{"the customer pinned the newest keys", later, set(0, "2", "3"), false},
		{"a later change follows", pinned, set(3, "2", "4"), false},
	} {
		err := record.KeepKeySet(t.Context(), l, job.pinned, job.set)
		if _, refused := errors.AsType[*record.OlderKeySetError](err); refused != job.refused || !refused && err != nil {
			t.Errorf("%s: %v", job.what, err)
		}
	}
}
