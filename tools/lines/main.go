// Command lines prints how much of the repository is product, test support,
// tests and documentation. It counts the files that git tracks, in lines with
// code and lines with only a comment; blank lines count for neither.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lines:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	dir := strings.TrimSuffix(root, "\n")
	names, err := git(ctx, "-C", dir, "ls-files", "-z")
	if err != nil {
		return err
	}
	var t totals
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		if k, _ := kindOf(name); k == uncounted {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted but not yet committed
		}
		if err != nil {
			return err
		}
		if err := t.add(name, text); err != nil {
			return err
		}
	}
	return t.write(w)
}

// git runs git and returns its standard output.
func git(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out), nil
}

// sum has the counts of the files of one kind or of one folder.
type sum struct {
	files int
	goLines
	lines, words int // of text other than Go
}

// totals has the sums of a repository. Its zero value is an empty repository.
type totals struct {
	kinds   [generated + 1]sum
	folders map[string]sum // of the product, by top-level folder
}

// add counts one file.
func (t *totals) add(name string, text []byte) error {
	k, folder := kindOf(name)
	one := sum{files: 1}
	switch k {
	case uncounted:
		return nil
	case doc, otherMarkdown, generated:
		one.lines, one.words = countText(text)
	default:
		var err error
		if one.goLines, err = countGo(name, text); err != nil {
			return err
		}
	}
	t.kinds[k] = t.kinds[k].plus(one)
	if k == product {
		if t.folders == nil {
			t.folders = map[string]sum{}
		}
		t.folders[folder] = t.folders[folder].plus(one)
	}
	return nil
}

func (s sum) plus(o sum) sum {
	return sum{s.files + o.files, goLines{s.code + o.code, s.comment + o.comment}, s.lines + o.lines, s.words + o.words}
}

// write prints the sums as two aligned tables: of Go, and of everything else.
func (t *totals) write(w io.Writer) error {
	var b strings.Builder
	row := func(name string, s sum) { fmt.Fprintf(&b, "%-14s %6d %8d %8d\n", name, s.files, s.code, s.comment) }
	fmt.Fprintf(&b, "%-14s %6s %8s %8s\n", "Go", "files", "code", "comment")
	row("product", t.kinds[product])
	bySize := func(a, b string) int {
		return cmp.Or(cmp.Compare(t.folders[b].code, t.folders[a].code), cmp.Compare(a, b))
	}
	for _, folder := range slices.SortedFunc(maps.Keys(t.folders), bySize) {
		row("  "+cmp.Or(folder, "."), t.folders[folder])
	}
	row("test support", t.kinds[support])
	row("bench", t.kinds[benchmark])
	row("tools", t.kinds[tool])
	row("tests", t.kinds[test])

	text := func(name string, s sum) { fmt.Fprintf(&b, "%-14s %6d %8d %8d\n", name, s.files, s.lines, s.words) }
	fmt.Fprintf(&b, "\n%-14s %6s %8s %8s\n", "Text", "files", "lines", "words")
	text("docs/*.md", t.kinds[doc])
	text("other Markdown", t.kinds[otherMarkdown])
	text("generated", t.kinds[generated])
	_, err := io.WriteString(w, b.String())
	return err
}
