package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"strings"
)

// goLines is how many lines of Go source there are, without blank ones.
type goLines struct {
	code    int // lines with a token; each line of a raw string is one
	comment int // lines with a comment and no token
}

// countGo counts the lines of one Go file. A line with code and a comment is a
// code line. It returns an error if the source cannot be scanned; name is for
// that error.
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
			continue // the scanner inserts it
		}
		lines := code
		if tok == token.COMMENT {
			lines = comment
		}
		// file.Line follows line directives; PositionFor with false does not. The
		// text has no carriage returns, so its newlines are the source's.
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

// countText counts the lines of a text as wc does, and its words: what white
// space separates.
func countText(text []byte) (lines, words int) {
	return bytes.Count(text, []byte("\n")), len(bytes.Fields(text))
}

// kind is what a file of the repository is for.
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

// kindOf tells the kind of a file by its path below the root of the repository,
// and the top-level folder that holds it, "" for a file in the root itself.
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

// forTests reports whether a folder holds code that only tests run.
func forTests(dir string) bool {
	for folder := range strings.SplitSeq(dir, "/") {
		if strings.HasSuffix(folder, "test") {
			return true
		}
	}
	return false
}
