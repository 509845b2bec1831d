package appspec

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// maxCalled is the maximum number of module folders that are followed from one component.
const maxCalled = 1000

// Source lists the folders whose files make up a component. Paths are slash-separated and relative to the app's folder.
type Source struct {
	Folder string   // folder of the component's module, without symbolic links
	Shared []string // sorted: folders outside of Folder whose modules the component calls, directly or indirectly
}

// SourceOf returns the folders of a component of a valid app: the component's own folder, and the folders of called
// modules outside of it. The error is a *fairlead.Error if a path leaves the app's folder.
func SourceOf(fsys fs.FS, c Component) (Source, error) {
	folder, err := follow(fsys, c.Source)
	if err != nil {
		return Source{}, fmt.Errorf("follow the source of component %q: %w", c.Name, err)
	}
	r := &moduleReader{fsys: fsys, root: folder, shown: c.Source}
	s := Source{Folder: folder}
	if t, _ := component.Of(c.Type); !t.Module {
		return s, nil
	}
	for _, called := range r.called() {
		if !within(called, folder) {
			s.Shared = append(s.Shared, called)
		}
	}
	slices.Sort(s.Shared)
	if len(r.problems) > 0 {
		return Source{}, Problems(yamlnode.Finish(r.problems)).Err()
	}
	return s, nil
}

// within reports whether folder equals other or is below it.
func within(folder, other string) bool {
	return other == "." || folder == other || strings.HasPrefix(folder, other+"/")
}

// called returns the folders of the modules that the component calls by path, directly or indirectly, each once. It
// reports paths to missing folders and paths that leave the app's folder.
func (r *moduleReader) called() []string {
	queue, seen := []string{r.root}, map[string]bool{r.root: true}
	for i := 0; i < len(queue) && i < maxCalled; i++ {
		for _, c := range r.callsIn(queue[i]) {
			folder, message, hint := r.target(queue[i], c.Source)
			if message != "" && c.counts {
				r.report(r.show(queue[i], c.file), c.At, "module-source", fmt.Sprintf("the source %s of module %s %s", yamlnode.Quote(c.Source), yamlnode.Quote(c.Name), message), hint)
			}
			if message == "" && !seen[folder] {
				seen[folder] = true
				queue = append(queue, folder)
			}
		}
	}
	return queue[1:]
}

// callIn is a module call and the file that holds it.
type callIn struct {
	tfmodule.Call
	file   string
	counts bool // true if OpenTofu reads the file; false if only Terraform does
}

// callsIn returns the calls of local modules in a folder.
func (r *moduleReader) callsIn(dir string) []callIn {
	return slices.DeleteFunc(r.allCallsIn(dir), func(c callIn) bool { return !c.Local() })
}

// ModuleCalls returns the calls of the module in the folder of fsys, whose source is constant, in the order of their names. It reads the
// files that OpenTofu reads. Unreadable files are skipped.
func ModuleCalls(fsys fs.FS, folder string) []tfmodule.Call {
	var out []tfmodule.Call
	for _, c := range (&moduleReader{fsys: fsys, root: folder}).allCallsIn(folder) {
		if c.counts {
			out = append(out, c.Call)
		}
	}
	slices.SortStableFunc(out, func(a, b tfmodule.Call) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// allCallsIn returns the calls of modules in a folder. A call in an override file replaces the call that it overrides.
// Unreadable files are skipped: the packer or the tool reports them.
func (r *moduleReader) allCallsIn(dir string) []callIn {
	all, _, err := moduleFiles(r.fsys, dir)
	if err != nil {
		return nil
	}
	effective := tfmodule.Effective(all)
	var calls []callIn
	for _, override := range []bool{false, true} {
		var found []callIn
		for _, name := range all {
			if tfmodule.Override(name) != override {
				continue
			}
			real, err := follow(r.fsys, path.Join(dir, name))
			if err != nil {
				continue
			}
			src, err := readBounded(r.fsys, real, maxModuleSize)
			if err != nil {
				continue
			}
			for _, c := range tfmodule.Calls(name, src) {
				found = append(found, callIn{c, name, slices.Contains(effective, name)})
			}
		}
		for _, c := range found {
			if override {
				calls = slices.DeleteFunc(calls, func(o callIn) bool { return o.Name == c.Name })
			}
		}
		calls = append(calls, found...)
	}
	return calls
}

// target returns the folder that source points to from dir, or a message and a hint if the source is invalid.
func (r *moduleReader) target(dir, source string) (folder, message, hint string) {
	folder = path.Join(dir, source)
	if folder == ".." || strings.HasPrefix(folder, "../") {
		return "", "points outside the app's folder", "Only files in the app's folder, that of app.yaml, are shipped: copy the module into it, or call it by a remote source."
	}
	real, err := follow(r.fsys, folder)
	if err == nil {
		var info fs.FileInfo
		if info, err = fs.Stat(r.fsys, real); err == nil && !info.IsDir() {
			return "", "is not a folder", "Name the folder that holds the module's files."
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hint, found := nearFolder(r.fsys, folder)
		if !found {
			hint = "A path in a module is relative to the module's own folder."
		}
		return "", fmt.Sprintf("points to %s, which does not exist", yamlnode.Quote(folder)), hint
	case errors.Is(err, errLeaves):
		return "", "leaves the app's folder through a symbolic link", "Only files in the app's folder, that of app.yaml, are shipped: copy the module into it."
	case err != nil:
		return "", "cannot be read: " + reason(err), ""
	case real != folder && !within(folder, r.root): // the packer reports links inside the component's folder
		return "", "passes through a symbolic link", fmt.Sprintf("Links to folders are not shipped. Name the folder that the link points to, %s.", yamlnode.Quote(real))
	}
	return real, "", ""
}
