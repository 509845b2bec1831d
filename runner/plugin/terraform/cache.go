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
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

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
	var all struct {
		Providers []struct {
			Address string   `hcl:"address,label"`
			Version string   `hcl:"version"`
			Hashes  []string `hcl:"hashes,optional"`
			Rest    hcl.Body `hcl:",remain"`
		} `hcl:"provider,block"`
		Rest hcl.Body `hcl:",remain"`
	}
	if gohcl.DecodeBody(f.Body, nil, &all).HasErrors() {
		return nil, nil
	}
	locked := map[string]providers.Locked{}
	for _, l := range all.Providers {
		locked[l.Address] = providers.Locked{Address: l.Address, Version: l.Version, Hashes: l.Hashes}
	}
	return locked, nil
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
