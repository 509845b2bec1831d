package step

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/secretsource"
	"github.com/fairlead/fairlead/runner/plugin"
)

const seedOfTests = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"

// A step has the keys of its install if the customer keeps a seed, and starts nothing if it cannot read the seed.
func TestStepTakesTheKeysOfItsInstall(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	want, err := installkey.NewRing(seedOfTests, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reference, seed, install, operation string
		keys                                int
		reason                              fairlead.Reason
	}{
		"no seed":                   {"", "", "ins_1", "apply", 0, ""},
		"a seed in a file":          {file("seed", seedOfTests+"\n"), "", "ins_1", "apply", 1, ""},
		"a rotated seed":            {file("both", seedOfTests+"\n"+strings.Repeat("OldSeed", 7)+"\n"), "", "ins_1", "apply", 2, ""},
		"a seed from the agent":     {"", seedOfTests, "ins_1", "plan", 1, ""},
		"a build has no install":    {file("seed", seedOfTests), "", "", "build", 0, ""},
		"a seed that is missing":    {"file:/missing/seed", "", "ins_1", "apply", 0, fairlead.ReasonInstallKeyUnavailable},
		"a seed that is a password": {file("weak", "hunter2"), "", "ins_1", "apply", 0, fairlead.ReasonInstallKeyUnavailable},
	} {
		a := &execution{in: attempt.Input{InstallKey: c.reference, InstallID: c.install}, Env: Env{Seed: c.seed, Parts: Parts{ReadSecret: secretsource.Source{}.Read}}}
		var hidden []string
		keys, err := a.takeKeys(t.Context(), events.JobSpec{Operation: c.operation}, func(secret string) { hidden = append(hidden, secret) })
		if c.reason != "" {
			if plugin.ReasonOf(err) != c.reason || !keys.IsZero() || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if len(hidden) != c.keys || c.keys > 0 && hidden[0] != seedOfTests {
			t.Errorf("%s: the log hides %d seeds", name, len(hidden))
		}
		if err != nil || keys.IsZero() != (c.keys == 0) || len(keys.Publics()) != c.keys {
			t.Errorf("%s: %d keys, %v; want %d", name, len(keys.Publics()), err, c.keys)
		}
		if c.keys > 0 && keys.Current().Public().String() != want.Current().Public().String() {
			t.Errorf("%s: the current key is not that of the first seed", name)
		}
	}
	// Two agents run the jobs of an app with a runner in its sandbox, and one seed that an agent made itself is unknown to the other.
	inSandbox := events.JobSpec{Operation: "apply", Version: &events.VersionRef{Config: []byte(`{"sandbox":{"kind":"aws-eks","runner":{"kind":"kubernetes"}}}`)}}
	for byDefault, want := range map[bool]int{true: 0, false: 1} {
		a := &execution{in: attempt.Input{KeyByDefault: byDefault, InstallID: "ins_1"}, Env: Env{Seed: seedOfTests}}
		if keys, err := a.takeKeys(t.Context(), inSandbox, func(string) {}); err != nil || len(keys.Publics()) != want {
			t.Errorf("an app with a runner in its sandbox, and a seed that is made by default: %t: %d keys, %v", byDefault, len(keys.Publics()), err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a := &execution{in: attempt.Input{InstallKey: "file:/missing/seed", InstallID: "ins_1"}, Env: Env{Parts: Parts{ReadSecret: secretsource.Source{}.Read}}}
	if _, err := a.takeKeys(ended, events.JobSpec{Operation: "apply"}, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled job reports %v", err)
	}
}
