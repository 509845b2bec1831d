package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"strings"
)

// goLines has the number of lines of Go source, without blank lines.
type goLines struct {
	code    int // lines with a token; each line of a raw string counts
	comment int // lines with a comment and no token
}

// countGo counts the lines of one Go file. A line with code and a comment is a code
// line. It returns an error that contains name if the source is not valid Go.
func countGo(name string, src []byte) (goLines, error) {
	var s scanner.Scanner
	var failed scanner.ErrorList
	file := token.NewFileSet().AddFile(name, -1, len(src))
	s.Init(file, src, failed.Add, scanner.ScanComments)
	code, comment := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the scanner inserted this semicolon
		}
		lines := code
		if tok == token.COMMENT {
			lines = comment
		}
		// PositionFor with false ignores line directives; file.Line would follow them. The
		// scanner removes carriage returns from text, so its newlines match the source.
		first := file.PositionFor(pos, false).Line
		for n := range 1 + strings.Count(text, "\n") {
			lines[first+n] = true
		}
	}
	if err := failed.Err(); err != nil {
		return goLines{}, fmt.Errorf("scan: %w", err)
	}
	both := 0
	for line := range comment {
		if code[line] {
			both++
		}
	}
	return goLines{code: len(code), comment: len(comment) - both}, nil
}

// countText counts the lines and words of a text as wc does: white space separates the
// words.
func countText(text []byte) (lines, words int) {
	return bytes.Count(text, []byte("\n")), len(bytes.Fields(text))
}

// kind is the purpose of a file of the repository.
type kind int

const (
	uncounted kind = iota
	product
	support
	benchmark
	tool
	test
	doc
	otherMarkdown
	generated
)

// kindOf returns the kind of a file and its top-level folder. name is the path from the
// root of the repository. The folder is "" for a file in the root itself.
func kindOf(name string) (kind, string) {
	top, _, below := strings.Cut(name, "/")
	if !below {
		top = ""
	}
	ext := path.Ext(name)
	switch {
	case ext == ".md" && top == "docs":
		return doc, top
	case ext == ".md":
		return otherMarkdown, top
	case top == "docs":
		return generated, top
	case ext != ".go":
		return uncounted, top
	case strings.HasSuffix(name, "_test.go"):
		return test, top
	case top == "bench":
		return benchmark, top
	case top == "tools":
		return tool, top
	case forTests(path.Dir(name)):
		return support, top
	}
	return product, top
}

// forTests reports whether only tests run the code in the folder dir.
func forTests(dir string) bool {
	for folder := range strings.SplitSeq(dir, "/") {
		if strings.HasSuffix(folder, "test") {
			return true
		}
	}
	return false
}
