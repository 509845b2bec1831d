package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/tools/page"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// mutant is a mistake that somebody could make, planted in a copy of the
// product's code. The simulator must find it.
type mutant struct {
	name string // of the mistake: what the product then does
	edit
	also   []edit   // that the mistake needs besides
	within int      // seeds, from 0 on; about four times as many as it takes
	finds  []string // the invariants of which at least one does not hold
}

// edit replaces a text that is in the file exactly once.
type edit struct{ file, old, new string }

// find says what a mutant came to.
type find struct {
	seeds      int // that were run; the last is the one that found it
	took       time.Duration
	violations []Violation
}

// A short run plants shortCount mistakes of those that need quickSeeds at most.
// The day, a count of days (shortrun.Day), chooses them: after as many
// days as there are mistakes, each was planted shortCount times.
const (
	shortCount = 5
	quickSeeds = 150
)

// planted returns the mutants that this run plants.
func planted(all []mutant, within int, short bool, day int) []mutant {
	if within > 0 {
		return slices.DeleteFunc(all, func(m mutant) bool { return m.within > within })
	}
	if !short {
		return all
	}
	quick := slices.DeleteFunc(all, func(m mutant) bool { return m.within > quickSeeds })
	var chosen []mutant
	for i := range min(shortCount, len(quick)) {
		chosen = append(chosen, quick[(day*shortCount+i)%len(quick)])
	}
	return chosen
}

// TestPlantedMistakesRotate: no quick mistake waits longer than a full turn.
func TestPlantedMistakesRotate(t *testing.T) {
	seen, quick := map[string]bool{}, 0
	for _, m := range mutants() {
		if m.within <= quickSeeds {
			quick++
		}
	}
	days := (quick + shortCount - 1) / shortCount
	for day := 20000; day < 20000+days; day++ {
		chosen := planted(mutants(), 0, true, day)
		if len(chosen) != shortCount {
			t.Fatalf("day %d has %d mistakes", day, len(chosen))
		}
		for _, m := range chosen {
			seen[m.name] = true
		}
	}
	if len(seen) != quick {
		t.Errorf("%d of %d mistakes were planted in %d days", len(seen), quick, days)
	}
	page.Hold(t, "docs/contributing/testing.md", "mistakes", strconv.Itoa(len(mutants())))
	page.Hold(t, "docs/contributing/testing.md", "quick", strconv.Itoa(quick))
	if n := len(planted(mutants(), 0, false, 0)); n != len(mutants()) {
		t.Errorf("a whole run plants %d of %d mistakes", n, len(mutants()))
	}
}

// TestPlantedMistakesAreFound shows that the simulator would notice: each
// mistake of the table is planted alone, and must be found within as many seeds
// as its row says. A mistake that is not found is a weakness of the simulator.
func TestPlantedMistakesAreFound(t *testing.T) {
	chosen := planted(mutants(), *mutantsWithin, testing.Short(), shortrun.Day(t))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	found := map[string]find{}
	t.Run("mutants", func(t *testing.T) {
		for _, m := range chosen {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel() // one for each CPU
				f := m.hunt(t, root)
				mu.Lock()
				defer mu.Unlock()
				found[m.name] = f
			})
		}
	})
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mistake\tfound by seed\tseeds run\tof\ttook\tinvariant")
	for _, m := range chosen {
		f, ran := found[m.name]
		if !ran {
			continue
		}
		seed := "not found"
		if len(f.violations) > 0 {
			seed = fmt.Sprint(f.seeds - 1)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", m.name, seed, f.seeds, m.within, f.took.Round(time.Second), strings.Join(invariants(f.violations), ", "))
	}
	w.Flush()
	t.Logf("\n%s", b.String())
}

func invariants(vs []Violation) []string {
	var names []string
	for _, v := range vs {
		if !slices.Contains(names, v.Invariant) {
			names = append(names, v.Invariant)
		}
	}
	return names
}

// hunt builds the mutant and runs its seeds until one finds it.
func (m mutant) hunt(t *testing.T, root string) find {
	binary, err := m.build(t, root)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var f find
	o := order{Until: true}
	for seed := range m.within {
		o.Seeds = append(o.Seeds, uint64(seed))
	}
	err = worker(t, binary, o, func(r Result) {
		f.seeds++
		f.violations = r.Violations
	})
	f.took = time.Since(began)
	switch {
	case err != nil:
		t.Errorf("the simulator broke down, which is no find: %v", err)
	case len(f.violations) == 0:
		t.Errorf("%d seeds have not found it", f.seeds)
	case !slices.ContainsFunc(f.violations, func(v Violation) bool { return slices.Contains(m.finds, v.Invariant) }):
		t.Errorf("seed %d found something else, %s; none of %s", f.seeds-1, f.violations[0], strings.Join(m.finds, ", "))
	default:
		t.Logf("seed %d: %s", f.seeds-1, f.violations[0])
	}
	return f
}

// build builds this test with the mutant in place of the product's code, of
// which nothing is changed on disk, and returns the path of the binary.
func (m mutant) build(t *testing.T, root string) (string, error) {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	texts := map[string][]byte{}
	for _, e := range append([]edit{m.edit}, m.also...) {
		path := filepath.Join(root, e.file)
		text, ok := texts[path]
		if !ok {
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return "", err
			}
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return "", fmt.Errorf("the mutant no longer applies: %s has this text %d times, not once:\n%s", e.file, n, e.old)
		}
		texts[path] = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	for path, text := range texts {
		name := filepath.Join(dir, fmt.Sprintf("%d-%s", len(overlay.Replace), filepath.Base(path)))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[path] = name
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	listed, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(listed, raw, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-overlay", listed, "-o", binary, "./test/sim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutant does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// TestAFailingSeedSaysHowItFailsAgain: with a mistake planted, as whoever makes
// one meets it. What is printed names the seed, has the trace of what is left
// after shrinking, and a command that brings about the same again.
func TestAFailingSeedSaysHowItFailsAgain(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := mutants()
	m := all[slices.IndexFunc(all, func(m mutant) bool { return m.name == "a lost apply is queued again" })]
	binary, err := m.build(t, root)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"-test.run=^TestNothingIsLostStrandedOrRepeated$", "-test.timeout=0"}, args...)...)
		out, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed {
			t.Fatalf("it did not fail: %v\n%s", err, out)
		}
		return string(out)
	}
	first := run("-seed=0", "-seeds=20")
	command := regexp.MustCompile(`make simulate SEED=(\d+) ONLY='([^']+)'`).FindStringSubmatch(first)
	if command == nil {
		t.Fatalf("it names no command:\n%s", first)
	}
	for _, want := range []string{"seed " + command[1] + ":", "mutations-are-not-repeated at ", "with no more than:", "trace:"} {
		if !strings.Contains(first, want) {
			t.Errorf("it says nothing of %q:\n%s", want, first)
		}
	}
	if left := strings.Count(command[2], ";") + 1; left > 5 {
		t.Errorf("%d faults and actions are left, and it takes a deployment and a death: %s", left, command[2])
	}
	if again := run("-seed="+command[1], "-only="+command[2]); !strings.Contains(again, "mutations-are-not-repeated at ") {
		t.Errorf("the command ends with something else:\n%s", again)
	}
}

// TestMistakesCanBePlanted: each row's text is in the product's code, once. The
// rows that CI has no time to run would otherwise rot.
func TestMistakesCanBePlanted(t *testing.T) {
	for _, m := range mutants() {
		for _, e := range append([]edit{m.edit}, m.also...) {
			text, err := os.ReadFile(filepath.Join("../..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte(e.old)); n != 1 {
				t.Errorf("%s: %s has this text %d times, not once:\n%s", m.name, e.file, n, e.old)
			}
		}
	}
}
