package stackversion_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/stackversion"
)

// A customer decides about an update by these sentences.
func TestEachVersionStatesItsChanges(t *testing.T) {
	for i, v := range stackversion.All() {
		if v.Number != strconv.Itoa(i+1) {
			t.Errorf("version %d has the number %q", i+1, v.Number)
		}
		if len(v.Changes) == 0 {
			t.Errorf("version %s states no change", v.Number)
		}
		for _, c := range v.Changes {
			if !strings.HasSuffix(c, ".") || strings.Contains(c, "\n") {
				t.Errorf("version %s: %q is no sentence", v.Number, c)
			}
		}
	}
}

func TestOlderStacksAreBehind(t *testing.T) {
	all := stackversion.All()
	for i, v := range all {
		if after := stackversion.After(v.Number); len(after) != len(all)-i-1 {
			t.Errorf("after version %s there are %d versions, want %d", v.Number, len(after), len(all)-i-1)
		}
	}
	if after := stackversion.After(stackversion.Current()); len(after) > 0 {
		t.Errorf("the current version is behind %v", after)
	}
	for _, unknown := range []string{"", "0", strconv.Itoa(len(all) + 1), "dev"} {
		if after := stackversion.After(unknown); len(after) > 0 {
			t.Errorf("the unknown version %q is behind %v", unknown, after)
		}
	}
}
