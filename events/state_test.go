package events_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
)

// The suffix of a Secret's name is a valid label, is unique for the key, and does not end with a number.
func TestSecretSuffixIsValidAndUnique(t *testing.T) {
	long := "ins_01kahqzzzzzzzzzzzzzzzzzzzz/" + strings.Repeat("x", 62)
	seen := map[string]string{}
	for _, key := range []string{"ins_1/web", "ins-1/web", "ins_1/WEB", "ins_1/web-1", long + "a", long + "b", "ins_1/" + strings.Repeat("-", 40)} {
		for _, plan := range []bool{false, true} {
			s := events.StateRef{Storage: "kubernetes", Key: key}.Object(plan)
			if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?-(state|plan)$`).MatchString(s) || len(s) > 63 {
				t.Errorf("the suffix of %s (plan: %t) is %s", key, plan, s)
			}
			if other, ok := seen[s]; ok {
				t.Errorf("%s and %s have the same suffix", other, key)
			}
			seen[s] = key
		}
	}
}
