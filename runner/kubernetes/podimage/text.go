package podimage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// separator is where Helm splits a rendered file into documents.
var separator = pattern.New(`(?m)^---[ \t]*`)

// Text returns a text of YAML documents in which the images are replaced. All other bytes stay as they are: another program has
// rendered them, and compares them later. An image that nothing replaces stays. The error is of a document that cannot be read.
func (r *Replacement) Text(text string) (string, error) {
	var out strings.Builder
	begin := 0
	for _, at := range append(separator.Regexp().FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		doc, err := r.document(text[begin:at[0]])
		if err != nil {
			return "", err
		}
		out.WriteString(doc)
		out.WriteString(text[at[0]:at[1]])
		begin = at[1]
	}
	return out.String(), nil
}

// edit is a part of a text and what replaces it.
type edit struct {
	begin, end int
	text       string
}

func (r *Replacement) document(text string) (string, error) {
	if !strings.Contains(text, "image") { // each path to an image has this field
		return text, nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return "", err
	}
	lines := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			lines = append(lines, i+1)
		}
	}
	var edits []edit
	var wrong error
	visit := func(n *yaml.Node) {
		value := n
		if n.Kind == yaml.AliasNode {
			value = n.Alias
		}
		if value.Kind != yaml.ScalarNode || value.Value == "" {
			return
		}
		to, ok := r.Of(value.Value)
		if !ok || to == value.Value {
			return
		}
		begin, end, ok := span(text, lines, n)
		if !ok {
			wrong = fmt.Errorf("the image %s in line %d cannot be replaced: write it as a text in one line, without an anchor", value.Value, n.Line)
			return
		}
		edits = append(edits, edit{begin, end, strconv.Quote(to)})
	}
	walk(&root, visit)
	if wrong != nil {
		return "", wrong
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.begin - a.begin })
	for i, e := range edits {
		if i > 0 && e.begin == edits[i-1].begin {
			continue // an alias stands for the map around it
		}
		text = text[:e.begin] + e.text + text[e.end:]
	}
	return text, nil
}

// walk calls visit for each image below a node, as bundle.EachImage does.
func walk(n *yaml.Node, visit func(*yaml.Node)) {
	if n.Kind == yaml.MappingNode {
		if kind := field(n, "kind"); kind != nil && kind.Value == bundle.Definition {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, list := n.Content[i].Value, resolved(n.Content[i+1])
			if list.Kind != yaml.SequenceNode {
				continue
			}
			path := bundle.ImageIn(key)
			for _, found := range list.Content {
				for _, name := range path {
					found = field(resolved(found), name)
				}
				if path != nil && found != nil {
					visit(found)
				}
			}
		}
	}
	for _, child := range n.Content {
		walk(child, visit)
	}
}

// resolved returns the node for which an alias stands.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// field returns the value of a key of a map; nil if the node is no map or has no such key.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// span returns the bytes of a scalar or an alias. ok is false if it is written in another form than in one line.
func span(text string, lines []int, n *yaml.Node) (begin, end int, ok bool) {
	if n.Line < 1 || n.Line > len(lines) {
		return 0, 0, false
	}
	begin = lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(text[begin:])
		begin += size
	}
	rest := text[begin:]
	form := n.Value
	switch {
	case n.Kind == yaml.AliasNode:
		form = "*" + n.Value
	case n.Style == yaml.DoubleQuotedStyle:
		form = `"` + n.Value + `"`
	case n.Style == yaml.SingleQuotedStyle:
		form = "'" + n.Value + "'"
	case n.Style != 0:
		return 0, 0, false
	}
	return begin, begin + len(form), n.Anchor == "" && strings.HasPrefix(rest, form)
}
