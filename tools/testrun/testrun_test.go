package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// events are the events of one group, rerun those of another group. The second group
// runs a test that the first one skips.
const events = `{"Action":"start","Package":"github.com/fairlead/fairlead/runner"}
{"Action":"run","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall"}
{"Action":"output","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall","Output":"=== RUN   TestSmall\n"}
{"Action":"output","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall","Output":"    a_test.go:1: too slow\n"}
{"Action":"output","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall","Output":"--- SKIP: TestSmall (0.00s)\n"}
{"Action":"skip","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall","Elapsed":0}
{"Action":"pass","Package":"github.com/fairlead/fairlead/runner","Test":"TestLarge","Elapsed":2}
{"Action":"pass","Package":"github.com/fairlead/fairlead/runner","Elapsed":2.5}
{"Action":"output","Package":"github.com/fairlead/fairlead/pkg/job","Test":"TestRoot/as root","Output":"    b_test.go:1: only root can\n"}
{"Action":"skip","Package":"github.com/fairlead/fairlead/pkg/job","Test":"TestRoot/as root","Elapsed":0}
{"Action":"fail","Package":"github.com/fairlead/fairlead/pkg/job","Test":"TestBroken","Elapsed":0.1}
{"Action":"fail","Package":"github.com/fairlead/fairlead/pkg/job","Elapsed":0.2}
`

const rerun = `{"Action":"pass","Package":"github.com/fairlead/fairlead/runner","Test":"TestSmall","Elapsed":1}
{"Action":"pass","Package":"github.com/fairlead/fairlead/runner","Elapsed":1.5}
`

func TestReport(t *testing.T) {
	var r report
	for _, text := range []string{events, rerun} {
		if err := r.add(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	root := t.TempDir()
	path := filepath.Join(root, "group.cpu")
	for _, m := range []string{`{"Dir":"` + root + `/pkg/job","CPU":7000000000}`, `{"Dir":"` + root + `/runner","CPU":1000000000}`, `{"Dir":"` + root + `/runner","CPU":2000000000}`} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, m+"\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for _, file := range []string{path, filepath.Join(root, "a group without a test binary")} {
		if err := r.readMeasured(root, file); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	r.print(&out, 90*time.Second)
	for _, want := range []string{"7s  pkg/job  4s     runner", "3s  runner   200ms  pkg/job", "10s of CPU time in tests", "pkg/job TestRoot/as root\n      b_test.go:1: only root can\n", "2 packages in 1m30s\n2 passed, 1 failed, 1 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "TestSmall") {
		t.Errorf("the report lists a test as skipped that another group ran:\n%s", out.String())
	}
}

func TestMeasureReportsTheResultAndTheCPUTime(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "cpu")
	for _, tt := range []struct {
		command []string
		code    int
	}{
		{[]string{"/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"}, 0},
		{[]string{"/bin/sh", "-c", "exit 3"}, 3},
		{[]string{"/bin/sh", "-c", "kill -9 $$"}, 137},
	} {
		if code := measure(file, tt.command); code != tt.code {
			t.Errorf("%q ended with %d, want %d", tt.command, code, tt.code)
		}
	}
	var r report
	if err := r.add(strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.readMeasured(filepath.Dir(dir), file); err != nil {
		t.Fatal(err)
	}
	if r.cpu[filepath.Base(dir)] <= 0 {
		t.Errorf("the loop of the shell needed no CPU time: %v", r.cpu)
	}
}

func TestReportRefusesOtherText(t *testing.T) {
	if err := new(report).add(strings.NewReader("FAIL\n")); err == nil {
		t.Error("the report accepted text that is not an event")
	}
}

func TestCheckSkips(t *testing.T) {
	var r report
	if err := r.add(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	row := func(pkg, test string) allowedSkip { return allowedSkip{testName{pkg, test}, "a reason"} }
	small, root := row("runner", "TestSmall"), row("pkg/job", "TestRoot")
	for _, tt := range []struct {
		name    string
		allowed []allowedSkip
		all     bool
		want    []string
	}{
		{"all skips are listed", []allowedSkip{small, root}, true, nil},
		{"a parent's row covers its subtests only", []allowedSkip{small, row("pkg/job", "TestRo")}, false, []string{"pkg/job TestRoot/as root was skipped"}},
		{"a row covers only its package", []allowedSkip{small, row("pkg/graph", "TestRoot")}, false, []string{"pkg/job TestRoot/as root was skipped"}},
		{"a row of a missing test is an error", []allowedSkip{small, root, row("pkg/job", "TestGone")}, true, []string{"lists pkg/job TestGone"}},
		{"a row of a subtest of a skipped test", []allowedSkip{small, root, row("pkg/job", "TestRoot/as root/twice")}, true, nil},
		{"a row of a missing test, after a run of some packages", []allowedSkip{small, root, row("pkg/job", "TestGone")}, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			errs := r.checkSkips(tt.allowed, tt.all)
			if len(errs) != len(tt.want) {
				t.Fatalf("got %v, want %q", errs, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("got %v, want %q", errs[i], want)
				}
			}
		})
	}
}

func TestStartsGoroutines(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         bool
	}{
		{"go statement", "package a\nfunc f() { if true { go f() } }\n", true},
		{"mutex", "package a\nimport \"sync\"\nvar _ sync.Mutex\n", true},
		{"test server", "package a\nimport _ \"net/http/httptest\"\n", true},
		{"neither", "package a\nimport _ \"os\"\n// go f()\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(tt.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := startsGoroutines(dir, []string{"a.go"}); err != nil || got != tt.want {
				t.Errorf("got %t, %v, want %t", got, err, tt.want)
			}
		})
	}
}

func TestConcurrentTests(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]string{
		"a_test.go": `package a
func TestGo(t *testing.T) { go f() }
func TestGroup(t *testing.T) { t.Run("x", func(t *testing.T) { wg.Go(f) }) }
func TestHelper(t *testing.T) { newPlane(t).both() }
func TestTable(t *testing.T) { for _, f := range []func(){twice} { f() } }
func TestSequential(t *testing.T) { other() }
func TestMain(m *testing.M) { go f() }
`,
		"b_test.go": "package a\nfunc (p *plane) both() { twice() }\nfunc twice() { go f(); go f() }\nfunc other() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"TestGo", "TestGroup", "TestHelper", "TestTable"}
	if got, err := concurrentTests(dir, []string{"a_test.go", "b_test.go"}); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// Every package with tests is in exactly one group of each run, not counting groups that
// repeat tests. A whole run uses the race detector for every package that neverRaced does
// not list.
func TestGroupsHaveEveryPackage(t *testing.T) {
	packages, err := list(t.Context(), "../..", "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 50 {
		t.Fatalf("found only %d packages with tests", len(packages))
	}
	daysRaced := map[string]int{}
	for _, day := range []int{0, 1, 2, 363, 364, 365, wholeRun} {
		in := map[string][]string{}
		for _, g := range groupsOf(packages, day) {
			if g.again {
				continue
			}
			for _, path := range g.packages {
				in[path] = append(in[path], g.name)
			}
		}
		for _, p := range packages {
			if len(in[p.ImportPath]) != 1 {
				t.Errorf("on day %d %s is in the groups %q, want one group", day, p.ImportPath, in[p.ImportPath])
			}
			if p.mayRace() && day != wholeRun && slices.Equal(in[p.ImportPath], []string{"raced"}) {
				daysRaced[p.name()]++
			}
			if day == wholeRun && !p.listed(neverRaced) && !slices.Equal(in[p.ImportPath], []string{"raced"}) {
				t.Errorf("the whole run has %s in the groups %q, want only raced", p.ImportPath, in[p.ImportPath])
			}
		}
	}
	for _, p := range packages {
		if p.mayRace() && daysRaced[p.name()] != 2 {
			t.Errorf("short runs use the race detector for %s on %d of six days, want 2", p.name(), daysRaced[p.name()])
		}
	}
	for i, name := range early {
		if i < len(packages) && packages[i].name() != name {
			t.Errorf("%s starts as number %d, but early lists %s there", packages[i].name(), i, name)
		}
	}
	for table, rows := range map[string]map[string]string{"neverRaced": neverRaced, "slowRaced": slowRaced, "racedInPart": racedInPart} {
		for name := range rows {
			if !slices.ContainsFunc(packages, func(p pkg) bool { return p.matches(name) }) {
				t.Errorf("%s lists %s, which matches no package with tests", table, name)
			}
		}
	}
}

// Each test runs on one of so many days, and all tests of a whole run.
func TestEveryRestingTestHasItsDay(t *testing.T) {
	packages, err := list(t.Context(), "../..", "./...")
	if err != nil {
		t.Fatal(err)
	}
	if wholes, tests := resting(packages, wholeRun); len(wholes)+len(tests) > 0 {
		t.Errorf("a whole run leaves out %v and %v", wholes, tests)
	}
	for row, days := range rotatedPackages {
		if days < 2 || !slices.ContainsFunc(packages, func(p pkg) bool { return p.matches(row) }) {
			t.Errorf("rotatedPackages lists %s with %d days: want a package with tests, and at least 2 days", row, days)
		}
	}
	for row, r := range rotatedTests {
		i := slices.IndexFunc(packages, func(p pkg) bool { return p.name() == row })
		if r.days < 2 || i < 0 {
			t.Errorf("rotatedTests lists %s with %d days: want a package with tests, and at least 2 days", row, r.days)
			continue
		}
		for _, name := range r.only {
			if !slices.Contains(packages[i].tests, name) {
				t.Errorf("rotatedTests lists %s %s, which does not exist or is in a file that uses shortrun", row, name)
			}
		}
	}
	for _, p := range packages {
		if days := rotatedTests[p.name()].days; days > 0 && p.mayRace() && days%raceDays == 0 {
			t.Errorf("some tests of %s never run with the race detector in a short run: %d days are a multiple of %d", p.name(), days, raceDays)
		}
	}
	const cycle = 30 // all numbers of days divide it
	rests := map[testName]int{}
	for day := range cycle {
		wholes, tests := resting(packages, day)
		for _, path := range wholes {
			rests[testName{path, ""}]++
		}
		for _, name := range tests {
			rests[name]++
		}
	}
	if len(rests) < 100 {
		t.Errorf("only %d packages and tests rest on some day", len(rests))
	}
	for name, days := range rests {
		if days == cycle {
			t.Errorf("no day has %v", name)
		}
		if days < cycle/2 {
			t.Errorf("%v rests on %d of %d days, want at least half of them", name, days, cycle)
		}
	}
}

func TestRowsOfRestingTestsAreNotChecked(t *testing.T) {
	row := func(pkg, test string) allowedSkip { return allowedSkip{testName{pkg, test}, "a reason"} }
	got := awake([]allowedSkip{row("runner", "TestA/b"), row("runner", "TestC"), row("tools/x", "TestD"), row("pkg/job", "TestA")},
		[]string{module + "/tools/x"}, []testName{{"runner", "TestA"}})
	if want := []allowedSkip{row("runner", "TestC"), row("pkg/job", "TestA")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// run must refuse a package as an argument without a flag. If run ignored the argument,
// it would run all tests.
func TestPlainArgumentIsRefused(t *testing.T) {
	if err := run(t.Context(), []string{"-short", "./pkg/job"}, io.Discard, io.Discard); err == nil {
		t.Error("run accepted the argument ./pkg/job")
	}
}
