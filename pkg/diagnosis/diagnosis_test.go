package diagnosis_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/diagnosis/diagnosistest"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// page renders situations as text, with actions as commands of the CLI.
func page(all []diagnosis.Situation) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString("[" + strings.TrimSpace(strings.Join([]string{string(s.Kind), s.Component, string(s.Job)}, " ")) + "] " + s.What + "\n")
		for _, k := range s.Known {
			b.WriteString("  - " + k + "\n")
		}
		for _, n := range s.Next {
			if n.Action.Verb == "" {
				b.WriteString("  > " + commandline.Text(n.Effect, nil) + "\n")
			} else {
				b.WriteString("  > `" + commandline.Of(n.Action) + "` " + n.Effect + "\n")
			}
		}
	}
	return b.String()
}

var update = flag.Bool("update", false, "write the golden file")

// TestSituationsEqualTheGoldenFile compares the texts of all cases with one golden file, so
// that a person can read all texts in one place. The flag -update writes the file.
func TestSituationsEqualTheGoldenFile(t *testing.T) {
	var b strings.Builder
	for _, c := range diagnosistest.Cases() {
		b.WriteString("## " + c.Name + "\n" + page(c.Situations) + "\n")
	}
	golden := filepath.Join("testdata", "situations.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(b.String(), "\n## "), strings.Split(string(want), "\n## ")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("the text is\n%s\nwant\n%s", strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
}

// A plugin reports these reasons also after its first change.
func TestAdviceAfterAChangeDoesNotDenyIt(t *testing.T) {
	wanted := map[string]bool{}
	for _, reason := range fairlead.ReasonsAfterChange() {
		wanted["failed: "+string(reason)] = true
	}
	for _, c := range diagnosistest.Cases() {
		if wanted[c.Name] && strings.Contains(page(c.Situations), "Nothing was changed") {
			t.Errorf("%s denies that something was changed:\n%s", c.Name, page(c.Situations))
		}
		delete(wanted, c.Name)
	}
	if len(wanted) > 0 {
		t.Errorf("there are no cases %v", wanted)
	}
}

func TestEveryKindOfSituationHasACase(t *testing.T) {
	met := map[diagnosis.Kind]bool{}
	names := map[string]bool{}
	for _, c := range diagnosistest.Cases() {
		if names[c.Name] {
			t.Errorf("two cases have the name %q", c.Name)
		}
		names[c.Name] = true
		for _, s := range c.Situations {
			met[s.Kind] = true
			if !slices.Contains(diagnosis.Kinds(), s.Kind) {
				t.Errorf("%s: Kinds() does not have the kind %q", c.Name, s.Kind)
			}
		}
	}
	for _, k := range diagnosis.Kinds() {
		if !met[k] {
			t.Errorf("no case is of the kind %s", k)
		}
	}
}

// TestSituationsAreSentencesWithANextStep checks that each text of each case is a sentence,
// and that each situation has a next step. The exception is the situation of a forgotten
// install, which has no next step.
func TestSituationsAreSentencesWithANextStep(t *testing.T) {
	sentence := regexp.MustCompile(`^[\pL\d$].*[.:]$`)
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Situations {
			for _, text := range append([]string{s.What}, s.Known...) {
				if !sentence.MatchString(text) || strings.Contains(text, "..") || strings.Contains(text, "  ") || strings.Contains(text, "0001-01-01") || strings.Contains(text, " .") {
					t.Errorf("%s: %q is not a sentence", c.Name, text)
				}
			}
			if len(s.Next) == 0 && c.Name != "lost: the install is forgotten" {
				t.Errorf("%s: there is no next step", c.Name)
			}
			for _, n := range s.Next {
				if n.Action.Verb != "" && (strings.HasSuffix(n.Effect, ".") || n.Effect == "" || strings.Contains(n.Effect, "{")) || n.Action.Verb == "" && !sentence.MatchString(commandline.Text(n.Effect, nil)) {
					t.Errorf("%s: the effect of the step %q has the wrong form", c.Name, n)
				}
			}
		}
	}
}

// TestMissingFactsAreNotInvented checks the cases without facts. Their texts must not
// contain a time.
func TestMissingFactsAreNotInvented(t *testing.T) {
	for _, c := range diagnosistest.Cases() {
		if strings.Contains(c.Name, "without facts") && strings.Contains(page(c.Situations), "UTC") {
			t.Errorf("%s: the text names a time that is not in the facts:\n%s", c.Name, page(c.Situations))
		}
	}
}

// TestIncompleteStateIsNeverCopied checks that a situation advises a person to replace the
// state only if the field Salvaged.Whole is true. The text of the job's message has no
// effect on this advice.
func TestIncompleteStateIsNeverCopied(t *testing.T) {
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Situations {
			if s.Kind != diagnosis.StateUnsaved && s.Kind != diagnosis.Lost {
				continue
			}
			whole := strings.Contains(c.Name, "unsaved, kept, ") || strings.Contains(c.Name, "keeps a state")
			text := page([]diagnosis.Situation{s})
			if overwrites := regexp.MustCompile(`copy salvage/|install push-state|tofu state push`).MatchString(text); overwrites != whole {
				t.Errorf("%s: advises to replace the state: %v, want %v:\n%s", c.Name, overwrites, whole, text)
			}
		}
	}
}
