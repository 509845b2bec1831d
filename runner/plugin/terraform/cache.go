package terraform

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"

	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

// install returns the folder into which `init` installs providers.
func (j *job) install() string {
	return cmp.Or(j.p.cfg.Install, j.path(providers.Private))
}

// linkProviders links the cached providers that the module may use into the job's own folder. `init` looks there before it
// downloads a provider, and installs missing ones there.
func (j *job) linkProviders() error {
	private := j.install()
	if err := os.Remove(filepath.Join(private, providers.Whole)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("link cached providers: %w", err)
	}
	usable, err := j.usableProviders()
	if err != nil {
		return err
	}
	for _, p := range usable {
		at := filepath.Join(private, filepath.FromSlash(p.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return fmt.Errorf("link cached providers: %w", err)
		}
		// An existing link or provider comes from an earlier init of this job or from a newer package.
		if err := os.Symlink(p.Path(j.p.cfg.PluginCache), at); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link cached providers: %w", err)
		}
	}
	return nil
}

// usableProviders returns the cached providers that the module may use. If the lock file has an entry for the provider, the
// provider must have one of the entry's hashes. Otherwise the tool would install another provider in its place. If the lock
// file has no entry, the provider is usable only if the install's own jobs have fetched it.
func (j *job) usableProviders() ([]providers.Package, error) {
	locked, err := readLock(filepath.Join(j.src, dependencyLock))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(j.p.cfg.Providers), func(p providers.Package) bool {
		if l, ok := locked[p.Address()]; ok {
			return l.Version != p.Version() || !slices.Contains(l.Hashes, p.Hash)
		}
		return !p.Own
	}), nil
}

// readLock reads a dependency lock file into a map by address. It returns nil for a file that does not parse: the tool
// reports what is wrong with it.
func readLock(path string) (map[string]providers.Locked, error) {
	b, err := safefile.Read(path, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the dependency lock file: %w", err)
	}
	f, diags := hclparse.NewParser().ParseHCL(b, dependencyLock)
	if diags.HasErrors() {
		return nil, nil
	}
	// Not with gohcl, which links a writer of HCL and the comparison of values in it: half a millisecond of each step's start.
	content, _, diags := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "provider", LabelNames: []string{"address"}}}})
	if diags.HasErrors() {
		return nil, nil
	}
	locked := map[string]providers.Locked{}
	for _, block := range content.Blocks {
		l := providers.Locked{Address: block.Labels[0]}
		attrs, _, diags := block.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "version", Required: true}, {Name: "hashes"}}})
		if diags.HasErrors() || !decode(attrs.Attributes["version"], cty.String, &l.Version) || !decode(attrs.Attributes["hashes"], cty.List(cty.String), &l.Hashes) {
			return nil, nil
		}
		locked[l.Address] = l
	}
	return locked, nil
}

// decode stores an attribute's constant value in v, which matches the type. It reports false for another value, and leaves v unchanged
// without an attribute.
func decode(a *hcl.Attribute, as cty.Type, v any) bool {
	if a == nil {
		return true
	}
	value, diags := a.Expr.Value(nil)
	if diags.HasErrors() {
		return false
	}
	value, err := convert.Convert(value, as)
	return err == nil && gocty.FromCtyValue(value, v) == nil
}

// relinkProviders replaces links that the plan's job made. These links point into the folder of the plan's job, which was
// removed. The new links point to cached providers of the same content. If no cached provider has the same content,
// relinkProviders does not change the link, and the tool asks for `init`.
func (j *job) relinkProviders() error {
	usable, err := j.usableProviders()
	if err != nil {
		return err
	}
	for _, p := range usable {
		link := filepath.Join(j.src, dataDir, "providers", filepath.FromSlash(p.Name))
		if st, err := os.Lstat(link); err != nil || st.Mode().Type() != fs.ModeSymlink {
			continue
		}
		if err := errors.Join(os.Remove(link), os.Symlink(p.Path(j.p.cfg.PluginCache), link)); err != nil {
			return fmt.Errorf("link cached providers: %w", err)
		}
	}
	return nil
}
