package page

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Table returns the rows of all tables of the file whose header has exactly these
// columns. A row is its cells without the space around them. Table fails the test if
// the file has no such table, or if a row has another number of cells. Safe for
// concurrent use.
//
// The working directory must be the folder of the test's package, as for [Hold].
func Table(t testing.TB, file string, columns ...string) [][]string {
	t.Helper()
	root, _, err := workingPackage()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	found, inside := false, false
	var before []string // cells of the previous line
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		row := cells(line)
		switch {
		case row == nil:
			inside = false
		case isRule(row):
			inside = slices.Equal(before, columns)
			found = found || inside
		case inside && len(row) != len(columns):
			t.Fatalf("%s, line %d: the row has %d cells, but its table has %d columns", file, n, len(row), len(columns))
		case inside:
			rows = append(rows, row)
		}
		before = row
	}
	if !found {
		t.Fatalf("%s has no table with the columns %q", file, columns)
	}
	return rows
}

// cells returns the cells of a line of a table, or nil for any other line.
func cells(line string) []string {
	line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
	line, ended := strings.CutSuffix(line, "|")
	if !isRow || !ended {
		return nil
	}
	row := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
	for i := range row {
		row[i] = strings.ReplaceAll(strings.TrimSpace(row[i]), "\x00", "|")
	}
	return row
}

var ruleCell = regexp.MustCompile(`^:?-+:?$`)

// isRule reports whether the cells are the separator line of a table, such as |---|.
func isRule(row []string) bool {
	return !slices.ContainsFunc(row, func(cell string) bool { return !ruleCell.MatchString(cell) })
}

var code = regexp.MustCompile("`([^`]+)`")

// Code returns the inline code of the text, in order. The text must have no fenced
// code blocks.
func Code(text string) []string {
	var out []string
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}
