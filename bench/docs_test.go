package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func measured(t *testing.T) (all []Figure) {
	t.Helper()
	raw, err := os.ReadFile("results.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

var goalOf = regexp.MustCompile(`^goal ([≤≥]) ([0-9.]+)`)

// met says whether a figure is what its goal asks for; "" if it has none.
func met(t *testing.T, f Figure) string {
	t.Helper()
	m := goalOf.FindStringSubmatch(f.Reference)
	if m == nil {
		return ""
	}
	goal, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		t.Fatal(err)
	}
	if m[1] == "≤" && f.Value <= goal || m[1] == "≥" && f.Value >= goal {
		return "yes"
	}
	return "**no**"
}

// TestThePageHasTheFigures holds the table of docs/BENCH.md to results.json;
// UPDATE_GOLDEN=1 writes it.
func TestThePageHasTheFigures(t *testing.T) {
	const page, begin, end = "../docs/BENCH.md", "<!-- figures: written by UPDATE_GOLDEN=1 go test ./bench -->\n", "<!-- end -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the figures", page)
	}
	var b strings.Builder
	b.WriteString("| Figure | Measured | Goal, and what others were measured at | Met |\n|---|---|---|---|\n")
	for _, f := range measured(t) {
		fmt.Fprintf(&b, "| `%s` | %v %s | %s | %s |\n", f.Name, f.Value, f.Unit, f.Reference, met(t, f))
	}
	want := before + begin + b.String() + end + after
	if want == string(raw) {
		return
	}
	if os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatalf("%s does not have the figures of results.json: UPDATE_GOLDEN=1 writes them", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPromisesHaveTheFiguresThatWereMeasured: whoever names a figure beside a
// promise says what results.json says, in seconds, to two places below one.
func TestPromisesHaveTheFiguresThatWereMeasured(t *testing.T) {
	raw, err := os.ReadFile("../docs/RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`make bench`, `([a-z_*]+)`")
	found := 0
	for line := range strings.Lines(string(raw)) {
		m := named.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, f := range measured(t) {
			if ok, err := path.Match(m[1], f.Name); err != nil {
				t.Fatal(err)
			} else if !ok {
				continue
			}
			found++
			s := f.Value
			if f.Unit == "ms" {
				s /= 1000
			}
			want := fmt.Sprintf("%.0f s", s)
			if s < 1 {
				want = fmt.Sprintf("%.2f s", s)
			}
			if cells := strings.Split(line, "|"); !strings.Contains(cells[len(cells)-2], want) {
				t.Errorf("%s is %v %s, and the promise of it does not say %q:\n%s", f.Name, f.Value, f.Unit, want, line)
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d figures are named", found)
	}
}
