// Command testrun runs the tests of this module. With -short it uses the race detector
// on every third day for each package with goroutines, except those that packages.go lists with a reason, and
// without -short for nearly all packages. It starts one
// shared DynamoDB Local, SQS server, moto and Kubernetes API server. At the end it prints
// the slowest packages and every skipped test.
//
// Without flags it runs everything, which takes an hour on two cores. With -short the
// tests use small sizes: 100 seeds of the simulator, three planted mistakes, streams of
// 4 MiB, and one of several similar cases. With -strict a skipped test fails the run
// unless skips.go lists it with a reason.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == measureCommand {
		os.Exit(measure(os.Getenv(measureEnv), os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

type options struct {
	short, strict bool
	measure       bool   // measure the CPU time of each package
	gotestsum     string // path of the program
	out           string // folder for the JSON events; "": a temporary folder
	only          string // import path pattern; "": ./...
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.short, "short", false, "run with small sizes")
	flags.BoolVar(&o.strict, "strict", false, "fail if a test is skipped that skips.go does not list")
	flags.BoolVar(&o.measure, "measure", false, "report the CPU time of each package; then no result is taken from the cache")
	flags.StringVar(&o.gotestsum, "gotestsum", "bin/gotestsum", "`path` of gotestsum")
	flags.StringVar(&o.out, "out", "", "`folder` that keeps the events of go test as JSON")
	flags.StringVar(&o.only, "packages", "./...", "`pattern` of the packages to test")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments %q; use -packages for a pattern of packages", flags.Args())
	}
	// The paths must be absolute, because the tests of another module run in its folder.
	if o.gotestsum, err = filepath.Abs(o.gotestsum); err != nil {
		return err
	}
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "fairlead-testrun-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.out)) }()
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	day := wholeRun
	if o.short {
		if day, err = strconv.Atoi(cmp.Or(os.Getenv(shortrun.DayEnv), "0")); err != nil || day < 0 {
			return fmt.Errorf("%s=%q is not an integer of at least 0", shortrun.DayEnv, os.Getenv(shortrun.DayEnv))
		}
	}
	packages, err := list(ctx, "", o.only)
	if err != nil {
		return err
	}
	shared := startServers(ctx, stderr)
	defer shared.stop()
	shared.environ = append(shared.environ, program.RunEnv+"="+rand.Text())

	began := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	wholes, tests := resting(packages, day)
	groups := groupsOf(slices.DeleteFunc(slices.Clone(packages), func(p pkg) bool { return slices.Contains(wholes, p.ImportPath) }), day)
	if len(tests) > 0 {
		names := make([]string, len(tests))
		for i, t := range tests {
			names[i] = t.Test
		}
		for i := range groups {
			groups[i].skip = "^(" + strings.Join(names, "|") + ")$"
		}
	}
	if o.only == "./..." {
		groups = append(groups, group{name: "tofu-module", dir: "tools/tofu", race: true, parallel: 1, packages: []string{"./..."}})
	}
	for _, race := range []bool{false, true} {
		same := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return g.race != race })
		wg.Go(func() {
			compile(ctx, race, same)
			for _, g := range same {
				wg.Go(func() {
					if err := g.test(ctx, o, shared.environ, stdout, stderr); err != nil {
						mu.Lock()
						failures = append(failures, fmt.Errorf("%s: %w", g.name, err))
						mu.Unlock()
					}
				})
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	var r report
	for _, g := range groups {
		if err := r.read(filepath.Join(o.out, g.name+".json")); err != nil {
			return errors.Join(append(failures, err)...)
		}
		if err := r.readMeasured(root, g.measured(o)); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	r.print(stdout, time.Since(began))
	if len(wholes)+len(tests) > 0 {
		fmt.Fprintf(stdout, "%d packages and %d tests run on other days (tools/testrun/packages.go)\n", len(wholes), len(tests))
	}
	if o.strict {
		failures = append(failures, r.checkSkips(awake(allowedSkips(o.short), wholes, tests), o.only == "./...")...)
	}
	return errors.Join(failures...)
}

// group is one run of go test.
type group struct {
	name     string // name of its file of events
	dir      string // folder of its module; "": this module
	race     bool   // use the race detector
	again    bool   // the group repeats tests: its packages are in another group, too
	tests    string // pattern of the tests; "": all
	skip     string // pattern of the tests that the group leaves out; "": none
	parallel int    // number of packages at once
	nice     bool   // run with the lowest CPU priority
	packages []string
}

// groupsOf returns the runs of go test. They run at the same time, so that other tests use
// the CPU while a test waits. The simulator gets the CPU time that remains. day is as for pkg.raced.
func groupsOf(packages []pkg, day int) []group {
	raced := group{name: "raced", race: true, parallel: 3}
	plain := group{name: "plain", parallel: 3}
	simulator := group{name: "simulator", parallel: 1, nice: true}
	var more []group
	repeat := func(p pkg, tests string, race bool) {
		more = append(more, group{name: "again-" + strings.ReplaceAll(p.name(), "/", "-"), again: true, race: race, tests: tests, parallel: 1, packages: []string{p.ImportPath}})
	}
	for _, p := range packages {
		switch {
		case p.simulates():
			simulator.packages = append(simulator.packages, p.ImportPath)
		case p.raced(day):
			raced.packages = append(raced.packages, p.ImportPath)
			if a, ok := againPlain[p.name()]; ok {
				repeat(p, a.tests, false)
			}
		default:
			plain.packages = append(plain.packages, p.ImportPath)
			if tests, ok := p.againRaced(); ok {
				repeat(p, tests, true)
			}
		}
	}
	groups := append([]group{raced, plain, simulator}, more...)
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.packages) == 0 })
}

// parallelTests is the number of parallel tests of a package. Most of them wait for
// processes and servers and need little CPU.
const parallelTests = 6

// The times after which go test kills a package's tests and prints their goroutines. In
// a whole run the simulator builds and runs each planted mistake with the CPU time that
// the other groups leave. That takes more than half an hour on two busy cores.
const (
	shortTimeout = 30 * time.Minute
	wholeTimeout = 2 * time.Hour
)

// cgo returns the environment variable of cgo for go commands. Only the race detector
// needs cgo. Without cgo, tests and product share the build cache.
func cgo(race bool) string {
	if race {
		return "CGO_ENABLED=1"
	}
	return "CGO_ENABLED=0"
}

// raceExit shortens the pause of the race detector before a process exits, in which other threads
// may report a race. Without it each raced package, and each process of its tests, ends a second later.
const raceExit = "GORACE=atexit_sleep_ms=50"

// compilerGC is the environment variable of the compiler's garbage collector. With Go's
// 100 the compiler needs a third more CPU time, and less memory. The tests do not get the
// variable, because some of them measure the memory of their processes.
const compilerGC = "GOGC=400"

// compile compiles the dependencies of the groups' tests into the build cache. The
// groups must all use the race detector, or none of them. Without compile, several go
// test commands with an empty cache would compile the same packages at the same time.
// compile ignores errors: go test finds them again and names the package.
func compile(ctx context.Context, race bool, groups []group) {
	args := []string{"list", "-e", "-export", "-deps", "-test", "-f", ""}
	if race {
		args = append(args, "-race")
	}
	for _, g := range groups {
		if g.dir == "" {
			args = append(args, g.packages...)
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), cgo(race), compilerGC)
	_ = cmd.Run()
}

// measured is the path of the group's file of CPU times.
func (g group) measured(o options) string { return filepath.Join(o.out, g.name+".cpu") }

func (g group) test(ctx context.Context, o options, environ []string, stdout, stderr io.Writer) error {
	// -vet=off, because make check runs go vet over all packages.
	timeout := wholeTimeout
	if o.short {
		timeout = shortTimeout
	}
	args := []string{"--format", "pkgname", "--hide-summary", "skipped", "--jsonfile", filepath.Join(o.out, g.name+".json"), "--",
		"-vet=off", "-timeout=" + timeout.String(), fmt.Sprintf("-parallel=%d", parallelTests), fmt.Sprintf("-p=%d", g.parallel)}
	if o.short {
		args = append(args, "-short")
	}
	if g.tests != "" {
		args = append(args, "-run="+g.tests)
	}
	if g.skip != "" {
		args = append(args, "-skip="+g.skip)
	}
	if g.race {
		args = append(args, "-race")
	}
	if o.measure {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		args = append(args, fmt.Sprintf("-exec='%s' %s", self, measureCommand))
	}
	args = append(args, g.packages...)
	name := o.gotestsum
	if g.nice {
		name, args = "nice", append([]string{"-n", "19", name}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = g.dir
	cmd.Env = slices.Concat([]string{raceExit}, os.Environ(), environ, []string{cgo(g.race), measureEnv + "=" + g.measured(o)})
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}
