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
)

// page renders what is said, as a person reads it.
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

// TestWhatAPersonIsTold holds each situation to its words, all in one file that
// can be read from top to bottom.
func TestWhatAPersonIsTold(t *testing.T) {
	var b strings.Builder
	for _, c := range diagnosistest.Cases() {
		b.WriteString("## " + c.Name + "\n" + page(c.Said) + "\n")
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
			t.Fatalf("it says\n%s\nwant\n%s", strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
}

func TestEveryKindOfSituationHasACase(t *testing.T) {
	met := map[diagnosis.Kind]bool{}
	names := map[string]bool{}
	for _, c := range diagnosistest.Cases() {
		if names[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		names[c.Name] = true
		for _, s := range c.Said {
			met[s.Kind] = true
			if !slices.Contains(diagnosis.Kinds(), s.Kind) {
				t.Errorf("%s: %q is no kind", c.Name, s.Kind)
			}
		}
	}
	for _, k := range diagnosis.Kinds() {
		if !met[k] {
			t.Errorf("no case is of the kind %s", k)
		}
	}
}

// Whatever is known, what is said reads as sentences, and names something to
// do, unless it goes on by itself.
func TestWhatIsSaidIsWellFormed(t *testing.T) {
	sentence := regexp.MustCompile(`^[\pL\d$].*[.:]$`)
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Said {
			for _, text := range append([]string{s.What}, s.Known...) {
				if !sentence.MatchString(text) || strings.Contains(text, "..") || strings.Contains(text, "  ") || strings.Contains(text, "0001-01-01") || strings.Contains(text, " .") {
					t.Errorf("%s: %q is not a sentence", c.Name, text)
				}
			}
			if len(s.Next) == 0 && c.Name != "lost: the install is forgotten" {
				t.Errorf("%s: a person is not told what to do", c.Name)
			}
			for _, n := range s.Next {
				if n.Action.Verb != "" && (strings.HasSuffix(n.Effect, ".") || n.Effect == "" || strings.Contains(n.Effect, "{")) || n.Action.Verb == "" && !sentence.MatchString(commandline.Text(n.Effect, nil)) {
					t.Errorf("%s: %q is not what a step says of itself", c.Name, n)
				}
			}
		}
	}
}

// TestFactsThatAreMissingAreNotMadeUp gives the least that there is.
func TestFactsThatAreMissingAreNotMadeUp(t *testing.T) {
	for _, c := range diagnosistest.Cases() {
		if strings.Contains(c.Name, "nothing was looked at") && strings.Contains(page(c.Said), "UTC") {
			t.Errorf("%s: a time is named that nobody knows:\n%s", c.Name, page(c.Said))
		}
	}
}

// TestATornCopyOfAStateIsCopiedOverTheGoodOne: a state takes the place of another
// only if a typed fact says that it is whole, whatever the message of the job
// holds.
func TestATornCopyOfAStateIsCopiedOverTheGoodOne(t *testing.T) {
	for _, c := range diagnosistest.Cases() {
		for _, s := range c.Said {
			if s.Kind != diagnosis.StateUnsaved && s.Kind != diagnosis.Lost {
				continue
			}
			whole := strings.Contains(c.Name, "unsaved, kept, ") || strings.Contains(c.Name, "keeps a state")
			said := page([]diagnosis.Situation{s})
			if overwrites := regexp.MustCompile(`copy salvage/|install push-state|tofu state push`).MatchString(said); overwrites != whole {
				t.Errorf("%s: advised to replace the state: %v, want %v:\n%s", c.Name, overwrites, whole, said)
			}
		}
	}
}
