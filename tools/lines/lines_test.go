package main

import (
	"strings"
	"testing"
)

func TestCountGo(t *testing.T) {
	tests := []struct {
		name, src     string
		code, comment int
	}{
		{"empty file", "", 0, 0},
		{"blank lines do not count", "package a\n\n\n\nvar x int\n", 2, 0},
		{"last line without a newline", "package a\nvar x int", 2, 0},
		{"comment on its own line", "// Package a is one.\npackage a\n", 1, 1},
		{"comment after code", "package a // is one\n", 1, 0},
		{"block comment with a blank line", "/*\none\n\ntwo\n*/\npackage a\n", 1, 5},
		{"code before and after a block comment", "package a\nvar x /* one\ntwo\nthree */ int\n", 3, 1},
		{"directive", "//go:build linux\n\npackage a\n", 1, 1},
		{"raw string with a blank line", "package a\nconst x = `one\n\n// two\n`\n", 5, 0},
		{"braces are code", "package a\nfunc f() {\n}\n", 3, 0},
		{"comment sign in a string", "package a\nconst x = \"// no\"\n", 2, 0},
		{"carriage returns", "package a\r\n// one\r\nconst x = `a\r\nb`\r\n", 3, 1},
		{"line directive does not change the count", "package a\n//line other.go:1\nvar x int\nvar y int\n", 3, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := countGo("a.go", []byte(test.src))
			if err != nil {
				t.Fatal(err)
			}
			if want := (goLines{test.code, test.comment}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestCountGoRefusesInvalidGo(t *testing.T) {
	_, err := countGo("a/b.go", []byte("package a\nconst x = \"one\n"))
	if err == nil || !strings.Contains(err.Error(), "a/b.go:2") {
		t.Errorf("got %v, want an error that names a/b.go:2", err)
	}
}

func TestCountText(t *testing.T) {
	if lines, words := countText([]byte("# One\n\ntwo  three\n")); lines != 3 || words != 4 {
		t.Errorf("got %d lines and %d words, want 3 and 4", lines, words)
	}
}

func TestKindOf(t *testing.T) {
	tests := []struct {
		name   string
		kind   kind
		folder string
	}{
		{"pkg/job/job.go", product, "pkg"},
		{"pkg/job/testdata.go", product, "pkg"},
		{"runner/main.go", product, "runner"},
		{"doc.go", product, ""},
		{"pkg/job/job_test.go", test, "pkg"},
		{"arch_test.go", test, ""},
		{"bench/stats_test.go", test, "bench"},
		{"pkg/queue/queuetest/memory.go", support, "pkg"},
		{"pkg/queue/queuetest/memory_test.go", test, "pkg"},
		{"runner/executor/executortest/step/main.go", support, "runner"},
		{"test/soak/account/account.go", support, "test"},
		{"bench/toolclock/main.go", benchmark, "bench"},
		{"tools/tofu/main.go", tool, "tools"},
		{"docs/contributing/benchmarks.md", doc, "docs"},
		{"docs/openapi/control.yaml", generated, "docs"},
		{"README.md", otherMarkdown, ""},
		{"examples/shop/README.md", otherMarkdown, "examples"},
		{"examples/shop/fairlead.yaml", uncounted, "examples"},
		{"Makefile", uncounted, ""},
	}
	for _, test := range tests {
		if k, folder := kindOf(test.name); k != test.kind || folder != test.folder {
			t.Errorf("kindOf(%q) = %d, %q; want %d, %q", test.name, k, folder, test.kind, test.folder)
		}
	}
}

func TestTotals(t *testing.T) {
	var all totals
	for name, text := range map[string]string{
		"runner/a.go":      "package a\n",
		"pkg/a/a.go":       "package a\n\nvar x int\n",
		"pkg/a/b.go":       "// Package a is one.\npackage a\n",
		"pkg/a/a_test.go":  "package a\n",
		"docs/A.md":        "# A\n\ntwo words\n",
		"docs/schema.json": "{}\n",
		"go.mod":           "module a\n",
	} {
		if err := all.add(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := all.write(&b); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Go files code comment", "product 3 4 1", "pkg 2 3 1", "runner 1 1 0", "test support 0 0 0", "bench 0 0 0", "tools 0 0 0", "tests 1 1 0", "",
		"Text files lines words", "docs/*.md 1 3 4", "other Markdown 0 0 0", "generated 1 1 1",
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", b.String())
	}
}
