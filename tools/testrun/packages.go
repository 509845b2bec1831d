package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the import path of this module.
const module = "github.com/fairlead/fairlead"

// pkg is a package with tests, as `go list -json` describes it.
type pkg struct {
	ImportPath, Dir           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string

	goroutines bool     // the package, its tests, or a test package that they import starts goroutines
	turn       int      // the days on which a short run uses the race detector for a package with goroutines: day%raceDays == turn
	concurrent []string // tests that start goroutines, of a package in racedInPart
	tests      []string // tests that short runs may leave to other days, sorted by name
}

// slowRaced lists the packages that a short run tests without the race detector although
// they use goroutines, with the reasons. A whole run uses the race detector for all
// packages except neverRaced.
var slowRaced = map[string]string{
	"cmd/fairlead":                   "the tests start some thousand processes, and each starts five times slower with the race detector",
	"runner":                         "each agent and step is a process of the test binary, which starts five times slower with the race detector",
	"pkg/pluginprotocol/conformance": "the tests start some hundred processes of the test binary, which start five times slower with the race detector",
	"pkg/joblog/dynamo":              "streams of megabytes in DynamoDB's JSON are slow with the race detector",
	"pkg/joblog/archive":             "streams of 64 MiB are slow with the race detector",

	"runner/executor/kubernetes":        kubernetesRaced,
	"runner/executor/kubernetes/remote": kubernetesRaced,
	"runner/agent/direct":               kubernetesRaced,
	"runner/agent/clusters":             kubernetesRaced,
	"runner/internal/charttest":         kubernetesRaced,
	"functions/internal/awstest":        kubernetesRaced,
	"runner/kubernetes":                 kubernetesRaced,
	"runner/kubernetes/cluster":         kubernetesRaced,
	"runner/kubernetes/helm":            kubernetesRaced,
	"runner/kubernetes/manifest":        kubernetesRaced,
}

// racedInPart lists packages of which a short run uses the race detector only for the tests
// that start goroutines, with the reasons.
var racedInPart = map[string]string{
	"pkg/control":               sequential,
	"cmd/fairlead/internal/cli": sequential,
	"functions/internal/plane":  "a function handles one request at a time",
}

// sequential is the reason why a short run uses the race detector only for a part of a package.
const sequential = "nearly all tests are sequential, and need up to four times as much CPU with the race detector"

// kubernetesRaced is the reason why a short run does not use the race detector for tests
// with Kubernetes' client.
const kubernetesRaced = "Kubernetes' client and Helm are two fifths of the code to compile for the race detector: five minutes of CPU on an empty cache"

// neverRaced lists the packages that no run tests with the race detector, with the
// reasons.
var neverRaced = map[string]string{
	"infra/...": "the CDK's runtime has data races of its own",
	"test/sim":  "a simulated run is one thread, and ten times slower with the race detector",
}

// early lists the packages whose tests take longest. These tests mostly wait. They start
// first, so that the other packages run at the same time, and no slow package runs alone
// at the end.
var early = []string{
	"cmd/fairlead", "runner", "pkg/queue/sqs", "runner/agent/direct", "pkg/control", "infra/control", "infra/runnerstack",
	"runner/executor/kubernetes", "runner/kubernetes/helm", "runner/kubernetes/manifest", "runner/plugin/terraform",
	"tools/functions", "functions/internal/plane", "functions/internal/awstest", "pkg/store/dynamo", "pkg/joblog/cloudwatch",
	"pkg/joblog/dynamo", "infra/images/internal/image", "pkg/blob/s3",
}

// again names tests of a package that run a second time: with the race detector if the
// package's first run is without it, and vice versa.
type again struct {
	tests string // pattern of -run
	why   string
}

var againPlain = map[string]again{
	"runner":       {"^TestIdleAgentIsSmall$", "the race detector makes an agent larger"}, // in a whole run
	"runner/agent": {"^TestTenThousandAgentsStartAtOnce$", "ten thousand goroutines with the race detector take minutes"},
	"pkg/control":  {"^Test(.*UnderEveryFault.*|.*LargeOutputs.*|AnOutputOf400KBMadeAGoodApplyUnknown)$", "faults are injected at every place and outputs have 5 MB; with the race detector at one place in four (in a short run one in twelve) and 500 KB"},
}

var againRaced = map[string]again{
	"pkg/joblog/dynamo":  {"/(concurrent|follower)", "these tests are concurrent"},
	"pkg/joblog/archive": {"/(concurrent|follower)", "these tests are concurrent"},
}

func (p pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func (p pkg) simulates() bool { return p.name() == "test/sim" }

// rotation is how short runs spread slow tests over days.
type rotation struct {
	days int
	only []string // the slow tests; nil: all tests of the package
}

// rotatedTests lists packages with the number of days in which short runs have each of their tests, or of their slow
// tests, once. Their tests need most of a run's CPU time (see -measure), and test code that changes seldom, or the same code as
// other tests with more processes. A test whose name another package uses, too, runs each day.
var rotatedTests = map[string]rotation{
	"cmd/fairlead": {5, []string{"TestControlPlaneOpensNoSecretOfACustomer", "TestDeadLettersAreReplayed", "TestDocker", "TestHiddenStateMakesThePlanStale",
		"TestHostileApp", "TestImages", "TestKubernetes", "TestRunnerNeedsNoInboundConnection", "TestSituationsEndByTheirAdvice", "TestTutorialsRun"}},
	"functions/internal/awstest": {days: 5},
	"functions/internal/plane":   {days: 5},
	"infra/control":              {3, []string{"TestFunctionsOpenSessions", "TestSpareCheckov", "TestSpareGuard", "TestSpareLint"}},
	"infra/runnerstack": {3, []string{"TestAppActionsLiftNoBoundary", "TestCloudFormationReadsThePublishedTemplate", "TestOnlyAStepAssumesItsRole", "TestOthersResourcesAreOutOfReach", "TestPlansReadDataOnlyIfPermitted",
		"TestRecordedCallsFailOnOthersResources", "TestRecordedModulesAreNotDenied"}},
	"runner":                                   {days: 5},
	"runner/agent/clusters":                    {days: 2},
	"runner/agent/direct":                      {days: 5},
	"runner/executor/kubernetes":               {days: 5},
	"runner/images/mirror":                     {days: 5},
	"runner/internal/charttest":                {days: 2},
	"runner/kubernetes":                        {days: 5},
	"runner/kubernetes/helm":                   {days: 5},
	"runner/kubernetes/manifest":               {days: 5},
	"runner/plugin/build":                      {days: 5},
	"runner/plugin/build/imagebuild/codebuild": {days: 2},
	"runner/plugin/program":                    {days: 2},
	"runner/plugin/terraform":                  {days: 5},
}

// rotatedPackages lists packages that short runs have on one of so many days, because their code changes seldom.
var rotatedPackages = map[string]int{
	"infra/images/...": 2,
	"tools/...":        2,
}

// raceDays is the number of days in which short runs use the race detector once for each package with goroutines. With it these
// tests need three times as much CPU. A whole run uses it for all of them.
//
// raceDays and the days of rotatedTests have no common divisor where a package has both, so that each test also runs
// with the race detector on some day.
const raceDays = 3

// raced reports whether the package's tests run with the race detector. day is the day of a short run; wholeRun
// stands for a whole run.
func (p pkg) raced(day int) bool {
	if day == wholeRun {
		return !p.listed(neverRaced)
	}
	return p.mayRace() && day%raceDays == p.turn
}

// mayRace reports whether short runs use the race detector for the whole package on some days.
func (p pkg) mayRace() bool {
	return p.goroutines && !p.listed(neverRaced) && !p.listed(slowRaced) && !p.listed(racedInPart)
}

// resting returns what a short run of the day leaves to other days: import paths of packages, and tests.
func resting(packages []pkg, day int) (wholes []string, tests []testName) {
	if day == wholeRun {
		return nil, nil
	}
	uses := map[string]int{}
	for _, p := range packages {
		for _, name := range p.tests {
			uses[name]++
		}
	}
	turns := map[string]int{}
	for _, p := range packages {
		for row, days := range rotatedPackages {
			if p.matches(row) {
				if (day+turns[row])%days != 0 {
					wholes = append(wholes, p.ImportPath)
				}
				turns[row]++
			}
		}
		r := rotatedTests[p.name()]
		i := 0
		for _, name := range p.tests {
			if r.days == 0 || uses[name] > 1 || r.only != nil && !slices.Contains(r.only, name) {
				continue
			}
			if (day+i)%r.days != 0 {
				tests = append(tests, testName{p.name(), name})
			}
			i++
		}
	}
	return wholes, tests
}

// wholeRun is the day of a whole run, which does not depend on the day.
const wholeRun = -1

// againRaced returns which tests run a second time with the race detector after a run of all tests without it.
func (p pkg) againRaced() (tests string, ok bool) {
	if a, listed := againRaced[p.name()]; listed {
		return a.tests, true
	}
	return "^(" + strings.Join(p.concurrent, "|") + ")$", len(p.concurrent) > 0
}

// listed reports whether a row of the table matches the package: by its name, or by a
// folder above it with /... at the end.
func (p pkg) listed(table map[string]string) bool {
	for row := range table {
		if p.matches(row) {
			return true
		}
	}
	return false
}

func (p pkg) matches(row string) bool {
	folder, below := strings.CutSuffix(row, "...")
	return p.name() == row || below && strings.HasPrefix(p.name(), folder)
}

// list returns the packages that have tests and match the pattern. The packages in early
// come first. dir is a folder of the module; "" is the working directory.
func list(ctx context.Context, dir, pattern string) ([]pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports", module+"/...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	match := exec.CommandContext(ctx, "go", "list", pattern)
	match.Dir = dir
	wanted, err := match.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
	starts := map[string]bool{}
	for _, p := range all {
		if starts[p.ImportPath], err = startsGoroutines(p.Dir, slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles)); err != nil {
			return nil, err
		}
	}
	var tested []pkg
	for _, p := range all {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 || !slices.Contains(strings.Fields(string(wanted)), p.ImportPath) {
			continue
		}
		p.goroutines = starts[p.ImportPath] || slices.ContainsFunc(slices.Concat(p.TestImports, p.XTestImports), func(path string) bool {
			return (strings.HasSuffix(path, "test") || strings.HasPrefix(path, module+"/test/")) && starts[path]
		})
		if p.tests, err = testsOf(p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles)); err != nil {
			return nil, err
		}
		if p.listed(racedInPart) {
			if p.concurrent, err = concurrentTests(p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles)); err != nil {
				return nil, err
			}
		}
		tested = append(tested, p)
	}
	rank := func(p pkg) int {
		if i := slices.Index(early, p.name()); i >= 0 {
			return i
		}
		return len(early)
	}
	turns := 0
	for i := range tested {
		if tested[i].mayRace() {
			tested[i].turn = turns % raceDays
			turns++
		}
	}
	slices.SortStableFunc(tested, func(a, b pkg) int { return cmp.Compare(rank(a), rank(b)) })
	return tested, nil
}

// concurrent lists packages whose importers probably share memory between goroutines.
var concurrent = []string{"sync", "sync/atomic", "testing/synctest", "golang.org/x/sync/errgroup", "net/http/httptest"}

// startsGoroutines reports whether one of the Go files has a go statement or
// imports a package of concurrent.
func startsGoroutines(dir string, files []string) (bool, error) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, i := range f.Imports {
			if path, err := strconv.Unquote(i.Path.Value); err == nil && slices.Contains(concurrent, path) {
				return true, nil
			}
		}
		found := false
		ast.Inspect(f, func(n ast.Node) bool {
			_, is := n.(*ast.GoStmt)
			found = found || is
			return !found
		})
		if found {
			return true, nil
		}
	}
	return false, nil
}

// testsOf returns the names of the tests in the Go files, sorted, without those of files that use shortrun: these choose
// their days themselves, and the two choices could never meet.
func testsOf(dir string, files []string) (tests []string, err error) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(module+"/tools/shortrun") }) {
			continue
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				tests = append(tests, fn.Name.Name)
			}
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// concurrentTests returns the names of the tests in the Go files that start goroutines, themselves
// or in a function of these files that they call. A call is compared by name only, so a test may be
// in the result without need.
func concurrentTests(dir string, files []string) (tests []string, err error) {
	starts, calls := map[string]bool{}, map[string][]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					starts[fn.Name.Name] = true
				case *ast.SelectorExpr:
					starts[fn.Name.Name] = starts[fn.Name.Name] || n.Sel.Name == "Go" // of sync.WaitGroup and errgroup.Group
					calls[fn.Name.Name] = append(calls[fn.Name.Name], n.Sel.Name)
				case *ast.Ident:
					calls[fn.Name.Name] = append(calls[fn.Name.Name], n.Name)
				}
				return true
			})
		}
	}
	for more := true; more; {
		more = false
		for caller, called := range calls {
			if !starts[caller] && slices.ContainsFunc(called, func(name string) bool { return starts[name] }) {
				starts[caller], more = true, true
			}
		}
	}
	for name := range starts {
		if starts[name] && strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests, nil
}
