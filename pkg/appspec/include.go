package appspec

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The limits of the files that app.yaml includes. Together with app.yaml they have at most MaxFileSize bytes.
const maxIncludes = 50

// includable returns the fields of an app that an included file can have: the maps from names to parts of the app.
func includable() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[App]()) {
		if f.Type.Kind() != reflect.Slice {
			continue
		}
		if _, noun := yamlnode.KeyOf(f.Type.Elem()); noun != "" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// withIncludes returns root, the content of app.yaml, with the entries of the files that its field include names. fsys is the
// app's folder; nil: there is none, so no file can be included. size is the number of bytes of app.yaml.
func (r *reader) withIncludes(root yamlnode.Node, fsys fs.FS, size int) yamlnode.Node {
	list, ok := root.Child("include")
	if !ok || list.Shape != yamlnode.List {
		return root // no include, or one of the wrong type, which is reported later
	}
	seen := map[string]bool{FileName: true}
	for _, item := range list.Items {
		text, ok := item.Value.(string)
		if !ok {
			continue
		}
		for _, name := range r.matches(fsys, item, text) {
			if seen[name] {
				continue
			}
			seen[name] = true
			if len(seen) > maxIncludes+1 {
				r.At(item.Place, "too-many-includes", fmt.Sprintf("the app includes more than %d files", maxIncludes), "")
				return root
			}
			src, why := readIncluded(fsys, name, MaxFileSize-size)
			if errors.Is(why, errTooLarge) {
				r.At(item.Place, "file-too-large", fmt.Sprintf("app.yaml and its included files are larger than %d bytes", MaxFileSize), "Keep files and data in the modules.")
				return root
			}
			if errors.Is(why, fs.ErrNotExist) {
				r.At(item.Place, "missing-include", fmt.Sprintf("there is no file %s", yamlnode.Quote(text)), "Paths are relative to the folder of app.yaml.")
				continue
			}
			if why != nil {
				r.At(item.Place, "missing-include", fmt.Sprintf("the file %s cannot be read: %s", yamlnode.Quote(name), reason(why)), "Only files in the app's folder can be included.")
				continue
			}
			size += len(src)
			root = r.merge(root, name, src)
		}
	}
	return root
}

// matches returns the files that an entry of include names, in order.
func (r *reader) matches(fsys fs.FS, item yamlnode.Node, text string) []string {
	const local = "Name a file in the app's folder, such as ./inputs.yaml or ./parts/*.yaml."
	clean, wrong, _ := cleanSource(text)
	if wrong == "" && clean == FileName {
		wrong = "is the file itself"
	}
	if wrong != "" {
		r.At(item.Place, "invalid-include", fmt.Sprintf("the file %s %s", yamlnode.Quote(text), strings.Replace(wrong, "a local folder", "a local file", 1)), local)
		return nil
	}
	if fsys == nil {
		r.At(item.Place, "invalid-include", "files can be included only in an app's folder", "")
		return nil
	}
	if !strings.ContainsAny(clean, `*?[\`) {
		return []string{clean}
	}
	names, err := fs.Glob(fsys, clean)
	if err != nil {
		r.At(item.Place, "invalid-include", fmt.Sprintf("%s is not a pattern of files", yamlnode.Quote(text)), local)
		return nil
	}
	if len(names) == 0 {
		r.At(item.Place, "missing-include", fmt.Sprintf("no file matches %s", yamlnode.Quote(text)), local)
	}
	return names
}

// readIncluded reads a file that may be a symbolic link within the app's folder.
func readIncluded(fsys fs.FS, name string, limit int) ([]byte, error) {
	real, err := follow(fsys, name)
	if err != nil {
		return nil, err
	}
	return readBounded(fsys, real, limit)
}

// merge returns root with the entries of an included file. Problems have the place in that file.
func (r *reader) merge(root yamlnode.Node, name string, src []byte) yamlnode.Node {
	name = yamlnode.Printable(name) // a pattern finds files of any name
	n, problems := yamlnode.Read(src)
	for i := range problems {
		problems[i].File = name
	}
	r.Add(problems)
	if len(problems) > 0 || n.IsNull() {
		return root
	}
	n = n.In(name)
	if n.Shape != yamlnode.Map {
		r.At(n.Place, "wrong-type", fmt.Sprintf("an included file must be a map, not %s", n.Describe()), "It can have: "+strings.Join(includable(), ", ")+".")
		return root
	}
	root.Fields = slices.Clone(root.Fields)
	for _, f := range r.Unique(n) {
		switch {
		case f.Key == "include":
			r.At(f.Place, "nested-include", "an included file cannot include another", "List the file in app.yaml.")
		case !slices.Contains(includable(), f.Key):
			r.At(f.Place, "unknown-field", fmt.Sprintf("an included file has no field %s", yamlnode.Quote(f.Key)), "It can have: "+strings.Join(includable(), ", ")+". Other fields belong in app.yaml.")
		case f.Value.IsNull():
		case f.Value.Shape != yamlnode.Map:
			r.At(f.Value.Place, "wrong-type", fmt.Sprintf("%s must be a map, not %s", f.Key, f.Value.Describe()), "")
		default:
			i := slices.IndexFunc(root.Fields, func(of yamlnode.Field) bool { return of.Key == f.Key })
			if i < 0 {
				root.Fields = append(root.Fields, f)
				continue
			}
			if to := &root.Fields[i].Value; to.Shape == yamlnode.Map || to.IsNull() {
				to.Shape, to.Fields = yamlnode.Map, slices.Concat(to.Fields, f.Value.Fields)
			}
		}
	}
	return root
}
