package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsPageNamesTests: every test of faults here is on the page. That what
// the page names is there, a test at the root sees to.
func TestFaultsPageNamesTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	files, err := filepath.Glob("*_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	for _, m := range regexp.MustCompile(`\nfunc (Test[A-Za-z]+)\(`).FindAllStringSubmatch(code.String(), -1) {
		if !strings.Contains(string(page), "`"+m[1]) {
			t.Errorf("docs/FAULTS.md does not name %s", m[1])
		}
	}
}
