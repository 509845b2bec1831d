package fairlead_test

import (
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// TestRelativeLinksHaveTargets follows every relative link of every tracked Markdown
// file. It checks that the target file exists and has the heading that the link names.
func TestRelativeLinksHaveTargets(t *testing.T) {
	pages := map[string]markdown{}
	read := func(file string) markdown {
		if _, ok := pages[file]; !ok {
			pages[file] = readMarkdown(t, file)
		}
		return pages[file]
	}
	links := 0
	for _, file := range trackedText(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		for _, link := range read(file).links {
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: the link %q is not a URL: %v", file, link, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			links++
			target := file
			if u.Path != "" {
				target = path.Join(path.Dir(file), u.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %q leads to %s, which does not exist", file, link, target)
			} else if u.Fragment != "" && strings.HasSuffix(target, ".md") && !read(target).anchors[u.Fragment] {
				t.Errorf("%s: the link %q names a heading that %s does not have", file, link, target)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links, want at least 100", links)
	}
}

// markdown has the links of a page and the anchors for links to it.
type markdown struct {
	links   []string
	anchors map[string]bool // anchors of headings, by GitHub's rules, and of <a id="...">
}

var (
	explicitAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_\- ]`)
)

func readMarkdown(t *testing.T, file string) markdown {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		if os.IsNotExist(err) { // deleted but not yet committed
			return markdown{}
		}
		t.Fatal(err)
	}
	page := markdown{anchors: map[string]bool{}}
	for _, m := range explicitAnchor.FindAllSubmatch(source, -1) {
		page.anchors[string(m[1])] = true
	}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	if err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			page.links = append(page.links, string(n.Destination))
		case *ast.Image:
			page.links = append(page.links, string(n.Destination))
		case *ast.Heading:
			heading := strings.ToLower(string(n.Lines().Value(source)))
			heading = regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(heading, "")
			page.anchors[strings.ReplaceAll(notInAnchor.ReplaceAllString(heading, ""), " ", "-")] = true
		}
		return ast.WalkContinue, nil
	}); err != nil {
		t.Fatal(err)
	}
	return page
}
