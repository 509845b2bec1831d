package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// modulesDir has the installed modules, in dataDir.
const modulesDir = "modules"

// toolModules is the tool's list of installed modules, dataDir/modules/modules.json.
type toolModules struct {
	Modules []toolModule `json:"Modules"`
}

type toolModule struct {
	Key     string `json:"Key"` // "": the module itself
	Source  string `json:"Source"`
	Version string `json:"Version,omitempty"`
	Dir     string `json:"Dir"` // relative to the module
}

// takeModules moves the modules that the artifact ships out of the source folder, so that the module does not list them
// with its own files.
func (j *job) takeModules() error {
	at := filepath.Join(j.root, artifact.ModulesFolder)
	content, err := os.ReadFile(filepath.Join(at, tfmodule.ShippedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if j.shipped, err = tfmodule.ParseShipped(content); err != nil {
			return &plugin.Error{Reason: fairlead.ReasonArtifactInvalid, Message: "the artifact's modules cannot be used: " + err.Error(), Err: err}
		}
		err = os.Rename(at, j.path(modulesDir))
	}
	if err != nil {
		return fmt.Errorf("take the shipped modules: %w", err)
	}
	return nil
}

// placeModules makes the shipped modules installed ones, as `init` would have installed them. `init` keeps an installed
// module whose source and version are those that the configuration asks for, and fetches the others.
func (j *job) placeModules() error {
	if len(j.shipped.Modules) == 0 {
		return nil
	}
	to := filepath.Join(j.src, dataDir, modulesDir)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("install the shipped modules: %w", err)
	}
	j.placed = map[string]fs.FileInfo{}
	list := toolModules{Modules: []toolModule{{Dir: "."}}}
	for _, m := range j.shipped.Modules {
		dir, err := j.moduleDir(m)
		if err != nil {
			return fmt.Errorf("install the shipped modules: %w", err)
		}
		list.Modules = append(list.Modules, toolModule{Key: m.Key, Source: m.Source, Version: m.Version, Dir: dir})
		if m.Package == "" {
			continue // its caller's package has it
		}
		at := filepath.Join(to, m.Key)
		if err := os.CopyFS(at, os.DirFS(filepath.Join(j.path(modulesDir), m.Package))); err != nil {
			return fmt.Errorf("install the shipped modules: %w", err)
		}
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("install the shipped modules: %w", err)
		}
		j.placed[m.Key] = info
	}
	content, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(filepath.Join(to, tfmodule.ShippedFile), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("install the shipped modules: %w", err)
	}
	return nil
}

// moduleDir returns the folder of a shipped module as the tool records it: relative to the component's folder.
func (j *job) moduleDir(m tfmodule.ShippedModule) (string, error) {
	if owner, ok := j.shipped.Owner(m.Key); ok {
		return path.Join(dataDir, modulesDir, owner.Key, m.Folder), nil
	}
	dir, err := filepath.Rel(j.src, filepath.Join(j.root, filepath.FromSlash(m.Folder)))
	return filepath.ToSlash(dir), err
}

// installedModules returns the tool's list of installed modules; it is empty if the module calls none.
func (j *job) installedModules() []toolModule {
	var list toolModules
	raw, err := os.ReadFile(filepath.Join(j.src, dataDir, modulesDir, tfmodule.ShippedFile))
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list.Modules
}

// fetchedModules returns the modules of other places that `init` fetched, because the artifact does not ship them.
func (j *job) fetchedModules() (all []changeset.Module) {
	for _, m := range j.installedModules() {
		if m.Key == "" || (tfmodule.Call{Source: m.Source}).Local() {
			continue
		}
		at := filepath.Join(j.src, dataDir, modulesDir, m.Key)
		info, err := os.Stat(at)
		if before, ok := j.placed[m.Key]; ok && err == nil && os.SameFile(before, info) && before.ModTime().Equal(info.ModTime()) {
			continue
		}
		all = append(all, changeset.Module{Address: addressOf(m.Key), Source: j.env.Mask(m.Source), Version: m.Version, Commit: commitOf(at)})
	}
	slices.SortFunc(all, func(a, b changeset.Module) int { return strings.Compare(a.Address, b.Address) })
	return all
}

// carryModules makes the saved plan contain the modules that the plan fetched, so that the apply runs no others: it removes
// their files from the files before the plan. It reports whether it did.
func (j *job) carryModules(before map[string]fileVersion, fetched []changeset.Module) bool {
	if len(fetched) == 0 {
		return false
	}
	below, err := filepath.Rel(j.root, filepath.Join(j.src, dataDir, modulesDir))
	if err != nil {
		return false
	}
	modules := filepath.ToSlash(below) + "/"
	delete(before, modules+tfmodule.ShippedFile)
	for name := range before {
		inside, ok := strings.CutPrefix(name, modules)
		key, file, _ := strings.Cut(inside, "/")
		if ok && file != "" && !strings.HasPrefix(file, ".git/") && slices.ContainsFunc(fetched, func(m changeset.Module) bool { return m.Address == addressOf(key) }) {
			delete(before, name)
		}
	}
	return true
}

// addressOf returns the address of a module for people: module.a.module.b for the key a.b.
func addressOf(key string) string { return "module." + strings.ReplaceAll(key, ".", ".module.") }

var commitPattern = pattern.New(`^[0-9a-f]{40}(?:[0-9a-f]{24})?$`)

// commitOf returns the commit of a git repository that the tool has cloned; "" if it is not known.
func commitOf(repository string) string {
	root, err := os.OpenRoot(repository)
	if err != nil {
		return ""
	}
	defer root.Close()
	head, err := root.ReadFile(".git/HEAD")
	if branch, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: "); ok && err == nil {
		head, err = root.ReadFile(path.Join(".git", branch))
	}
	if commit := strings.TrimSpace(string(head)); err == nil && commitPattern.MatchString(commit) {
		return commit
	}
	return ""
}
