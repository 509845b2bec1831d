// Package cancelmarktest has the conformance suite of cancelmark.Marks, and markers in memory
// that pass it.
package cancelmarktest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/cancelmark"
)

// Subject is an empty place of markers under test.
type Subject struct {
	Marks cancelmark.Marks
	// Found looks for the marker with a key, as a step does.
	Found func(t *testing.T, key string) bool
}

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	attempt := cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: 2}
	put := func(t *testing.T, s Subject, a cancelmark.Attempt) {
		t.Helper()
		if err := s.Marks.Put(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a marker is found by its attempt alone", func(t *testing.T) {
		s := open(t)
		if s.Found(t, attempt.Key()) {
			t.Error("a marker exists before it is written")
		}
		put(t, s, attempt)
		if !s.Found(t, attempt.Key()) {
			t.Error("the marker is not found")
		}
		for _, other := range []cancelmark.Attempt{{Install: "ins_a", Job: "job_a", Epoch: 3}, {Install: "ins_a", Job: "job_a", Epoch: 22},
			{Install: "ins_a", Job: "job_b", Epoch: 2}, {Install: "ins_b", Job: "job_a", Epoch: 2}} {
			if s.Found(t, other.Key()) {
				t.Errorf("the attempt %s found the marker of %s", other.Key(), attempt.Key())
			}
		}
	})
	t.Run("a marker can be written again", func(t *testing.T) {
		s := open(t)
		put(t, s, attempt)
		put(t, s, attempt) // the dispatcher does not know whether the API wrote it
		if !s.Found(t, attempt.Key()) {
			t.Error("the marker is not found")
		}
	})
	t.Run("writers at once lose no marker", func(t *testing.T) {
		s := open(t)
		var all sync.WaitGroup
		for epoch := range int64(20) {
			for range 2 {
				all.Go(func() { put(t, s, cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: epoch + 1}) })
			}
		}
		all.Wait()
		for epoch := range int64(20) {
			if a := (cancelmark.Attempt{Install: "ins_a", Job: "job_a", Epoch: epoch + 1}); !s.Found(t, a.Key()) {
				t.Errorf("the marker %s is lost", a.Key())
			}
		}
	})
	t.Run("the key starts with the install", func(t *testing.T) {
		// The permissions of an install's sessions compare this prefix.
		if key := attempt.Key(); !strings.HasPrefix(key, "ins_a/") {
			t.Errorf("the key is %s", key)
		}
	})
	t.Run("an ended context writes nothing", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Marks.Put(ctx, attempt); err == nil {
			t.Error("a write with an ended context succeeded")
		}
		if s.Found(t, attempt.Key()) {
			t.Error("the marker exists")
		}
	})
}

// Memory has the markers of a test. The zero value is ready. Safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	keys map[string]bool
}

// Put implements cancelmark.Marks.
func (m *Memory) Put(ctx context.Context, a cancelmark.Attempt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[string]bool{}
	}
	m.keys[a.Key()] = true
	return nil
}

// Has reports whether a marker with this key exists.
func (m *Memory) Has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys[key]
}
