package fairlead_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestParseQuotas(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"installs=5, runners=7":   "",
		"jobs=5":                  `there is no quota "jobs"; the quotas are apps, groups, installs, rules, runners`,
		"installs":                "the quota installs is",
		"installs=0":              "the quota installs is",
		"installs=many,runners=1": "the quota installs is",
	} {
		q, err := fairlead.ParseQuotas(text)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", text, err)
		case text == "installs=5, runners=7" && (q.Limit(fairlead.QuotaInstalls) != 5 || q.Limit(fairlead.QuotaApps) != 1000):
			t.Errorf("%q sets %v", text, q)
		}
	}
}
