// Package tofu finds the tools that tests run, and creates a provider mirror for them.
package tofu

import (
	"os"
	"path/filepath"
	"testing"
)

// Tools returns the paths of the installed OpenTofu and Terraform: the tool that FAIRLEAD_TOFU
// names, and those on PATH. The keys are FAIRLEAD_TOFU, tofu and terraform. If FAIRLEAD_TOFU
// is set, a short run ignores PATH. If there is no tool, Tools skips the test.
func Tools(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	if path := os.Getenv("FAIRLEAD_TOFU"); path != "" {
		found["FAIRLEAD_TOFU"] = path
		if testing.Short() {
			return found // so a short run uses the same tools, for the same time, on all machines
		}
	}
	for _, name := range []string{"tofu", "terraform"} {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			path := filepath.Join(dir, name)
			if st, err := os.Stat(path); err == nil && st.Mode()&0o111 != 0 && found[name] == "" && filepath.IsAbs(path) {
				found[name] = path
			}
		}
	}
	if len(found) == 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: neither tofu nor terraform is on PATH, and FAIRLEAD_TOFU is not set")
	}
	return found
}
