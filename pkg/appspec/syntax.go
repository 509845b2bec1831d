package appspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The limits within which a module's file is parsed. The parser and the walkers of its tree recurse for each bracket
// and operator: without limits, a file of a million brackets would crash the program.
const (
	maxNesting    = 100   // brackets that are open at a time
	maxOperators  = 10000 // operators between two places of the file where no bracket is open
	maxFileErrors = 5     // problems reported for one file: one mistake often causes several problems
)

// moduleReader reads the module of one component and the app's modules that it calls. All of them share the limits.
type moduleReader struct {
	fsys        fs.FS
	root, shown string // the component's folder: resolved, and as the author wrote it
	size, files int    // bytes and files that may still be read
	problems    Problems
}

// read reads the module whose files are names, in dir.
func (r *moduleReader) read(dir string, names []string) (module, error) {
	m := module{variables: map[string]bool{}, outputs: map[string]bool{}}
	if r.files -= len(names); r.files < 0 {
		return m, errNotRead
	}
	var bodies []parsedFile
	complete := true
	for _, name := range names {
		real, err := follow(r.fsys, path.Join(dir, name))
		if err != nil {
			return m, errNotRead // the packer reports the file
		}
		src, err := readBounded(r.fsys, real, r.size)
		if err != nil {
			return m, errNotRead
		}
		r.size -= len(src)
		shown := r.show(dir, name)
		if strings.HasSuffix(name, ".json") {
			err := m.addJSON(src)
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				r.jsonProblem(shown, src, syntax)
			}
			complete = complete && err == nil
			if err == nil { // addJSON succeeded, which bounds the depth
				body, _ := tfmodule.Parse(name, src)
				r.checkBackend(dir, name, body)
			}
			continue
		}
		tokens, _ := hclsyntax.LexConfig(src, "", hcl.InitialPos) // the parser reports invalid tokens
		m.addHCL(tokens)
		if !shallow(tokens) {
			continue
		}
		body, ok := r.parse(shown, src)
		complete = complete && ok
		if body != nil {
			r.checkBackend(dir, name, body)
			bodies = append(bodies, parsedFile{shown, body})
		}
	}
	if complete {
		for _, f := range bodies {
			r.checkVariables(f, m)
		}
	}
	if !complete {
		return m, errNotRead
	}
	return m, nil
}

// checkBackend reports an override file of the component that sets a backend. The runner sets the backend itself and
// refuses a module with such a file. In files that are not overrides, a backend is allowed.
func (r *moduleReader) checkBackend(dir, name string, body hcl.Body) {
	if dir != r.root || !tfmodule.Override(name) {
		return
	}
	if at, found := tfmodule.Backend(body); found {
		r.report(r.show(dir, name), at.Start, "backend-override", "the override file sets a backend, but the runner must set it",
			"Remove the file from the app's folder, or move the block into a file that is not an override: there the runner replaces it.")
	}
}

// show returns the path of a file as the author would write it.
func (r *moduleReader) show(dir, name string) string {
	if below, ok := strings.CutPrefix(dir+"/", r.root+"/"); ok || r.root == "." {
		return path.Join(r.shown, below, name)
	}
	return path.Join(dir, name)
}

type parsedFile struct {
	shown string
	body  *hclsyntax.Body
}

func (r *moduleReader) report(file string, at hcl.Pos, code, message, hint string) {
	r.problems = append(r.problems, Problem{
		File: yamlnode.Printable(file), Line: max(1, at.Line), Column: max(1, at.Column), Code: code, Message: message, Hint: hint,
	})
}

// parse reads a file within the limits. ok is false if the file is broken; body is nil if the file could not be parsed.
func (r *moduleReader) parse(shown string, src []byte) (body *hclsyntax.Body, ok bool) {
	file, diags := hclsyntax.ParseConfig(src, shown, hcl.InitialPos)
	count := 0
	for _, d := range diags {
		if d.Severity != hcl.DiagError || d.Subject == nil {
			continue
		}
		if count++; count <= maxFileErrors {
			r.report(shown, d.Subject.Start, "malformed-module", lowerFirst(yamlnode.Printable(d.Summary)), yamlnode.Printable(d.Detail))
		}
	}
	if diags.HasErrors() {
		return nil, false
	}
	body, _ = file.Body.(*hclsyntax.Body) // ParseConfig documents this type
	return body, r.checkBlocks(shown, body)
}

func lowerFirst(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToLower(s[:size]) + s[size:]
}

// shallow reports whether a file is within the limits for the parser.
func shallow(tokens hclsyntax.Tokens) bool {
	depth, operators := 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOHeredoc, hclsyntax.TokenOQuote:
			depth++
			operators++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCHeredoc, hclsyntax.TokenCQuote:
			depth--
		case hclsyntax.TokenNewline:
			if depth <= 0 {
				depth, operators = 0, 0
			}
		case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit, hclsyntax.TokenComment, hclsyntax.TokenComma, hclsyntax.TokenEOF:
		default:
			operators++
		}
		if depth > maxNesting || operators > maxOperators {
			return false
		}
	}
	return true
}

// labels maps each block type that every version of the tools supports to its labels. Newer versions may have more
// block types.
var labels = map[string][]string{
	"resource": {"type", "name"}, "data": {"type", "name"},
	"module": {"name"}, "variable": {"name"}, "output": {"name"}, "provider": {"name"},
	"locals": {}, "terraform": {},
}

// checkBlocks reports arguments and blocks that are invalid at the top level of a file.
func (r *moduleReader) checkBlocks(shown string, body *hclsyntax.Body) (ok bool) {
	before := len(r.problems)
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		r.report(shown, body.Attributes[name].NameRange.Start, "malformed-module", fmt.Sprintf("the argument %s is outside of any block", yamlnode.Quote(name)),
			"Put it into a block, such as locals.")
	}
	for _, b := range body.Blocks {
		want, known := labels[b.Type]
		if !known || len(b.Labels) == len(want) {
			continue
		}
		form := b.Type
		for _, label := range want {
			form += fmt.Sprintf(" %q", strings.ToUpper(label))
		}
		r.report(shown, b.TypeRange.Start, "malformed-module", fmt.Sprintf("the block %s has %s, and needs %s", b.Type, count(len(b.Labels)), count(len(want))),
			fmt.Sprintf("Write: %s { … }", form))
	}
	return len(r.problems) == before
}

func count(n int) string {
	switch n {
	case 0:
		return "no label"
	case 1:
		return "1 label"
	}
	return fmt.Sprintf("%d labels", n)
}

// jsonProblem reports a syntax error of a file in JSON syntax.
func (r *moduleReader) jsonProblem(shown string, src []byte, syntax *json.SyntaxError) {
	before := string(src[:min(len(src), max(0, int(syntax.Offset)-1))])
	line := strings.LastIndexByte(before, '\n') + 1
	r.report(shown, hcl.Pos{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(before[line:])},
		"malformed-module", "the file is not JSON here: "+yamlnode.Printable(syntax.Error()), "")
}

// checkVariables reports references to variables that the module does not declare.
func (r *moduleReader) checkVariables(f parsedFile, m module) {
	declared := slices.Collect(maps.Keys(m.variables))
	reported := map[string]bool{}
	r.eachExpression(f.body, func(e hclsyntax.Expression) {
		for _, t := range e.Variables() {
			if len(t) < 2 || t.RootName() != "var" {
				continue
			}
			attr, ok := t[1].(hcl.TraverseAttr)
			if _, known := m.variables[attr.Name]; !ok || known || reported[attr.Name] || len(reported) == maxFileErrors {
				continue
			}
			reported[attr.Name] = true
			hint := yamlnode.DidYouMean(attr.Name, "variables", declared)
			if yamlnode.Nearest(attr.Name, declared) == "" {
				hint = fmt.Sprintf("Declare it: variable %q {}", attr.Name)
			}
			r.report(f.shown, t.SourceRange().Start, "undeclared-variable", fmt.Sprintf("the module declares no variable %s", yamlnode.Quote(attr.Name)), hint)
		}
	})
}

// eachExpression calls f with each argument that the tools evaluate as an expression, in the order of the file. It
// skips arguments that name attributes, and blocks in which var may not refer to the module's variables.
func (r *moduleReader) eachExpression(body *hclsyntax.Body, f func(hclsyntax.Expression)) {
	var attrs []*hclsyntax.Attribute
	for name, attr := range body.Attributes {
		if name != "ignore_changes" && name != "replace_triggered_by" {
			attrs = append(attrs, attr)
		}
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	for _, attr := range attrs {
		f(attr.Expr)
	}
	for _, b := range body.Blocks {
		if b.Type == "dynamic" && (slices.Contains(b.Labels, "var") || b.Body.Attributes["iterator"] != nil) {
			continue
		}
		r.eachExpression(b.Body, f)
	}
}
