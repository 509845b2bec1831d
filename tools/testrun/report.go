package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// event is a line of the output of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// testName is a test of a package; Test is "" for the package itself.
type testName struct{ Package, Test string }

// report is the summary of the events of a run.
type report struct {
	passed, failed int
	elapsed        map[string]time.Duration // by package
	cpu            map[string]time.Duration // by package: user and system time
	seen           map[testName]bool        // the tests that ended; false if all groups skipped the test
	skipped        []skip
}

// skip is a skipped test with its output.
type skip struct {
	testName
	output string
}

// read adds the events of a file.
func (r *report) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := r.add(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (r *report) add(events io.Reader) error {
	if r.seen == nil {
		r.seen, r.elapsed, r.cpu = map[testName]bool{}, map[string]time.Duration{}, map[string]time.Duration{}
	}
	output := map[testName]*strings.Builder{} // a builder, because some tests print megabytes
	in := bufio.NewScanner(events)
	in.Buffer(nil, 16<<20) // a line has at most one line of a test's output
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return fmt.Errorf("%q is not an event of go test: %w", in.Text(), err)
		}
		name := testName{strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/"), e.Test}
		switch e.Action {
		case "output":
			if !strings.HasPrefix(strings.TrimSpace(e.Output), "--- ") && !strings.HasPrefix(e.Output, "=== ") {
				if output[name] == nil {
					output[name] = &strings.Builder{}
				}
				output[name].WriteString(e.Output)
			}
			continue
		case "pass", "fail", "skip":
		default:
			continue
		}
		r.seen[name] = r.seen[name] || e.Action != "skip"
		switch {
		case e.Test == "":
			r.elapsed[name.Package] += time.Duration(e.Elapsed * float64(time.Second))
		case e.Action == "pass":
			r.passed++
		case e.Action == "fail":
			r.failed++
		default:
			why := ""
			if o := output[name]; o != nil {
				why = strings.Join(strings.Fields(o.String()), " ")
			}
			r.skipped = append(r.skipped, skip{name, why})
		}
		delete(output, name)
	}
	return in.Err()
}

// readMeasured adds the CPU times of a file. root is the folder of the module. The file does
// not exist if the run measured nothing.
func (r *report) readMeasured(root, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var m measurement
		switch err := lines.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		name, err := filepath.Rel(root, m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.cpu[filepath.ToSlash(name)] += m.CPU
	}
}

// skips returns the tests that every group skipped.
func (r *report) skips() []skip {
	return slices.DeleteFunc(slices.Clone(r.skipped), func(s skip) bool { return r.seen[s.testName] })
}

// slowest is the number of packages in the report.
const slowest = 12

func (r *report) print(to io.Writer, took time.Duration) {
	if len(r.cpu) > 0 {
		fmt.Fprintf(to, "\n%s of CPU time in tests and their processes; the packages that need most, and the slowest packages:\n", sum(r.cpu).Round(time.Second))
	} else {
		fmt.Fprintln(to, "\nThe slowest packages:")
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	byCPU, byTime := longest(r.cpu), longest(r.elapsed)
	for i := range min(len(byTime), slowest) {
		for _, times := range []struct {
			names []string
			of    map[string]time.Duration
		}{{byCPU, r.cpu}, {byTime, r.elapsed}} {
			if i < len(times.names) {
				fmt.Fprintf(w, "%s\t%s\t", times.of[times.names[i]].Round(100*time.Millisecond), times.names[i])
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	skips := r.skips()
	for i, s := range skips {
		if i == 0 {
			fmt.Fprintln(to, "\nSkipped:")
		}
		fmt.Fprintf(to, "  %s %s\n      %s\n", s.Package, s.Test, s.output)
	}
	fmt.Fprintf(to, "\n%d packages in %s\n%d passed, %d failed, %d skipped\n", len(r.elapsed), took.Round(time.Second), r.passed, r.failed, len(skips))
}

// longest returns the packages, the one with the longest time first.
func longest(times map[string]time.Duration) []string {
	return slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b))
	})
}

func sum(times map[string]time.Duration) (all time.Duration) {
	for _, d := range times {
		all += d
	}
	return all
}

// checkSkips returns an error for each skip that is not allowed. After a run of all
// packages it also returns an error for each row of allowed whose test does not exist.
func (r *report) checkSkips(allowed []allowedSkip, all bool) []error {
	var errs []error
	for _, s := range r.skips() {
		if !slices.ContainsFunc(allowed, func(a allowedSkip) bool { return a.covers(s.testName) }) {
			errs = append(errs, fmt.Errorf("%s %s was skipped, but tools/testrun/skips.go does not list it: %s", s.Package, s.Test, s.output))
		}
	}
	if !all {
		return errs
	}
	for _, a := range allowed {
		// A test that was skipped as a whole has no subtests in this run.
		found := slices.ContainsFunc(r.skipped, func(s skip) bool {
			return s.Package == a.Package && strings.HasPrefix(a.Test, s.Test+"/")
		})
		for name := range r.seen {
			found = found || a.covers(name)
		}
		if !found {
			errs = append(errs, fmt.Errorf("tools/testrun/skips.go lists %s %s, which does not exist: remove the row", a.Package, a.Test))
		}
	}
	return errs
}
