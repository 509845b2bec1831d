// Command fuzz runs the fuzz targets of the module, one after the other, each for a time. A failing input goes into the folder testdata/fuzz
// of its package, where each later `go test` repeats it; commit it with the fix. Inputs that reach new code stay in Go's build cache,
// and the next run begins with them. `make fuzz` runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// target is a fuzz target: a function of a package's tests.
type target struct {
	pkg  string // the package's folder, such as ./pkg/policy
	name string
}

func main() {
	long := flag.Duration("for", time.Minute, "time for each target")
	only := flag.String("only", "", "run only targets whose package or name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", *long, *only, os.Stdout, execute)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// run runs all targets below root, also after one has failed.
func run(ctx context.Context, root string, long time.Duration, only string, w io.Writer, execute func(context.Context, target, time.Duration) error) error {
	targets, err := find(root)
	if err != nil {
		return err
	}
	var failed []string
	for i, t := range targets {
		if !strings.Contains(t.pkg+" "+t.name, only) {
			continue
		}
		fmt.Fprintf(w, "%d of %d: %s in %s, for %s\n", i+1, len(targets), t.name, t.pkg, long)
		if err := execute(ctx, t, long); err != nil {
			failed = append(failed, t.name+" in "+t.pkg)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(failed) > 0 {
		return errors.New("failed: " + strings.Join(failed, ", "))
	}
	return nil
}

// execute runs one target.
func execute(ctx context.Context, t target, long time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", long.String(), t.pkg)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test stops its workers
	err := cmd.Run()
	if err != nil && onlyTimeEnded(out.String()) {
		fmt.Printf("%s found nothing: its time ended while a worker was busy (golang.org/issue/75804)\n", t.name)
		return nil
	}
	return err
}

// onlyTimeEnded reports whether a target failed only because its time ended while a worker was busy. Go before 1.27 reports that as
// a failure. A failing input, a panic or another error has further lines.
func onlyTimeEnded(output string) bool {
	_, failure, _ := strings.Cut(output, "\n--- FAIL: ")
	_, lines, _ := strings.Cut(failure, "\n")
	before, _, ended := strings.Cut(lines, "\nFAIL\n")
	return ended && strings.TrimSpace(before) == context.DeadlineExceeded.Error()
}

// find returns the fuzz targets of all tests below root, in the order of their packages.
func find(root string) ([]target, error) {
	var out []target
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(d.Name(), "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, filepath.Dir(file))
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				out = append(out, target{"./" + filepath.ToSlash(below), f.Name.Name})
			}
		}
		return err
	})
	slices.SortFunc(out, func(a, b target) int { return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name) })
	return out, err
}
