// Package tfmodule is how OpenTofu and Terraform read the files of a module's
// folder: which they are, which replace others, which of them says where the
// state is, and which modules they call. It has the tools' own rules, so that no name or spelling that they
// understand is missed.
package tfmodule

import (
	stdjson "encoding/json"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
)

// Ext returns the extension by which the tools take a file for one of the module:
// .tf, .tofu, .tf.json or .tofu.json. It is "" for every other file, for hidden
// ones and for what editors leave.
func Ext(name string) string {
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return ""
	}
	for _, ext := range []string{".tf.json", ".tofu.json", ".tf", ".tofu"} {
		if strings.HasSuffix(name, ext) {
			return ext
		}
	}
	return ""
}

// Stem returns the name without its extension.
func Stem(name string) string { return strings.TrimSuffix(name, Ext(name)) }

// Override reports whether the tools read the file as an override: what it says
// replaces what other files say.
func Override(name string) bool {
	stem := Stem(name)
	return Ext(name) != "" && (stem == "override" || strings.HasSuffix(stem, "_override"))
}

// Effective returns those of a folder's files that OpenTofu reads, in order. A file
// of its own extension takes the place of one that is named alike otherwise.
func Effective(names []string) []string {
	var all []string
	for _, name := range names {
		ext := Ext(name)
		other := strings.Replace(ext, ".tf", ".tofu", 1)
		if ext != "" && (ext == other || !slices.Contains(names, Stem(name)+other)) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Parse parses a file of a module by its extension.
func Parse(name string, src []byte) (hcl.Body, hcl.Diagnostics) {
	if strings.HasSuffix(name, ".json") {
		f, diags := json.Parse(src, name)
		return bodyOf(f), diags
	}
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	return bodyOf(f), diags
}

func bodyOf(f *hcl.File) hcl.Body {
	if f == nil {
		return nil
	}
	return f.Body
}

// Backend returns where a file says where the state is, if it does. It says nothing
// of what it cannot read; nor can the tools.
func Backend(body hcl.Body) (at hcl.Range, says bool) {
	if body == nil {
		return hcl.Range{}, false
	}
	top, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "terraform"}}})
	for _, settings := range top.Blocks {
		inner, _, _ := settings.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
			{Type: "backend", LabelNames: []string{"type"}}, {Type: "cloud"}, {Type: "state_store", LabelNames: []string{"type"}},
		}})
		for _, b := range inner.Blocks {
			return b.DefRange, true
		}
	}
	return hcl.Range{}, false
}

// Call is one place where a file calls a module by a source that is known before
// the tool runs.
type Call struct {
	Name   string // of the block
	Source string // as the tool reads it: without quotes and escapes
	At     hcl.Pos
}

// Local reports whether the tools take the source for a path, from the folder of
// the module that has it.
func (c Call) Local() bool {
	return strings.HasPrefix(c.Source, "./") || strings.HasPrefix(c.Source, "../")
}

// maxSource is the longest expression of a source that is read, in bytes: the
// parser recurses, and no path is longer.
const maxSource = 4096

// Calls returns the modules that a file calls, in its order. It leaves out those
// whose source is no constant. It says nothing of what it cannot read.
//
// A file in the tools' own syntax is read by its tokens alone, so that nothing
// that is nested in it, however deep, hides a call.
func Calls(name string, src []byte) []Call {
	if strings.HasSuffix(name, ".json") {
		return jsonCalls(name, src)
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // what is no token is the parser's to report
	var calls []Call
	Walk(tokens, func(kind, label, argument string, at hclsyntax.Tokens) {
		if kind != "module" || argument != "source" {
			return
		}
		if source, ok := constant(src, at[2:]); ok {
			calls = append(calls, Call{Name: label, Source: source, At: at[0].Range.Start})
		}
	})
	return calls
}

// Walk calls visit for each block with one label at the top of a file, with no
// argument, and then for each argument that stands in it, with the tokens from
// its name on.
func Walk(tokens hclsyntax.Tokens, visit func(kind, label, argument string, at hclsyntax.Tokens)) {
	depth := 0
	var kind, name string // of the block that is open, at depth 1
	for i, tk := range tokens {
		switch tk.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			if depth--; depth == 0 {
				kind = ""
			}
		case hclsyntax.TokenIdent:
			if found, ok := label(tokens[i+1:]); depth == 0 && ok {
				kind, name = string(tk.Bytes), found
				visit(kind, name, "", tokens[i:])
			} else if depth == 1 && kind != "" && i+1 < len(tokens) && tokens[i+1].Type == hclsyntax.TokenEqual {
				visit(kind, name, string(tk.Bytes), tokens[i:])
			}
		}
	}
}

// label returns the label of a block with one label, whose tokens these are after
// its type.
func label(tokens hclsyntax.Tokens) (label string, ok bool) {
	if len(tokens) >= 4 && tokens[0].Type == hclsyntax.TokenOQuote && tokens[1].Type == hclsyntax.TokenQuotedLit &&
		tokens[2].Type == hclsyntax.TokenCQuote && tokens[3].Type == hclsyntax.TokenOBrace {
		return string(tokens[1].Bytes), true
	}
	if len(tokens) >= 2 && tokens[0].Type == hclsyntax.TokenIdent && tokens[1].Type == hclsyntax.TokenOBrace {
		return string(tokens[0].Bytes), true
	}
	return "", false
}

// constant returns the text that an expression is, if it needs nothing to be known
// for it. The expression ends where its line does outside of brackets, or where
// the block is closed.
func constant(src []byte, tokens hclsyntax.Tokens) (string, bool) {
	if len(tokens) == 0 {
		return "", false
	}
	depth, end := 0, tokens[0].Range.Start.Byte
	for _, tk := range tokens {
		switch tk.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		if depth < 0 || depth == 0 && (tk.Type == hclsyntax.TokenNewline || tk.Type == hclsyntax.TokenComment) || tk.Type == hclsyntax.TokenEOF {
			break
		}
		end = tk.Range.End.Byte
	}
	text := src[tokens[0].Range.Start.Byte:end]
	if len(text) > maxSource {
		return "", false
	}
	expr, diags := hclsyntax.ParseExpression(text, "", hcl.InitialPos)
	if diags.HasErrors() {
		return "", false
	}
	return textOf(expr)
}

func textOf(expr hcl.Expression) (string, bool) {
	value, diags := expr.Value(&hcl.EvalContext{}) // with none, a template in JSON is its own text
	if diags.HasErrors() || value.Type() != cty.String || value.IsNull() || !value.IsKnown() {
		return "", false
	}
	return value.AsString(), true
}

func jsonCalls(name string, src []byte) []Call {
	if !stdjson.Valid(src) { // which bounds how deep it is
		return nil
	}
	body, _ := Parse(name, src)
	if body == nil {
		return nil
	}
	top, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "module", LabelNames: []string{"name"}}}})
	var calls []Call
	for _, b := range top.Blocks {
		inner, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}}})
		attr := inner.Attributes["source"]
		if attr == nil {
			continue
		}
		if source, ok := textOf(attr.Expr); ok {
			calls = append(calls, Call{Name: b.Labels[0], Source: source, At: attr.NameRange.Start})
		}
	}
	return calls
}
