package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultsPageNamesTests holds docs/FAULTS.md to the tests that it names.
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
	named := regexp.MustCompile("`(Test[A-Za-z]+)").FindAllStringSubmatch(string(page), -1)
	if len(named) == 0 {
		t.Fatal("the page names no test")
	}
	for _, m := range named {
		if !strings.Contains(code.String(), "func "+m[1]+"(t *testing.T)") {
			t.Errorf("docs/FAULTS.md names %s, which is not there", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\nfunc (Test[A-Za-z]+)\(`).FindAllStringSubmatch(code.String(), -1) {
		if !strings.Contains(string(page), "`"+m[1]) {
			t.Errorf("docs/FAULTS.md does not name %s", m[1])
		}
	}
}
