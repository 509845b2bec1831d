package fairlead_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestDependabotSeesEveryLockFile compares .github/dependabot.yml with the lock files that
// git tracks: each lock file has exactly one entry, and each entry has a lock file.
func TestDependabotSeesEveryLockFile(t *testing.T) {
	text, err := os.ReadFile(".github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem string `yaml:"package-ecosystem"`
			Directory string `yaml:"directory"`
		} `yaml:"updates"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	entries := map[string]int{}
	for _, u := range config.Updates {
		entries[u.Ecosystem+" "+u.Directory]++
	}
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skip("SKIPPED: this folder is not a git checkout: ", err)
	}
	want := map[string]bool{"github-actions /": true}
	ecosystems := map[string]string{"go.mod": "gomod", "package-lock.json": "npm", "requirements.txt": "pip", "pom.xml": "maven", "Dockerfile": "docker"}
	for _, file := range strings.Fields(string(out)) {
		if ecosystem := ecosystems[path.Base(file)]; ecosystem != "" && !strings.Contains(file, "/testdata/") {
			want[ecosystem+" "+path.Join("/", path.Dir(file))] = true
		}
	}
	for entry := range want {
		if entries[entry] != 1 {
			t.Errorf("dependabot.yml has %d entries for %s, want 1", entries[entry], entry)
		}
		delete(entries, entry)
	}
	for entry := range entries {
		t.Errorf("dependabot.yml has an entry for %s, which has no lock file", entry)
	}
}
