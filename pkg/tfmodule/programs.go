package tfmodule

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Program is a construct of a module that makes the tool, or one of its providers, start a program or send one to a machine.
type Program struct {
	Kind string // of a provisioner, such as local-exec; External
	At   string // file and line
}

// External is the kind of the constructs that start a program and are no provisioner: the data source of this name, the key
// providers and methods of this name in the encryption of a state, and the block exec of a provider.
const External = "external"

// Survey collects from the files of modules what a policy judges before a tool reads the files. It reads each file with an
// extension of a module: OpenTofu, Terraform and their versions read different ones of them.
type Survey struct {
	Calls    []Call // with a constant source
	Programs []Program
	Unclear  []string // what could not be read, with file and line: a tool may understand more than this version
}

// maxNesting bounds the nesting of brackets in a file. The parser recurses.
const maxNesting = 500

func block(kind string, labels ...string) hcl.BlockHeaderSchema {
	return hcl.BlockHeaderSchema{Type: kind, LabelNames: labels}
}

// moduleSchema has all that a file of a module can have at its top. Content reports anything else.
func moduleSchema() *hcl.BodySchema {
	return &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		block("terraform"), block("provider", "name"), block("resource", "type", "name"), block("data", "type", "name"), block("ephemeral", "type", "name"),
		block("module", "name"), block("variable", "name"), block("output", "name"), block("locals"), block("moved"), block("import"), block("removed"), block("check", "name"),
	}}
}

// Read adds the content of a file with the extension of a module. name is used in places.
func (s *Survey) Read(name string, src []byte) {
	if nesting(src) > maxNesting || strings.HasSuffix(name, ".json") && !stdjson.Valid(src) { // Valid also limits the depth
		s.unclear("%s cannot be read", name)
		return
	}
	body, diags := Parse(name, src)
	if body == nil || diags.HasErrors() {
		s.unclear("%s cannot be read", name)
		return
	}
	top, diags := body.Content(moduleSchema())
	if diags.HasErrors() {
		s.unclear("%s has a construct that this runner does not know", place(name, diags))
	}
	for _, b := range top.Blocks {
		switch b.Type {
		case "resource", "removed":
			for _, p := range s.blocks(b.Body, block("provisioner", "type")) {
				s.program(p.Labels[0], p.DefRange)
			}
		case "data", "ephemeral":
			s.data(b)
		case "check":
			for _, d := range s.blocks(b.Body, block("data", "type", "name")) {
				s.data(d)
			}
		case "provider":
			s.exec(b.Body)
		case "terraform":
			for _, e := range s.blocks(b.Body, block("encryption")) {
				for _, k := range s.blocks(e.Body, block("key_provider", "type", "name"), block("method", "type", "name")) {
					if k.Labels[0] == External {
						s.program(External, k.DefRange)
					}
				}
			}
		case "module":
			s.call(b)
		}
	}
}

// call adds a call. One whose source is no constant is unclear: OpenTofu computes it from variables.
func (s *Survey) call(b *hcl.Block) {
	inner, _, diags := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}, {Name: "version"}}})
	source := inner.Attributes["source"]
	if diags.HasErrors() || source == nil {
		s.unclear("%s has no source", at(b.DefRange))
		return
	}
	c := Call{Name: b.Labels[0], At: source.NameRange.Start}
	var ok bool
	if c.Source, ok = textOf(source.Expr); !ok {
		s.unclear("%s has a source that is no constant", at(b.DefRange))
		return
	}
	if v := inner.Attributes["version"]; v != nil {
		c.Version, _ = textOf(v.Expr)
	}
	s.Calls = append(s.Calls, c)
}

func (s *Survey) data(b *hcl.Block) {
	if b.Labels[0] == External {
		s.program(External, b.DefRange)
	}
}

// exec finds the blocks exec of a provider's configuration, which start a program for a login. A provider of charts has them in
// its block kubernetes.
func (s *Survey) exec(body hcl.Body) {
	for _, b := range s.blocks(body, block("exec"), block("kubernetes")) {
		if b.Type == "exec" {
			s.program(External, b.DefRange)
			continue
		}
		for _, e := range s.blocks(b.Body, block("exec")) {
			s.program(External, e.DefRange)
		}
	}
	// Newer providers have an attribute of this name with an object.
	inner, _, _ := body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "kubernetes"}, {Name: "exec"}}})
	for _, a := range inner.Attributes {
		pairs, diags := hcl.ExprMap(a.Expr)
		if a.Name == "exec" || diags.HasErrors() {
			s.program(External, a.NameRange)
			continue
		}
		for _, pair := range pairs {
			if key, ok := keyOf(pair.Key); !ok || key == "exec" {
				s.program(External, a.NameRange)
			}
		}
	}
}

// keyOf returns the key of an object's entry: a name, or a text.
func keyOf(expr hcl.Expression) (string, bool) {
	if name := hcl.ExprAsKeyword(expr); name != "" {
		return name, true
	}
	return textOf(expr)
}

// blocks returns the blocks of a body with these headers.
func (s *Survey) blocks(body hcl.Body, headers ...hcl.BlockHeaderSchema) hcl.Blocks {
	inner, _, diags := body.PartialContent(&hcl.BodySchema{Blocks: headers})
	if diags.HasErrors() && !optionalShape(body, headers) {
		s.unclear("%s cannot be read", place("a file", diags))
	}
	return inner.Blocks
}

// optionalShape reports whether a body has an attribute where a block was looked for, which is another way to write it. exec
// reads the attribute.
func optionalShape(body hcl.Body, headers []hcl.BlockHeaderSchema) bool {
	var schema hcl.BodySchema
	for _, h := range headers {
		if len(h.LabelNames) > 0 {
			return false
		}
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: h.Type})
	}
	inner, _, _ := body.PartialContent(&schema)
	return len(inner.Attributes) > 0
}

func (s *Survey) program(kind string, r hcl.Range) {
	s.Programs = append(s.Programs, Program{Kind: kind, At: at(r)})
}

func (s *Survey) unclear(format string, args ...any) {
	s.Unclear = append(s.Unclear, fmt.Sprintf(format, args...))
}

func at(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// place returns the place of the first of the diagnostics.
func place(file string, diags hcl.Diagnostics) string {
	if diags[0].Subject == nil {
		return file
	}
	return at(*diags[0].Subject)
}

// nesting returns an upper bound of the nesting of brackets. Brackets in texts count too.
func nesting(src []byte) int {
	depth, deepest := 0, 0
	for _, b := range src {
		switch b {
		case '{', '[', '(':
			depth++
			deepest = max(deepest, depth)
		case '}', ']', ')':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

// Remote returns the sources of the calls that are no paths, sorted and each once, in a canonical notation: git::URL,
// HOST/NAMESPACE/NAME/SYSTEM, the URL of an archive. A source of a kind that is not known is as it is written.
func (s *Survey) Remote() []string {
	var all []string
	for _, c := range s.Calls {
		if !c.Local() {
			all = append(all, CanonicalSource(c.Source))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// CanonicalSource returns a source of another place without its ref, folder and version. Equal places have equal texts: no
// spelling of a repository evades a list of repositories.
func CanonicalSource(text string) string {
	s, err := ParseSource(text)
	if err != nil {
		return text
	}
	switch s.Kind {
	case FromGit:
		return "git::" + s.Address
	case FromRegistry:
		return s.Host + "/" + s.Address
	case FromArchive:
		return s.Address
	}
	return text
}
