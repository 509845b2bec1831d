package fairlead_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The limits of a product function, including its function literals. A function above a
// limit needs a reason: a line of its comment that begins with "long: ".
const (
	maxLines    = 80
	maxBranches = 25 // its cyclomatic complexity
)

// branches returns the cyclomatic complexity of a function: the number of its decisions
// plus one.
func branches(fn ast.Node) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil { // not default
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// whyLong returns the reason in a function's comment for its length, or "".
func whyLong(fn *ast.FuncDecl) string {
	for line := range strings.Lines(fn.Doc.Text()) {
		if why, ok := strings.CutPrefix(line, "long: "); ok {
			return strings.TrimSpace(why)
		}
	}
	return ""
}

func TestLongFunctionsHaveAReason(t *testing.T) {
	for name, p := range listPackages(t) {
		if matchAny("bench/... tools/... test/...", name) || strings.HasSuffix(name, "test") || strings.Contains(name, "test/") {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.Ignored) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range f.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
				n, why := branches(fn), whyLong(fn)
				switch long := lines > maxLines || n > maxBranches; {
				case long && why == "":
					t.Errorf("%s/%s: %s has %d lines and %d branches: split it, or give the reason in a line \"long: …\" of its comment", name, file, fn.Name.Name, lines, n)
				case !long && why != "":
					t.Errorf("%s/%s: %s is not long any more: remove the reason", name, file, fn.Name.Name)
				}
			}
		}
	}
}

func TestBranches(t *testing.T) {
	for src, want := range map[string]int{
		"func f() {}":                                             1,
		"func f() { if a && b || c {} }":                          4,
		"func f() { for range 3 {}; for {} }":                     3,
		"func f() { switch a { case 1, 2: case 3: default: } }":   3,
		"func f() { select { case <-c: default: } }":              2,
		"func f() { func() { if a {} }() }":                       2,
		"func f() { switch a.(type) { case int: case string: } }": 3,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := branches(f.Decls[0]); got != want {
			t.Errorf("%s has %d branches, want %d", src, got, want)
		}
	}
}
