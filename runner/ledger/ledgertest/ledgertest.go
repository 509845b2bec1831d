// Package ledgertest is the conformance suite of ledgers.
package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/runner/ledger"
)

// Run runs the suite. open returns a client of the same, at first empty, ledger: each call plays another process.
func Run(t *testing.T, open func(t *testing.T) ledger.Ledger) {
	t.Run("AnEntryIsCreatedOnce", func(t *testing.T) { createdOnce(t, open) })
	t.Run("OneOfManyAtOnceCreates", func(t *testing.T) { oneOfMany(t, open) })
	t.Run("ListHasWhatWasCreated", func(t *testing.T) { listed(t, open) })
	t.Run("InvalidEntriesAreRefused", func(t *testing.T) { refused(t, open) })
}

func createdOnce(t *testing.T, open func(t *testing.T) ledger.Ledger) {
	l := open(t)
	if err := l.Create(t.Context(), "once/a", []byte("first")); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]ledger.Ledger{"the same process": l, "a process after a restart": open(t)} {
		if err := other.Create(t.Context(), "once/a", []byte("second")); !errors.Is(err, ledger.ErrExists) {
			t.Errorf("%s creates it again: %v", name, err)
		}
		if all, err := other.List(t.Context(), "once/"); err != nil || len(all) != 1 || all[0].Key != "once/a" || string(all[0].Value) != "first" {
			t.Errorf("%s finds %q (%v)", name, all, err)
		}
	}
	if err := errors.Join(l.Remove(t.Context(), "once/a"), l.Remove(t.Context(), "once/a")); err != nil {
		t.Errorf("remove: %v", err)
	}
	if all, err := open(t).List(t.Context(), "once/"); err != nil || len(all) != 0 {
		t.Errorf("after the removal: %q (%v)", all, err)
	}
}

// An approval is used once, also if two steps use it at the same moment.
func oneOfMany(t *testing.T, open func(t *testing.T) ledger.Ledger) {
	const steps, keys = 8, 5
	for k := range keys {
		key := fmt.Sprintf("many/%d", k)
		var wg sync.WaitGroup
		errs := make([]error, steps)
		begin := make(chan struct{})
		for i := range steps {
			l := open(t)
			wg.Go(func() {
				<-begin
				errs[i] = l.Create(t.Context(), key, fmt.Appendf(nil, "of step %d", i))
			})
		}
		close(begin)
		wg.Wait()
		var winners []string
		for i, err := range errs {
			if err == nil {
				winners = append(winners, fmt.Sprintf("of step %d", i))
			} else if !errors.Is(err, ledger.ErrExists) {
				t.Errorf("%s: %v", key, err)
			}
		}
		all, err := open(t).List(t.Context(), "many/")
		if len(winners) != 1 || err != nil || len(all) != k+1 || string(all[k].Value) != winners[0] {
			t.Errorf("%s: created by %q, the ledger has %q (%v)", key, winners, all, err)
		}
	}
}

func listed(t *testing.T, open func(t *testing.T) ledger.Ledger) {
	l := open(t)
	if all, err := l.List(t.Context(), "list/"); err != nil || len(all) != 0 {
		t.Errorf("an empty ledger has %q (%v)", all, err)
	}
	large := bytes.Repeat([]byte{'x'}, ledger.MaxValue)
	for key, value := range map[string][]byte{"list/b/2": []byte("2"), "list/b/1": large, "list/a": {}, "list/bc/1": []byte("other"), "lists/a": []byte("other"), "list/b/UPPER.x_y": []byte("3"), "list/b/upper.x_y": []byte("4")} {
		if err := l.Create(t.Context(), key, value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	keys := func(prefix string) (keys []string) {
		all, err := open(t).List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			keys = append(keys, fmt.Sprintf("%s=%d", e.Key, len(e.Value)))
		}
		return keys
	}
	if got, want := keys("list/b/"), []string{fmt.Sprintf("list/b/1=%d", len(large)), "list/b/2=1", "list/b/UPPER.x_y=1", "list/b/upper.x_y=1"}; !slices.Equal(got, want) {
		t.Errorf("list/b/ has %q, want %q", got, want)
	}
	if got, err := open(t).Keys(t.Context(), "list/b/"); err != nil || !slices.Equal(got, []string{"list/b/1", "list/b/2", "list/b/UPPER.x_y", "list/b/upper.x_y"}) {
		t.Errorf("the keys of list/b/ are %q (%v)", got, err)
	}
	if got := keys("list/"); len(got) != 6 || !slices.IsSorted(got) {
		t.Errorf("list/ has %q", got)
	}
}

func refused(t *testing.T, open func(t *testing.T) ledger.Ledger) {
	l := open(t)
	for _, key := range []string{"", "a", "/a/b", "a/", "a/../b", "a//b", "a/.b", "a b/c", "a/" + strings.Repeat("x", 200)} {
		if l.Create(t.Context(), key, nil) == nil {
			t.Errorf("the key %q is created", key)
		}
	}
	if l.Create(t.Context(), "refused/large", make([]byte, ledger.MaxValue+1)) == nil {
		t.Error("a value that is too large is created")
	}
}
