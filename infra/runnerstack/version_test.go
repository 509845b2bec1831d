package runnerstack_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/stackversion"
)

// versionsFile has a line for each version of the template: its number, the digest of its
// template, and the digest of its sentences.
const versionsFile = "testdata/versions.txt"

// The number of the version shows a customer that the template is older, and the customer decides by
// its sentences. So a changed template needs a new version or, before its release, a new
// sentence; UPDATE_GOLDEN=1 alone records no changed template.
func TestChangedTemplateStatesItsChange(t *testing.T) {
	text, err := os.ReadFile(versionsFile)
	if err != nil {
		t.Fatal(err)
	}
	want, problem := versionLines(string(text), digest(t, templateOf(synth(t).template.Raw)), stackversion.Released)
	if problem != "" {
		t.Fatal(problem)
	}
	switch {
	case string(text) == want:
	case os.Getenv("UPDATE_GOLDEN") != "":
		if err := os.WriteFile(versionsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not have the current template. Review it, and write the file with UPDATE_GOLDEN=1:\n%s", versionsFile, want)
	}
}

// versionLines returns the content of versionsFile for the current template, or why the table
// of versions must change first. Customers can have the first released versions.
func versionLines(recorded, template string, released int) (lines, problem string) {
	known := map[string][]string{} // the recorded lines by number
	for line := range strings.Lines(recorded) {
		if f := strings.Fields(line); len(f) == 3 {
			known[f[0]] = f
		}
	}
	var out strings.Builder
	for _, v := range stackversion.All() {
		now := []string{v.Number, template, fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(v.Changes, "\n"))))}
		was := known[v.Number]
		if v.Number != stackversion.Current() {
			if was == nil {
				was = []string{v.Number, "-", now[2]} // its template was not recorded
			}
			now[1] = was[1]
		}
		changed := was != nil && strings.Join(was, " ") != strings.Join(now, " ")
		number, err := strconv.Atoi(v.Number)
		switch {
		case err != nil:
			return "", err.Error()
		case changed && number <= released:
			return "", fmt.Sprintf("version %s is released, and its template or its sentences changed: add a version to package stackversion", v.Number)
		case changed && was[1] != now[1] && was[2] == now[2]:
			return "", fmt.Sprintf("the template changed, and version %s does not state the change: add a sentence for the customer to package stackversion; if a new sentence states it already, restore the file from git first", v.Number)
		}
		out.WriteString(strings.Join(now, " ") + "\n")
	}
	return out.String(), ""
}

// templateOf returns the parts of a template that change a stack, without texts for readers:
// a better description is no reason for an update. The description of a resource is its property.
func templateOf(raw map[string]any) map[string]any {
	out := map[string]any{}
	for _, section := range []string{"Parameters", "Rules", "Mappings", "Conditions", "Resources", "Outputs"} {
		entries, _ := raw[section].(map[string]any)
		kept := map[string]any{}
		for id, entry := range entries {
			kept[id] = entry
			fields, ok := entry.(map[string]any)
			if !ok {
				continue
			}
			without := map[string]any{}
			for name, value := range fields {
				if name != "Description" && name != "ConstraintDescription" && name != "Metadata" {
					without[name] = value
				}
			}
			kept[id] = without
		}
		out[section] = kept
	}
	return out
}

func digest(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v) // sorts the keys
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

func TestVersionsAreRecordedOnlyWithTheirChange(t *testing.T) {
	first, problem := versionLines("", "digest-1", 0)
	if problem != "" {
		t.Fatal(problem)
	}
	if again, problem := versionLines(first, "digest-1", 0); again != first || problem != "" {
		t.Errorf("the same template gives %q, %s", again, problem)
	}
	if _, problem := versionLines(first, "digest-2", 0); !strings.Contains(problem, "add a sentence") {
		t.Errorf("a changed template without a sentence: %q", problem)
	}
	// The recorded sentences are older than those of the table, as after a new sentence.
	lines := strings.Split(strings.TrimSpace(first), "\n")
	last := strings.Fields(lines[len(lines)-1])
	lines[len(lines)-1] = last[0] + " digest-1 older"
	if _, problem := versionLines(strings.Join(lines, "\n"), "digest-2", len(lines)); !strings.Contains(problem, "is released") {
		t.Errorf("a changed template of a released version: %q", problem)
	}
	if got, problem := versionLines(strings.Join(lines, "\n"), "digest-2", 0); problem != "" || !strings.Contains(got, last[0]+" digest-2 "+last[2]) {
		t.Errorf("a changed template with a sentence gives %q, %s", got, problem)
	}
	text := templateOf(map[string]any{"Parameters": map[string]any{"A": map[string]any{"Description": "x", "Default": "1"}}})
	if got := text["Parameters"].(map[string]any)["A"]; fmt.Sprint(got) != "map[Default:1]" {
		t.Errorf("of a parameter %v counts, want its default only", got)
	}
}
