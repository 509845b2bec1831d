package main_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/page"
)

// TestFaultsPageNamesTests compares the table in docs/contributing/faults.md with the names
// and comments of the fault tests in this folder. The page also names tests outside of the
// table. Another test, in the root folder, checks that these tests exist.
func TestFaultsPageNamesTests(t *testing.T) {
	files, err := filepath.Glob("*_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			comment := strings.TrimPrefix(strings.Join(strings.Fields(f.Doc.Text()), " "), f.Name.Name+" ")
			if comment == "" {
				t.Fatalf("%s has no comment for docs/contributing/faults.md", f.Name.Name)
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", f.Name.Name, strings.ToUpper(comment[:1])+comment[1:]))
		}
	}
	slices.Sort(rows)
	page.Hold(t, "docs/contributing/faults.md", "tests", "| test | |\n|---|---|\n"+strings.Join(rows, ""))
}
