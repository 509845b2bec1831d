package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
	validate "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kyaml "sigs.k8s.io/yaml"

	"github.com/fluxcd/pkg/ssa/normalize"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Object is one object of a component's files.
type Object struct {
	*unstructured.Unstructured
	File string // path below the component's folder
	Line int    // of the object's first key
}

// place returns where a person finds the object.
func (o Object) place() string {
	if o.File == "" {
		return installNamespace
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// Limits of a component's files.
const (
	maxFile    = 16 << 20
	maxFiles   = 64 << 20 // all together
	maxObjects = 10_000
	maxDepth   = 100
	maxNodes   = 1_000_000 // values of one document, with aliases written out
)

// Parse reads all objects of the files below root that end in .yaml, .yml or .json, in the order of their paths. It skips files and
// folders whose names begin with a dot. A file can hold several documents and lists. A value is what kubectl reads: YAML 1.1 as
// sigs.k8s.io/yaml defines it. Nothing is substituted, and a kustomization is refused.
//
// The fields that only a server sets, such as status and uid, are removed. Every error is a *plugin.Error whose message begins with
// the file and the line.
func Parse(root fs.FS) ([]Object, error) {
	var all []Object
	left := int64(maxFiles)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return &plugin.Error{Reason: fairlead.ReasonManifestInvalid, Err: err, Message: fmt.Sprintf("%s: the file cannot be read", name)}
		case name == ".":
			return nil
		case strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name))):
			return nil
		case !entry.Type().IsRegular():
			return invalid(name, 1, "is not a regular file: replace the link by the file's content")
		}
		text, err := read(root, name, &left)
		if err != nil {
			return err
		}
		found, err := parseFile(name, text)
		all = append(all, found...)
		if err == nil && len(all) > maxObjects {
			err = invalid(name, 1, "brings the component to more than %d objects: split the component", maxObjects)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, plugin.Errorf(fairlead.ReasonManifestInvalid, "the component's folder has no object: it needs a file that ends in .yaml, .yml or .json")
	}
	return all, refuseRepeated(all)
}

func invalid(file string, line int, format string, args ...any) error {
	return plugin.Errorf(fairlead.ReasonManifestInvalid, "%s:%d: %s", file, line, fmt.Sprintf(format, args...))
}

// read reads a file, and takes its size from left.
func read(root fs.FS, name string, left *int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonManifestInvalid, Err: err, Message: fmt.Sprintf("%s: the file cannot be read", name)}
	}
	defer f.Close()
	most := min(maxFile, *left)
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, &plugin.Error{Reason: fairlead.ReasonManifestInvalid, Err: err, Message: fmt.Sprintf("%s: the file cannot be read", name)}
	case int64(len(text)) > most:
		return nil, invalid(name, 1, "is too large: a file can have %d MiB, and all files %d MiB", maxFile>>20, maxFiles>>20)
	case !utf8.Valid(text):
		return nil, invalid(name, 1, "is not UTF-8")
	}
	*left -= int64(len(text))
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

// document is one document of a file. Its text begins with as many empty lines as come before it in the file, so that each line has
// its own number.
type document struct {
	line int
	text []byte
}

// split cuts a file at its document markers. Only a line that begins with the marker has it: YAML permits no other text there.
func split(text []byte) (all []document) {
	begin, line, first := 0, 1, 1
	cut := func(end int) {
		if body := text[begin:end]; len(bytes.TrimSpace(body)) > 0 {
			all = append(all, document{line: first, text: append(bytes.Repeat([]byte{'\n'}, first-1), body...)})
		}
		begin, first = end, line
	}
	for at := 0; at < len(text); line++ {
		if rest := text[at:]; bytes.HasPrefix(rest, []byte("---")) && (len(rest) == 3 || bytes.IndexByte([]byte(" \t\r\n"), rest[3]) >= 0) {
			cut(at)
		}
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			line++
			break
		}
		at += next + 1
	}
	cut(len(text))
	return all
}

func parseFile(name string, text []byte) (all []Object, err error) {
	if base := strings.ToLower(path.Base(name)); base == "kustomization.yaml" || base == "kustomization.yml" {
		return nil, invalid(name, 1, "is a kustomization, which this component type does not build: write the result of `kustomize build` to a file")
	}
	for _, d := range split(text) {
		found, err := parseDocument(name, d)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func parseDocument(name string, d document) ([]Object, error) {
	var tree yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(d.text))
	if err := dec.Decode(&tree); errors.Is(err, io.EOF) {
		return nil, nil // comments only
	} else if err != nil {
		return nil, malformed(name, d.line, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, invalid(name, d.line, "the document is not separated from the next one by a line ---")
	}
	root := tree.Content[0]
	if line, problem := bounds(root); problem != "" {
		return nil, invalid(name, line, "%s", problem)
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, invalid(name, root.Line, "the document is not an object: it needs apiVersion, kind and metadata")
	}
	text, err := kyaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, malformed(name, d.line, err)
	}
	return decode(name, root, text)
}

// malformed returns the error of a text that is not YAML. The parser's message contains the line, because a document's text keeps
// the lines of its file.
func malformed(name string, line int, err error) error {
	return &plugin.Error{Reason: fairlead.ReasonManifestInvalid, Err: err, Message: fmt.Sprintf("%s:%d: the document is not YAML: %s", name, line,
		fairlead.Clip(strings.Join(strings.Fields(err.Error()), " "), 300))}
}

// bounds checks the depth and the size of a document, as if each alias were written out.
func bounds(root *yaml.Node) (line int, problem string) {
	sizes := map[*yaml.Node]int{} // of anchors
	var size func(n *yaml.Node, depth int) int
	size = func(n *yaml.Node, depth int) int {
		if problem != "" {
			return 0
		}
		if depth > maxDepth {
			line, problem = n.Line, fmt.Sprintf("lists and maps are nested deeper than %d", maxDepth)
			return 0
		}
		if known, ok := sizes[n]; ok {
			return known
		}
		total := 1
		if n.Kind == yaml.AliasNode {
			total += size(n.Alias, depth+1)
		}
		for _, c := range n.Content {
			total += size(c, depth+1)
			if total > maxNodes {
				line, problem = n.Line, fmt.Sprintf("the document has more than %d values", maxNodes)
				return 0
			}
		}
		if n.Anchor != "" {
			sizes[n] = total
		}
		return total
	}
	size(root, 0)
	return line, problem
}

// decode makes the objects of a document, which is an object or a list of objects.
func decode(name string, root *yaml.Node, text []byte) ([]Object, error) {
	var fields map[string]any
	if err := utiljson.Unmarshal(text, &fields); err != nil {
		return nil, invalid(name, root.Line, "the document is not an object")
	}
	u := &unstructured.Unstructured{Object: fields}
	if kind := textOf(fields, "kind"); !strings.HasSuffix(kind, "List") || child(root, "items") == nil {
		o, err := check(Object{Unstructured: u, File: name, Line: lineOf(root)})
		return []Object{o}, err
	}
	nodes := child(root, "items")
	items, ok := fields["items"].([]any)
	if !ok || nodes.Kind != yaml.SequenceNode || len(items) != len(nodes.Content) {
		return nil, invalid(name, nodes.Line, "the items of the list are not a list")
	}
	all := make([]Object, 0, len(items))
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, invalid(name, nodes.Content[i].Line, "item %d of the list is not an object", i)
		}
		o, err := check(Object{Unstructured: &unstructured.Unstructured{Object: fields}, File: name, Line: lineOf(nodes.Content[i])})
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok || v == nil
}

func textOf(fields map[string]any, name string) string {
	s, _ := fields[name].(string)
	return s
}

// lineOf returns the line of the first key of a map, also if an alias stands for the map.
func lineOf(n *yaml.Node) int {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		return n.Content[0].Line
	}
	return n.Line
}

func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			v := n.Content[i+1]
			if v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			return v
		}
	}
	return nil
}

// check refuses an object that has no identity, and removes what only a server sets.
func check(o Object) (Object, error) {
	at := func(format string, args ...any) (Object, error) { return o, invalid(o.File, o.Line, format, args...) }
	meta, ok := o.Object["metadata"].(map[string]any)
	switch {
	case textOf(o.Object, "apiVersion") == "":
		return at("the object has no apiVersion")
	case textOf(o.Object, "kind") == "":
		return at("the object has no kind")
	case !ok:
		return at("the %s has no metadata", o.GetKind())
	case !isText(meta["name"]) || !isText(meta["namespace"]):
		return at("the name or namespace of the %s is not a text: quote it, because YAML reads values such as n and 1 as others", o.GetKind())
	case textOf(meta, "name") == "" && meta["generateName"] != nil:
		return at("the %s has generateName: a component's object needs a name, because the next apply must find it again", o.GetKind())
	case textOf(meta, "name") == "":
		return at("the %s has no metadata.name", o.GetKind())
	}
	if _, err := schema.ParseGroupVersion(o.GetAPIVersion()); err != nil {
		return at("the apiVersion %q is not GROUP/VERSION", o.GetAPIVersion())
	}
	// These names are parts of a request's path.
	for _, part := range []string{o.GetName(), o.GetNamespace(), o.GetKind(), o.GroupVersionKind().Group, o.GroupVersionKind().Version} {
		problems := validate.IsPathSegmentName(part)
		if len(part) > 253 {
			problems = append(problems, "has more than 253 characters")
		}
		if len(problems) > 0 {
			return at("the name %q is not usable: it %s", fairlead.Clip(part, 60), strings.Join(problems, ", "))
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		values, ok := meta[field].(map[string]any)
		if !ok && meta[field] != nil {
			return at("metadata.%s is not a map", field)
		}
		for key, v := range values {
			if _, ok := v.(string); !ok {
				return at("metadata.%s: the value of %q is not a text: quote it", field, key)
			}
		}
		if meta[field] == nil {
			delete(meta, field)
		}
	}
	if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		// Server-side apply has no stringData: the server would keep keys that were removed from it.
		_, err := normalize.FromUnstructured(o.Unstructured)
		if err == nil {
			err = normalize.Unstructured(o.Unstructured)
		}
		if err != nil { // It can quote the values.
			return at("the Secret is malformed: the values of data are Base64, and those of stringData are texts; quote values such as yes and 1")
		}
	}
	dropServerFields(o.Unstructured)
	return o, nil
}

// serverFields are the fields of metadata that only a server sets.
var serverFields = []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}

func dropServerFields(u *unstructured.Unstructured) {
	delete(u.Object, "status")
	meta, _ := u.Object["metadata"].(map[string]any)
	for _, field := range serverFields {
		delete(meta, field)
	}
}

// refuseRepeated returns an error if two of the objects are the same object of the cluster.
func refuseRepeated(all []Object) error {
	first := map[ref]Object{}
	for _, o := range all {
		id := refOf(o.Unstructured).identity()
		if other, ok := first[id]; ok {
			return invalid(o.File, o.Line, "the object %s is already at %s: remove one of the two", refOf(o.Unstructured), other.place())
		}
		first[id] = o
	}
	return nil
}

// encodeObject writes an object as JSON, with the same bytes for the same object.
func encodeObject(u *unstructured.Unstructured) ([]byte, error) { return json.Marshal(u.Object) }
