package fairlead_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// checkedPackage is a package of the product with the types of its expressions.
type checkedPackage struct {
	path string // below the module
	fset *token.FileSet
	pkg  *types.Package
	info *types.Info
	file []*ast.File
}

// at returns the file and line of a node, below the module.
func (p checkedPackage) at(n ast.Node) (file string, line int) {
	pos := p.fset.Position(n.Pos())
	return p.path + "/" + pos.Filename[strings.LastIndexByte(pos.Filename, '/')+1:], pos.Line
}

// checkedPackages returns the packages of the product, without test support, and without
// files whose build tag is not set.
func checkedPackages(t *testing.T) (all []checkedPackage) {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{
		Context: t.Context(),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile,
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, e)
		}
		path := strings.TrimPrefix(p.PkgPath, module)
		if strings.HasSuffix(path, "test") || matchAny("test/... bench/...", path) {
			continue
		}
		all = append(all, checkedPackage{path, p.Fset, p.Types, p.TypesInfo, p.Syntax})
	}
	if len(all) < 80 {
		t.Fatalf("only %d packages were loaded, want at least 80", len(all))
	}
	return all
}

// checkSource returns a package of one file. The tests of literalCodes and textDecisions
// use it.
func checkSource(t *testing.T, source string) checkedPackage {
	t.Helper()
	p := checkedPackage{path: "planted", fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}}
	f, err := parser.ParseFile(p.fset, "/planted.go", "package planted\n"+source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p.file = []*ast.File{f}
	if p.pkg, err = (&types.Config{}).Check(module+"pkg/fairlead", p.fset, p.file, p.info); err != nil {
		t.Fatal(err)
	}
	return p
}

// coded lists the types of pkg/fairlead whose values affect the decisions of programs.
var coded = map[string]bool{"Code": true, "Reason": true, "Cause": true, "RunnerMode": true, "Verb": true}

// literalCodes returns the string literals that have a type in coded. It omits the literal
// "" and the declarations of constants in pkg/fairlead.
func literalCodes(p checkedPackage) (found []*ast.BasicLit) {
	declared := map[ast.Expr]bool{}
	for _, f := range p.file {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.CONST && p.path == "pkg/fairlead" {
					for _, s := range n.Specs {
						for _, v := range s.(*ast.ValueSpec).Values {
							declared[v] = true
						}
					}
				}
			case *ast.BasicLit:
				named, ok := types.Unalias(typeOf(p, n)).(*types.Named)
				if ok && n.Kind == token.STRING && n.Value != `""` && !declared[n] &&
					named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == module+"pkg/fairlead" && coded[named.Obj().Name()] {
					found = append(found, n)
				}
			}
			return true
		})
	}
	return found
}

// typeOf returns the type of an expression, or nil if the expression has no type.
func typeOf(p checkedPackage, e ast.Expr) types.Type { return p.info.Types[e].Type }

// TestCodesAndReasonsAreConstants checks that only pkg/fairlead declares values of its
// coded types. The compiler would not find a misspelled literal elsewhere.
func TestCodesAndReasonsAreConstants(t *testing.T) {
	for _, p := range checkedPackages(t) {
		for _, lit := range literalCodes(p) {
			file, line := p.at(lit)
			t.Errorf("%s:%d has the literal %s where a constant of pkg/fairlead belongs", file, line, lit.Value)
		}
	}

	t.Run("planted", func(t *testing.T) {
		for _, source := range []string{
			`type Reason string; func f(r Reason) bool { return r == "lost" }`,
			`type Reason string; var r = Reason("lost")`,
			`type Code string; func f(Code) {}; func g() { f("job-state") }`,
			`type Cause string; func f(c Cause) { switch c { case "killed": } }`,
			`type Verb string; type action struct{ V Verb }; var a = action{V: "retry"}`,
			`type RunnerMode string; var m = map[RunnerMode]int{"paused": 1}`,
		} {
			if n := len(literalCodes(checkSource(t, source))); n != 1 {
				t.Errorf("found %d literals, want 1, in: %s", n, source)
			}
		}
	})
}

// textFields lists the names of fields whose text is for people.
var textFields = map[string]bool{"Message": true, "What": true, "Hint": true, "Known": true, "Detail": true, "ErrorMessage": true}

// decidingCalls lists the functions of package strings and the methods of regular
// expressions that decide on their first argument.
var decidingCalls = map[string]bool{"Contains": true, "ContainsAny": true, "HasPrefix": true, "HasSuffix": true, "Index": true, "Cut": true, "CutPrefix": true,
	"CutSuffix": true, "EqualFold": true, "Count": true, "MatchString": true, "FindStringSubmatch": true, "FindString": true}

// allowedTextDecisions lists the files that may decide on the text of a message, with the
// reasons.
var allowedTextDecisions = map[string]string{
	"runner/executor/ecs/handle.go":  "ECS has one error for a missing task and for a wrong argument",
	"tools/fuzz/main.go":             "go test reports the end of the time as a text only",
	"tools/deployment/deployment.go": "CloudFormation has one error for a missing stack and for a wrong name",
	"runner/agent/beat.go":           "the agent logs a warning again only if its text has changed",
	"pkg/local/tls.go":               "the HTTP server of the standard library reports a failed handshake as text only",
}

// textDecisions returns the expressions that decide on the text of a message: comparisons
// with a non-empty text, switches, map indices, and searches.
func textDecisions(p checkedPackage) (found []ast.Node) {
	isText := func(e ast.Expr) bool {
		e = ast.Unparen(e)
		b, ok := typeOf(p, e).(*types.Basic) // a named type is not a plain text
		if !ok || b.Info()&types.IsString == 0 {
			return false
		}
		switch e := e.(type) {
		case *ast.CallExpr:
			fn, ok := e.Fun.(*ast.SelectorExpr)
			return ok && fn.Sel.Name == "Error" && len(e.Args) == 0 || ok && fn.Sel.Name == "ErrorMessage"
		case *ast.SelectorExpr:
			s := p.info.Selections[e]
			return s != nil && s.Kind() == types.FieldVal && textFields[e.Sel.Name]
		}
		return false
	}
	isEmpty := func(e ast.Expr) bool {
		v := p.info.Types[e].Value
		return v != nil && v.ExactString() == `""`
	}
	for _, f := range p.file {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && (isText(n.X) && !isEmpty(n.Y) || isText(n.Y) && !isEmpty(n.X)) {
					found = append(found, n)
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && isText(n.Tag) {
					found = append(found, n)
				}
			case *ast.IndexExpr:
				if t := typeOf(p, n.X); t != nil && isText(n.Index) {
					if _, ok := t.Underlying().(*types.Map); ok {
						found = append(found, n)
					}
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.SelectorExpr); ok && decidingCalls[fn.Sel.Name] && len(n.Args) > 0 && isText(n.Args[0]) {
					found = append(found, n)
				}
			}
			return true
		})
	}
	return found
}

// TestNoDecisionDependsOnMessageText checks that programs decide on typed values.
// Messages are for people, and a new wording must not change the behavior.
func TestNoDecisionDependsOnMessageText(t *testing.T) {
	used := map[string]bool{}
	for _, p := range checkedPackages(t) {
		for _, n := range textDecisions(p) {
			file, line := p.at(n)
			used[file] = true
			if allowedTextDecisions[file] == "" {
				t.Errorf("%s:%d decides on the text of a message: use a typed value instead", file, line)
			}
		}
	}
	for file := range allowedTextDecisions {
		if !used[file] {
			t.Errorf("allowedTextDecisions lists %s, which decides on no message any more: remove it", file)
		}
	}

	t.Run("planted", func(t *testing.T) {
		for _, c := range []struct {
			source string
			want   int
		}{
			{`func f(err error) bool { return err.Error() == "gone" }`, 1},
			{`type e struct{ Message string }; func f(v e) bool { return "gone" != v.Message }`, 1},
			{`type e struct{ Hint string }; func f(v e) { switch v.Hint { case "a": } }`, 1},
			{`type e struct{ Detail string }; var m map[string]int; func f(v e) int { return m[v.Detail] }`, 1},
			{`type s struct{}; func (s) Contains(a, b string) bool { return a == b }; var strings s; func f(err error) bool { return strings.Contains(err.Error(), "x") }`, 1},
			{`type e struct{ Message string }; func f(v e) bool { return v.Message == "" }`, 0},
			{`type Kind string; type e struct{ What Kind }; func f(v e) bool { return v.What == "new" }`, 0},
		} {
			if n := len(textDecisions(checkSource(t, c.source))); n != c.want {
				t.Errorf("found %d decisions, want %d, in: %s", n, c.want, c.source)
			}
		}
	})
}
