package fairlead_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// kebab is what reasons and causes look like.
var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// TestAReasonIsALiteral: what programs decide on has one list, the constants of
// pkg/fairlead. A literal beside them can be misspelled, and nothing notices.
func TestAReasonIsALiteral(t *testing.T) {
	packages := listPackages(t)
	known := typedConstants(t, packages["pkg/fairlead"], "Reason", "Cause")
	for name, p := range packages {
		if name == "pkg/fairlead" || strings.HasSuffix(name, "test") || matchAny("test/... bench/... tools/... infra/...", name) {
			continue
		}
		for _, file := range p.GoFiles {
			at := name + "/" + file
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, lit := range literalReasons(f) {
				s, _ := strconv.Unquote(lit.Value)
				if c := known[s]; c != "" {
					t.Errorf("%s:%d has %s for fairlead.%s", at, fset.Position(lit.Pos()).Line, lit.Value, c)
				} else {
					t.Errorf("%s:%d has the reason %s, which is none of pkg/fairlead", at, fset.Position(lit.Pos()).Line, lit.Value)
				}
			}
		}
	}
}

// typedConstants returns the constants of these types that the package declares:
// their names by their values.
func typedConstants(t *testing.T, p pkg, types ...string) map[string]string {
	out := map[string]string{}
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			id, ok := v.Type.(*ast.Ident)
			if lit, is := v.Values[0].(*ast.BasicLit); ok && is {
				for _, typ := range types {
					if id.Name == typ {
						s, _ := strconv.Unquote(lit.Value)
						out[s] = v.Names[0].Name
					}
				}
			}
			return true
		})
	}
	if len(out) < 50 {
		t.Fatalf("%d constants were found", len(out))
	}
	return out
}

// literalReasons returns the string literals that stand where a reason or a cause does.
func literalReasons(f *ast.File) (found []*ast.BasicLit) {
	fields := map[string]bool{"Reason": true, "Cause": true, "Stop": true}
	seen := map[*ast.BasicLit]bool{}
	add := func(e ast.Expr) {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || seen[lit] {
			return
		}
		if s, _ := strconv.Unquote(lit.Value); kebab.MatchString(s) {
			seen[lit] = true
			found = append(found, lit)
		}
	}
	coded := func(e ast.Expr) bool { // it gives a reason
		switch e := e.(type) {
		case *ast.SelectorExpr:
			return fields[e.Sel.Name]
		case *ast.CallExpr:
			fn, ok := e.Fun.(*ast.SelectorExpr)
			return ok && fn.Sel.Name == "ReasonOf"
		}
		return false
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				if k, ok := kv.Key.(*ast.Ident); ok && fields[k.Name] {
					add(kv.Value)
				}
			}
		case *ast.BinaryExpr:
			if coded(n.X) {
				add(n.Y)
			}
			if coded(n.Y) {
				add(n.X)
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if coded(l) && len(n.Rhs) == len(n.Lhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && coded(n.Tag) {
				for _, c := range n.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						add(e)
					}
				}
			}
		}
		return true
	})
	return found
}
