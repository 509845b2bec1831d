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

	goroutines bool // it, its tests, or a test package that they import starts goroutines
}

// slowRaced lists packages that the short run tests without the race detector,
// although they use goroutines, and why. The whole run watches all but neverRaced.
var slowRaced = map[string]string{
	"cmd/fairlead":       "its stories start some thousand processes, and each starts five times as slowly when watched",
	"runner":             "each of its agents and steps is a process of the test binary, and starts five times as slowly when watched",
	"pkg/joblog/dynamo":  "streams of megabytes in DynamoDB's JSON are slow to watch",
	"pkg/joblog/archive": "streams of 64 MiB are slow to watch",

	"runner/executor/kubernetes":        kubernetesRaced,
	"runner/executor/kubernetes/remote": kubernetesRaced,
	"runner/agent/direct":               kubernetesRaced,
	"runner/internal/charttest":         kubernetesRaced,
}

// kubernetesRaced is why tests with Kubernetes' client are not watched in a short run.
const kubernetesRaced = "Kubernetes' client and Helm are two fifths of all that would be compiled for the race detector, on an empty cache five minutes of CPU"

// neverRaced lists packages that no run watches, and why.
var neverRaced = map[string]string{
	"infra/...": "the CDK's runtime has data races of its own",
	"test/sim":  "a simulated run is one thread, and ten times as slow when watched",
}

// early lists the packages that take longest, mostly waiting. They start first, so
// that the others run beside them and none of them is left alone at the end.
var early = []string{
	"cmd/fairlead", "runner", "pkg/queue/sqs", "runner/agent/direct", "pkg/control", "infra/control", "infra/runnerstack",
	"runner/executor/kubernetes", "runner/plugin/terraform",
	"tools/functions", "functions/internal/plane", "functions/internal/awstest", "pkg/store/dynamo", "pkg/joblog/cloudwatch",
	"pkg/joblog/dynamo", "infra/images/internal/image", "pkg/blob/s3",
}

// again is tests of a package that run a second time: with the race detector, if
// the package's first run is without, and the other way round.
type again struct {
	tests string // pattern of -run
	why   string
}

var againPlain = map[string]again{
	"runner":       {"^TestIdleAgentIsSmall$", "a raced agent is larger"}, // in a whole run
	"runner/agent": {"^TestTenThousandAgentsStartAtOnce$", "ten thousand raced goroutines take minutes"},
	"pkg/control":  {"^Test(.*UnderEveryFault.*|.*LargeOutputs.*|AnOutputOf400KBMadeAGoodApplyUnknown)$", "faults befall every place and outputs have 5 MB; where the race detector watches, one place in four (in a short run twelve) and 500 KB"},
}

var againRaced = map[string]again{
	"pkg/joblog/dynamo":  {"/(concurrent|follower)", "what happens at once"},
	"pkg/joblog/archive": {"/(concurrent|follower)", "what happens at once"},
}

func (p pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func (p pkg) simulates() bool { return p.name() == "test/sim" }

func (p pkg) raced(short bool) bool {
	return !p.listed(neverRaced) && (!short || p.goroutines && !p.listed(slowRaced))
}

// listed reports whether a row of the table is the package, or ends with /... and
// is a folder above it.
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

// list returns the packages that have tests and match the pattern. dir is a
// folder of the module; "": the working folder.
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
		tested = append(tested, p)
	}
	rank := func(p pkg) int {
		if i := slices.Index(early, p.name()); i >= 0 {
			return i
		}
		return len(early)
	}
	slices.SortStableFunc(tested, func(a, b pkg) int { return cmp.Compare(rank(a), rank(b)) })
	return tested, nil
}

// concurrent are packages whose importers share memory between goroutines.
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
