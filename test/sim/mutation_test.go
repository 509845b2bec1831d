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

// mistake is a planted mistake: a deliberate bug in a copy of the product's code. The simulator
// must find it.
type mistake struct {
	name string // wrong behaviour of the product
	edit
	also   []edit   // further edits of the mistake
	within int      // one of the seeds from 0 to within-1 must find the mistake; about four times as many seeds as needed
	finds  []string // invariants; at least one must be violated
}

// edit replaces a text that occurs in the file exactly once.
type edit struct{ file, old, new string }

// find is the result of the hunt for a mistake.
type find struct {
	seeds      int // number of seeds that were run; the last seed found the mistake
	took       time.Duration
	violations []Violation
}

// A short run plants shortCount of the quick mistakes: the mistakes that need at most quickSeeds
// seeds. The number of the day (shortrun.Day) selects them. In N days, where N is the number of
// quick mistakes, each quick mistake is planted shortCount times.
const (
	shortCount = 1
	quickSeeds = 150
)

// planted returns the mistakes that this run plants.
func planted(all []mistake, within int, short bool, day int) []mistake {
	if within > 0 {
		return slices.DeleteFunc(all, func(m mistake) bool { return m.within > within })
	}
	if !short {
		return all
	}
	quick := slices.DeleteFunc(all, func(m mistake) bool { return m.within > quickSeeds })
	var chosen []mistake
	for i := range min(shortCount, len(quick)) {
		chosen = append(chosen, quick[(day*shortCount+i)%len(quick)])
	}
	return chosen
}

// TestPlantedMistakesRotate checks that the short runs of successive days plant every quick
// mistake.
func TestPlantedMistakesRotate(t *testing.T) {
	seen, quick := map[string]bool{}, 0
	for _, m := range mistakes() {
		if m.within <= quickSeeds {
			quick++
		}
	}
	days := (quick + shortCount - 1) / shortCount
	for day := 20000; day < 20000+days; day++ {
		chosen := planted(mistakes(), 0, true, day)
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
	page.Hold(t, "docs/contributing/testing.md", "mistakes", strconv.Itoa(len(mistakes())))
	page.Hold(t, "docs/contributing/testing.md", "quick", strconv.Itoa(quick))
	if n := len(planted(mistakes(), 0, false, 0)); n != len(mistakes()) {
		t.Errorf("a whole run plants %d of %d mistakes", n, len(mistakes()))
	}
}

// TestPlantedMistakesAreFound plants each mistake of the table alone. The simulator must find it
// within the number of seeds in its row. A mistake that is not found is a weakness of the
// simulator.
func TestPlantedMistakesAreFound(t *testing.T) {
	chosen := planted(mistakes(), *mistakesWithin, testing.Short(), shortrun.Day(t))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	found := map[string]find{}
	t.Run("mistakes", func(t *testing.T) {
		for _, m := range chosen {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel() // one per CPU
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

// hunt builds the test with the mistake and runs the seeds until a seed finds the mistake.
func (m mistake) hunt(t *testing.T, root string) find {
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
		t.Errorf("the simulator failed, which does not count as found: %v", err)
	case len(f.violations) == 0:
		t.Errorf("%d seeds did not find it", f.seeds)
	case !slices.ContainsFunc(f.violations, func(v Violation) bool { return slices.Contains(m.finds, v.Invariant) }):
		t.Errorf("seed %d violates another invariant, %s; want one of %s", f.seeds-1, f.violations[0], strings.Join(m.finds, ", "))
	default:
		t.Logf("seed %d: %s", f.seeds-1, f.violations[0])
	}
	return f
}

// build builds this test with the mistake in the product's code and returns the path of the
// binary. It uses a build overlay, so it changes no file of the product.
func (m mistake) build(t *testing.T, root string) (string, error) {
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
			return "", fmt.Errorf("the mistake cannot be planted: %s has this text %d times, want once:\n%s", e.file, n, e.old)
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
	listed, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mistake.test")
	if err := os.WriteFile(listed, raw, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-overlay", listed, "-o", binary, "./test/sim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the product with the mistake does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// TestFailureReportRepeatsTheFailure plants a mistake and runs seeds, as a developer does. It
// checks that the failure message has the seed, the trace of the shrunk run, and a command that
// repeats the violation.
func TestFailureReportRepeatsTheFailure(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := mistakes()
	m := all[slices.IndexFunc(all, func(m mistake) bool { return m.name == "a lost apply is queued again" })]
	binary, err := m.build(t, root)
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"-test.run=^TestNothingIsLostStrandedOrRepeated$", "-test.timeout=0"}, args...)...)
		out, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed {
			t.Fatalf("the test did not fail: %v\n%s", err, out)
		}
		return string(out)
	}
	first := run("-seed=0", "-seeds=20")
	command := regexp.MustCompile(`make simulate SEED=(\d+) ONLY='([^']+)'`).FindStringSubmatch(first)
	if command == nil {
		t.Fatalf("the message has no command:\n%s", first)
	}
	for _, want := range []string{"seed " + command[1] + ":", "mutations-are-not-repeated at ", "with no more than:", "trace:"} {
		if !strings.Contains(first, want) {
			t.Errorf("the message does not contain %q:\n%s", want, first)
		}
	}
	if left := strings.Count(command[2], ";") + 1; left > 5 {
		t.Errorf("%d faults and actions are left, want at most 5, because a deployment and a death are enough: %s", left, command[2])
	}
	if again := run("-seed="+command[1], "-only="+command[2]); !strings.Contains(again, "mutations-are-not-repeated at ") {
		t.Errorf("the command does not repeat the violation:\n%s", again)
	}
}

// TestMistakesCanBePlanted checks that the text that each row replaces occurs once in the
// product's code. CI does not plant all mistakes, so otherwise no test would find an outdated row.
func TestMistakesCanBePlanted(t *testing.T) {
	for _, m := range mistakes() {
		for _, e := range append([]edit{m.edit}, m.also...) {
			text, err := os.ReadFile(filepath.Join("../..", e.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte(e.old)); n != 1 {
				t.Errorf("%s: %s has this text %d times, want once:\n%s", m.name, e.file, n, e.old)
			}
		}
	}
}
