package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The figures that have goals, and that comparisons of releases need, exist. Each figure
// is complete and has a unique name.
func TestFiguresWithGoalsExist(t *testing.T) {
	var names []string
	for _, f := range known() {
		if f.Name == "" || f.Unit == "" || f.Reference == "" {
			t.Errorf("%+v is not complete", f)
		}
		if slices.Contains(names, f.Name) {
			t.Errorf("two figures have the name %s", f.Name)
		}
		names = append(names, f.Name)
	}
	for _, want := range []string{"claim_ms_p50", "claim_ms_p95", "deploy_ratio", "deploy_added_ms", "queue20_ratio", "log_ms_p50",
		"log_ms_p95", "agent_rss_mib", "clusters_agent_rss_mib", "noop_jobs_per_s", "control_jobs_per_s", "write_units_per_job"} {
		if !slices.Contains(names, want) {
			t.Errorf("no figure has the name %s", want)
		}
	}
}

func TestEveryFigureHasOneSection(t *testing.T) {
	measured := map[string]string{}
	for _, s := range sections() {
		for _, name := range s.measures {
			if other, ok := measured[name]; ok {
				t.Errorf("the sections %[2]s and %[3]s both measure %[1]s", name, other, s.name)
			}
			measured[name] = s.name
		}
	}
	for _, f := range known() {
		if _, ok := measured[f.Name]; !ok {
			t.Errorf("no section measures %s", f.Name)
		}
		delete(measured, f.Name)
	}
	for name, section := range measured {
		t.Errorf("section %s measures %s, which no figure has as its name", section, name)
	}
}

func TestResultsHaveOneObjectForEachFigure(t *testing.T) {
	r := report{values: map[string]float64{}}
	r.set("claim_ms_p50", 1.23456)
	r.set("control_jobs_per_s", 12345.678)
	figures, missing := r.figures()
	if want := len(known()) - 2; len(missing) != want {
		t.Errorf("%d figures are missing, want %d", len(missing), want)
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := writeResults(path, figures); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []Figure
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	if len(got) != 2 || got[0].Name != "claim_ms_p50" || got[0].Value != 1.23 || got[1].Value != 12346 {
		t.Errorf("got %+v", got)
	}
}
