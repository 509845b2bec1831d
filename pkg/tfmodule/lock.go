package tfmodule

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// LockFile is the name of the file in which the tools lock the providers of a root module.
const LockFile = ".terraform.lock.hcl"

// Provider is a provider of a lock file.
type Provider struct {
	Address string   // such as registry.opentofu.org/hashicorp/aws
	Version string   // such as 5.100.0
	Hashes  []string // sorted; of the provider's packages, each with its scheme: h1:… or zh:…
}

// Providers returns the providers of a lock file, in its order. ok is false if the file cannot be read.
func Providers(src []byte) (all []Provider, ok bool) {
	file, diags := hclsyntax.ParseConfig(src, LockFile, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, false
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, false
	}
	for _, b := range body.Blocks {
		if b.Type != "provider" || len(b.Labels) != 1 {
			continue
		}
		p := Provider{Address: b.Labels[0]}
		if version := b.Body.Attributes["version"]; version != nil {
			p.Version, _ = textOf(version.Expr)
		}
		if hashes := b.Body.Attributes["hashes"]; hashes != nil {
			list, diags := hcl.ExprList(hashes.Expr)
			if diags.HasErrors() {
				return nil, false
			}
			for _, item := range list {
				if text, ok := textOf(item); ok {
					p.Hashes = append(p.Hashes, text)
				}
			}
		}
		if p.Version == "" {
			return nil, false
		}
		slices.Sort(p.Hashes)
		all = append(all, p)
	}
	return all, true
}
