// Package tfmodule is how OpenTofu and Terraform read the files of a module's
// folder: which they are, which replace others, and which of them says where the
// state is. It has the tools' own rules, so that no name or spelling that they
// understand is missed.
package tfmodule

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
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
