package fairlead_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// pages returns the paths of all pages of docs/.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPagesHaveValidLinksAndExamples checks the README and the pages of docs/. Every link
// to a file of this repository has a target. The text of an example on a page equals the
// example's file or the end of this file.
func TestPagesHaveValidLinksAndExamples(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, file := range append(pages(t), "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", file, m[1])
			}
		}
	}

	example := regexp.MustCompile("(?s)```yaml\n# (examples/[^\n]+)\n(.*?)```")
	shown := 0
	for _, file := range append(pages(t), "README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range example.FindAllStringSubmatch(string(text), -1) {
			shown++
			want, err := os.ReadFile(m[1])
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != m[2] && !strings.HasSuffix(string(want), "\n"+m[2]) {
				t.Errorf("the text of %[2]s in %[1]s differs from the file", file, m[1])
			}
		}
	}
	if shown == 0 {
		t.Error("no page shows an example")
	}
}

// TestReadmeNamesMakeTargets checks that each make target in the README exists, and that
// the README names the most important targets.
func TestReadmeNamesMakeTargets(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(string(readme), -1) {
		named[m[1]] = true
		if !strings.Contains(string(makefile), "\n"+m[1]+":") {
			t.Errorf("the README names make %s, which the Makefile does not have", m[1])
		}
	}
	for _, target := range []string{"demo", "dev", "check", "test"} {
		if !named[target] {
			t.Errorf("the README does not name make %s", target)
		}
	}
}

// TestPagesNameExistingTests checks that each test on a page exists. It also checks that
// each row of docs/contributing/evidence.md, each row of the protections in
// docs/reference/executors.md, and each attack in docs/SECURITY.md names a test.
// An attack that Fairlead does not stop has the result "not protected" instead.
func TestPagesNameExistingTests(t *testing.T) {
	exists := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range declaration.FindAllStringSubmatch(string(code), -1) {
			exists[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z]\\w+)[/`]")
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !exists[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", file, m[1])
			}
		}
	}

	for _, row := range page.Table(t, "docs/reference/executors.md", "what", "`process` with Landlock", "`process` without", "`docker`, `kubernetes`, `ecs`", "test") {
		if !slices.ContainsFunc(page.Code(row[4]), func(code string) bool { return strings.HasPrefix(code, "Test") }) {
			t.Errorf("docs/reference/executors.md names no test for the protection: %s", row[0])
		}
	}
	for _, row := range page.Table(t, "docs/SECURITY.md", "actor", "what it cannot do", "test") {
		if len(page.Code(row[2])) == 0 {
			t.Errorf("docs/SECURITY.md names no test for what the %s cannot do", row[0])
		}
	}
	attacks := map[string]int{}
	for _, row := range page.Table(t, "docs/SECURITY.md", "as", "attack", "result", "test") {
		attacks[row[0]]++
		tested := slices.ContainsFunc(page.Code(row[3]), func(code string) bool { return strings.HasPrefix(code, "Test") })
		if !tested && !strings.Contains(row[2], "**not protected**") {
			t.Errorf("docs/SECURITY.md names no test for the attack: %s", row[1])
		}
	}
	for _, role := range []string{"tool", "neighbour", "runner", "control plane", "vendor's staff", "customer", "network"} {
		if attacks[role] < 3 {
			t.Errorf("docs/SECURITY.md has %d attacks as %s, want 3 or more", attacks[role], role)
		}
	}
	if len(attacks) != 7 {
		t.Errorf("docs/SECURITY.md has attacks by the roles %v, want 7 actors", attacks)
	}
	promises := page.Table(t, "docs/contributing/evidence.md", "area", "guarantee", "test", "command or figure")
	for _, row := range promises {
		shows := func(code string) bool { return strings.HasPrefix(code, "Test") || strings.HasPrefix(code, "make ") }
		if !slices.ContainsFunc(page.Code(row[2]), shows) {
			t.Errorf("docs/contributing/evidence.md names no test for the guarantee: %s", row[1])
		}
	}
	if len(promises) < 50 {
		t.Errorf("docs/contributing/evidence.md has only %d rows, want at least 50", len(promises))
	}
}

// Each generated span has a test that updates it. Without a test the span would become
// outdated. The test is a function of the package that the span's marker names. It calls
// page.Hold, and contains the path of the page and the span's name as literals.
func TestEverySpanHasATest(t *testing.T) {
	holders := map[string][]map[string]bool{} // literals of each function that calls page.Hold, by package
	found := 0
	for _, file := range append(pages(t), "README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spans, err := page.Spans(string(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		found += len(spans)
		for _, s := range spans {
			if _, ok := holders[s.Package]; !ok {
				holders[s.Package] = holdersOf(t, s.Package)
			}
			if !slices.ContainsFunc(holders[s.Package], func(has map[string]bool) bool { return has[file] && has[s.Name] }) {
				t.Errorf("%s, line %d: no test of %s checks the span %q", file, s.Line, s.Package, s.Name)
			}
		}
	}
	if found < 20 {
		t.Errorf("the pages have only %d spans, want at least 20", found)
	}
}

// holdersOf returns the string literals of each function in the package's test files that
// calls page.Hold.
func holdersOf(t *testing.T, pkg string) (found []map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imported := ""
		for _, i := range file.Imports {
			if i.Path.Value == strconv.Quote(module+"tools/page") {
				imported = "page"
				if i.Name != nil {
					imported = i.Name.Name
				}
			}
		}
		for _, d := range file.Decls {
			holds, literals := false, map[string]bool{}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						literals[s] = true
					}
				case *ast.SelectorExpr:
					x, ok := n.X.(*ast.Ident)
					holds = holds || ok && imported != "" && x.Name == imported && n.Sel.Name == "Hold"
				}
				return true
			})
			if holds {
				found = append(found, literals)
			}
		}
	}
	return found
}

// TestAnswersNameExistingCode checks docs/contributing/questions.md. It has at least ten
// questions. Each answer names files, folders, or declarations such as
// path/of/package.Name or path/of/package.Type.Method, and all of them exist.
func TestAnswersNameExistingCode(t *testing.T) {
	const file = "docs/contributing/questions.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(string(text), "\n## ")[1:]
	if len(answers) < 10 {
		t.Errorf("%s has only %d questions, want at least 10", file, len(answers))
	}
	tops := regexp.MustCompile(`^(pkg|runner|cmd|infra|functions|events|test|tools|web|docs)(/|\.|$)`)
	for _, answer := range answers {
		question, _, _ := strings.Cut(answer, "\n")
		places := 0
		for _, code := range page.Code(answer) {
			if !tops.MatchString(code) {
				continue
			}
			places++
			if _, err := os.Stat(code); err == nil {
				continue
			}
			folder, name, _ := strings.Cut(code, ".")
			if name == "" || !declares(t, folder, name) {
				t.Errorf("%s: the answer to %q names %s, which does not exist", file, question, code)
			}
		}
		if places == 0 {
			t.Errorf("%s: the answer to %q names no file, folder or declaration", file, question)
		}
	}
}

// declares reports whether the package in the folder declares the name: a function, a
// type, a constant, a variable, or Type.Method.
func declares(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if slices.Contains(declared(d), name) {
				return true
			}
		}
	}
	return false
}

// declared returns the names that a declaration declares. The name of a method is
// Type.Method.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		if i, ok := of.(*ast.IndexExpr); ok {
			of = i.X
		}
		if id, ok := of.(*ast.Ident); ok {
			return []string{id.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				if i, ok := s.Type.(*ast.InterfaceType); ok {
					for _, m := range i.Methods.List {
						for _, n := range m.Names {
							names = append(names, s.Name.Name+"."+n.Name)
						}
					}
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}
