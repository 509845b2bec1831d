//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	Seed        uint64         `json:"seed"`
	Duration    time.Duration  `json:"duration_ns"`
	Skipped     []string       `json:"skipped"`
	Faults      map[string]int `json:"faults"`
	Deployments map[string]int `json:"deployments"`
	Jobs        map[string]int `json:"jobs"`
	Tools       int            `json:"tools"`
	Made        int            `json:"resources_made"`
	LogBytes    int64          `json:"log_bytes"`
	Commands    map[string]int `json:"commands"`
	Refused     map[string]int `json:"commands_refused"`
	Announced   map[string]int `json:"announced"`
	Salvaged    int            `json:"states_salvaged"`
	Quiet       []latency      `json:"latencies_quiet"`
	Noisy       []latency      `json:"latencies_under_faults"`
	ToRest      time.Duration  `json:"to_rest_ns"`
	Unaccounted []string       `json:"unaccounted"`
}

func (r *report) write(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "seed %d, faults for %s\n", r.Seed, r.Duration)
	counts(t, "faults", r.Faults)
	counts(t, "deployments", r.Deployments)
	counts(t, "jobs", r.Jobs)
	fmt.Fprintf(t, "\ntools\t\nplans and applies started\t%d\nresources created\t%d\nbytes of logs read\t%d\nstates salvaged\t%d\n",
		r.Tools, r.Made, r.LogBytes, r.Salvaged)
	counts(t, "offered commands that were run", r.Commands)
	counts(t, "of them refused", r.Refused)
	counts(t, "announced differences", r.Announced)
	latencies(t, "noticed, one fault at a time", r.Quiet)
	latencies(t, "noticed, among other faults", r.Noisy)
	fmt.Fprintf(t, "\ntime from the last fault until everything ended\t%s\n", r.ToRest.Round(time.Millisecond))
	fmt.Fprintf(t, "not accounted for\t%d\n", len(r.Unaccounted))
	t.Flush()
	for _, s := range r.Skipped {
		fmt.Fprintln(out, s)
	}
	for _, s := range r.Unaccounted {
		fmt.Fprintln(out, "NOT ACCOUNTED FOR:", s)
	}
}

func counts(out io.Writer, title string, of map[string]int) {
	fmt.Fprintf(out, "\n%s\t\n", title)
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(out, "%s\t%d\n", name, of[name])
	}
}

func latencies(out io.Writer, title string, of []latency) {
	fmt.Fprintf(out, "\n%s\ttimes\tmedian\tworst\thold\n", title)
	for _, l := range of {
		hold := "-"
		if l.Hold > 0 {
			hold = l.Hold.String()
		}
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%s\n", l.What, l.Count, l.Median.Round(time.Millisecond), l.Worst.Round(time.Millisecond), hold)
	}
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
