// Package tfmodule reads the files of a module's folder as OpenTofu and Terraform do:
// which files belong to the module, which replace others, which set a backend, and
// which modules they call. It implements the tools' own rules, so that it misses no
// name or spelling that they understand.
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

// Ext returns the extension that makes a file part of a module: .tf, .tofu, .tf.json or
// .tofu.json. It is "" for all other files, for hidden files and for backup files of
// editors.
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

// Override reports whether the tools read the file as an override. The blocks and
// arguments of an override replace the blocks and arguments of other files.
func Override(name string) bool {
	stem := Stem(name)
	return Ext(name) != "" && (stem == "override" || strings.HasSuffix(stem, "_override"))
}

// Effective returns the files of a folder that OpenTofu reads, sorted. A file with an
// extension of OpenTofu replaces the file of the same stem with Terraform's extension.
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

// Backend returns the place of the block that sets a backend. found is false if there is
// no such block. Backend ignores parts that it cannot read; the tools cannot read these
// parts either.
func Backend(body hcl.Body) (at hcl.Range, found bool) {
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

// Call is a module call whose source is constant.
type Call struct {
	Name    string // label of the block
	Source  string // value of the source: without quotes and escapes
	Version string // the constraint on the version, without quotes and escapes; "": none, or it is not constant
	At      hcl.Pos
}

// Local reports whether the tools read the source as a path, relative to the folder of
// the calling module.
func (c Call) Local() bool {
	return strings.HasPrefix(c.Source, "./") || strings.HasPrefix(c.Source, "../")
}

// maxSource is the maximum length of a source expression, in bytes. The parser
// recurses, so its input must be limited. No path is longer than this limit.
const maxSource = 4096

// Calls returns the module calls of a file, in order. It leaves out calls whose source
// is not constant, and parts that it cannot read.
//
// In a file in HCL syntax it reads only the tokens, so that no deep nesting can hide a
// call.
func Calls(name string, src []byte) []Call {
	if strings.HasSuffix(name, ".json") {
		return jsonCalls(name, src)
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser reports invalid tokens
	var calls []Call
	var block Call // the open block
	Walk(tokens, func(kind, label, argument string, at hclsyntax.Tokens) {
		switch {
		case kind != "module":
		case argument == "":
			block = Call{Name: label}
		case argument == "version":
			block.Version, _ = constant(src, at[2:])
			if n := len(calls); n > 0 && calls[n-1].At == block.At && block.Source != "" {
				calls[n-1].Version = block.Version // the version follows the source
			}
		case argument == "source":
			var ok bool
			if block.Source, ok = constant(src, at[2:]); ok {
				block.At = at[0].Range.Start
				calls = append(calls, block)
			}
		}
	})
	return calls
}

// Walk calls visit for each top-level block with one label, with argument "", and then
// for each argument directly in the block. at begins at the type of the block or at the
// name of the argument.
func Walk(tokens hclsyntax.Tokens, visit func(kind, label, argument string, at hclsyntax.Tokens)) {
	depth := 0
	var kind, name string // type and label of the open block, at depth 1
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

// label returns the label of a block that has exactly one label. tokens begin after the
// block's type.
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

// constant returns the value of a string expression without variables and functions.
// The expression ends at the end of a line outside of brackets, or at the end of the
// block.
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
	value, diags := expr.Value(&hcl.EvalContext{}) // without a context, a template in JSON would be literal text
	if diags.HasErrors() || value.Type() != cty.String || value.IsNull() || !value.IsKnown() {
		return "", false
	}
	return value.AsString(), true
}

func jsonCalls(name string, src []byte) []Call {
	if !stdjson.Valid(src) { // Valid also limits the depth
		return nil
	}
	body, _ := Parse(name, src)
	if body == nil {
		return nil
	}
	top, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "module", LabelNames: []string{"name"}}}})
	var calls []Call
	for _, b := range top.Blocks {
		inner, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "version"}}})
		attr := inner.Attributes["source"]
		if attr == nil {
			continue
		}
		if source, ok := textOf(attr.Expr); ok {
			c := Call{Name: b.Labels[0], Source: source, At: attr.NameRange.Start}
			if v := inner.Attributes["version"]; v != nil {
				c.Version, _ = textOf(v.Expr)
			}
			calls = append(calls, c)
		}
	}
	return calls
}
