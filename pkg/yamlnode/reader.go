package yamlnode

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// FieldType is a field of a configuration. The tags of a struct field declare it:
//
//	json   the name of the field
//	doc    the documentation for people; a struct field without it is not part of the file
//	must   "true": required and not empty; "there": required, may be empty; "unless x y": as "there" if none of the fields x and y is given
//	alias  names that newcomers write instead, separated by spaces
//	check  the name of its Check
//	only   which authors may set the field; the Reader ignores it
//	key    the noun for the struct, if it is an entry of a map whose key is this field
type FieldType struct {
	Name, Doc, Must, Check string
	Only                   string
	Aliases                []string
	Type                   reflect.Type
	index                  []int
}

// Unless returns the fields in whose absence the field is required, or none.
func (f FieldType) Unless() []string {
	others, ok := strings.CutPrefix(f.Must, "unless ")
	if !ok {
		return nil
	}
	return strings.Fields(others)
}

// FieldsOf returns the fields of a struct, including those of embedded structs.
func FieldsOf(t reflect.Type) []FieldType {
	var fields []FieldType
	for _, f := range reflect.VisibleFields(t) {
		if doc := f.Tag.Get("doc"); doc != "" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, FieldType{
				Name: name, Doc: doc, Must: f.Tag.Get("must"), Check: f.Tag.Get("check"), Only: f.Tag.Get("only"), Aliases: strings.Fields(f.Tag.Get("alias")),
				Type: f.Type, index: f.Index,
			})
		}
	}
	return fields
}

// KeyOf returns the field of a struct that holds its name (the key of its map entry),
// and the noun for the struct. noun is "" if the struct is not an entry of a map.
func KeyOf(t reflect.Type) (key reflect.StructField, noun string) {
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if noun := f.Tag.Get("key"); noun != "" {
				return f, noun
			}
		}
	}
	return key, ""
}

func names(fields []FieldType) []string {
	var all []string
	for _, f := range fields {
		all = append(all, f.Name)
	}
	return all
}

// FieldList returns a hint that lists the fields of a struct.
func FieldList(t reflect.Type) string {
	return "Its fields are: " + strings.Join(names(FieldsOf(t)), ", ") + "."
}

func has(fields []FieldType, name string) bool { return slices.Contains(names(fields), name) }

// Schema is a JSON schema (draft 2020-12), or a part of one.
type Schema = map[string]any

// Check holds the conditions of a field beyond its type. For a list they apply to
// each item, and for a map of strings to each entry.
type Check struct {
	Pattern string                      // regular expression of a string; "": any
	Wants   string                      // description of the pattern for people
	Max     int                         // maximum bytes of a string, or items of a list; 0: no limit
	Func    func(f Field, where string) // called for values that match the pattern; may be nil
	Schema  Schema                      // added to the JSON schema of the field
	Doc     string                      // appended to the doc of the field
}

// Union describes a field that holds one of several structs. The struct's field
// "type" selects which.
type Union struct {
	Noun    string            // noun for the field's value
	Names   []string          // names of the types
	Aliases map[string]string // names that newcomers write instead, and the right names
	New     func(name string) any
}

// Rules holds the rules of a configuration that field tags do not express.
type Rules struct {
	Checks map[string]Check       // by the names in the check tags
	Unions map[reflect.Type]Union // by the interface type of the field
	// Hint returns a hint for an unknown field of the map at where, or "" to suggest
	// the most similar name. It may be nil.
	Hint func(where string, f Field, in Node) string
}

// Check returns the check with the name, or an empty check for "". It panics for an
// unknown name, which is a mistake in the code. The test of the schema finds this
// mistake.
func (r Rules) Check(name string) Check {
	c, ok := r.Checks[name]
	if name != "" && !ok {
		panic("yamlnode: there is no check " + name)
	}
	return c
}

// NodeReader is a value of a configuration that reads itself.
type NodeReader interface {
	ReadNode(r *Reader, n Node, where string)
}

// Reader reads nodes into structs by the tags of their fields. It records the place
// of each value, and the problems. A path such as "components.web.source" identifies a
// field. A place inside a field's value is identified by the path, "|" and a name.
type Reader struct {
	File     string // the caller's name of the file
	Rules    Rules
	Problems []Problem

	nodes map[string]Node
	bad   map[string]bool // paths with a reported problem
}

// NewReader returns an empty Reader.
func NewReader(file string, rules Rules) *Reader {
	return &Reader{File: file, Rules: rules, nodes: map[string]Node{}, bad: map[string]bool{}}
}

// Source reads a file of at most limit bytes with read. hint is the hint for a larger
// file. The node is null if the file cannot be read at all.
func (r *Reader) Source(read func([]byte) (Node, []Problem), src []byte, limit int, hint string) Node {
	if len(src) > limit {
		r.At(Place{Line: 1, Column: 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", limit), hint)
		return Node{}
	}
	root, problems := read(src)
	r.Add(problems)
	return root
}

// Add adds problems. It sets the file of those that name none.
func (r *Reader) Add(problems []Problem) {
	for _, p := range problems {
		p.File = cmp.Or(p.File, r.File)
		r.Problems = append(r.Problems, p)
	}
}

// At reports a problem at a place.
func (r *Reader) At(p Place, code, message, hint string) {
	r.Add([]Problem{{File: p.File, Line: p.Line, Column: p.Column, Code: code, Message: message, Hint: hint}})
}

// Report reports a problem of the value at the path, unless the path already has a
// reported problem.
func (r *Reader) Report(where, code, message, hint string) {
	r.fail(where, r.Node(where).Place, code, message, hint)
}

func (r *Reader) fail(where string, at Place, code, message, hint string) {
	if !r.bad[where] {
		r.bad[where] = true
		r.At(at, code, message, hint)
	}
}

// Bad reports whether a problem is reported for the path itself.
func (r *Reader) Bad(where string) bool { return r.bad[where] }

// WrongType reports a node that does not have the type of its path.
func (r *Reader) WrongType(n Node, where, wants, hint string) {
	r.fail(where, n.Place, "wrong-type", fmt.Sprintf("%s must be %s, not %s", NameOf(where), wants, n.Describe()), hint)
}

// Given reports whether the path is in the file. A null counts as given.
func (r *Reader) Given(where string) bool {
	_, ok := r.nodes[where]
	return ok
}

// Put records the node at a path.
func (r *Reader) Put(where string, n Node) { r.nodes[where] = n }

// Node returns the node at the path. If there is none, it returns the nearest
// enclosing node. The node of a map entry has the place of its key.
func (r *Reader) Node(where string) Node {
	for {
		n, ok := r.nodes[where]
		if ok || where == "" {
			if n.Place == (Place{}) {
				n.Place = Place{Line: 1, Column: 1}
			}
			return n
		}
		cut := strings.IndexByte(where, '|')
		if cut < 0 {
			cut = max(0, strings.LastIndexByte(where, '.'))
		}
		where = where[:cut]
	}
}

// NameOf returns the name of a path for a message.
func NameOf(where string) string {
	if where == "" {
		return "the file"
	}
	return Printable(where)
}

// Join returns the path of a field of the value at the path where.
func Join(where, field string) string { return strings.TrimPrefix(where+"."+field, ".") }

// Struct reads a map into the struct that v points to. A null is an empty map.
func (r *Reader) Struct(n Node, v any, where string) {
	if !r.Given(where) {
		r.Put(where, n)
	}
	r.structure(n, reflect.ValueOf(v).Elem(), where)
}

func (r *Reader) structure(n Node, v reflect.Value, where string) {
	fields := FieldsOf(v.Type())
	if n.Shape != Map && !n.IsNull() {
		r.WrongType(n, where, "a map", FieldList(v.Type()))
		r.complete(fields, where)
		return
	}
	for _, f := range r.Unique(n) {
		i := slices.IndexFunc(fields, func(of FieldType) bool { return of.Name == f.Key })
		if i < 0 {
			r.unknown(f, n, fields, where)
			continue
		}
		path := Join(where, f.Key)
		r.Put(path, f.Value)
		if to := v.FieldByIndex(fields[i].index); !f.Value.IsNull() || fields[i].Must != "" {
			r.value(f.Value, to, path)
			r.check(fields[i].Check, f, to.Type(), path)
		}
	}
	for _, f := range fields {
		path := Join(where, f.Name)
		switch is, given := r.nodes[path]; {
		case f.Must == "":
		case slices.ContainsFunc(f.Unless(), func(other string) bool { return r.Given(Join(where, other)) }):
		case !given:
			r.Report(path, "missing-field", fmt.Sprintf("%s lacks the field %q", NameOf(where), f.Name), f.Doc+r.Rules.Check(f.Check).Doc)
		case f.Must == "true" && (is.Value == "" || is.Shape == List && len(is.Items) == 0):
			r.Report(path, "missing-field", path+" is empty", f.Doc)
		}
	}
}

// complete suppresses reports about missing required fields at the path.
func (r *Reader) complete(fields []FieldType, where string) {
	for _, f := range fields {
		r.bad[Join(where, f.Name)] = r.bad[Join(where, f.Name)] || f.Must != ""
	}
}

// unknown reports a field that the map n at the path where cannot have.
func (r *Reader) unknown(f Field, n Node, fields []FieldType, where string) {
	hint := ""
	if r.Rules.Hint != nil {
		hint = r.Rules.Hint(where, f, n)
	}
	if hint == "" {
		hint = fieldHint(f.Key, fields)
	}
	r.At(f.Place, "unknown-field", fmt.Sprintf("%s has no field %s", NameOf(where), Quote(f.Key)), hint)
	for _, of := range fields {
		if hint == meant(of.Name) {
			r.bad[Join(where, of.Name)] = true // the author misspelt this field: do not also report the field as missing
		}
	}
}

func meant(name string) string { return fmt.Sprintf("Did you mean %q?", name) }

// fieldHint names the field that the author probably meant. It also finds fields of
// structs one level deeper.
func fieldHint(got string, fields []FieldType) string {
	named := func(fields []FieldType) string {
		for _, f := range fields {
			if f.Name == got || slices.Contains(f.Aliases, got) {
				return f.Name
			}
		}
		return ""
	}
	if name := named(fields); name != "" {
		return meant(name)
	}
	for _, f := range fields {
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct {
			if name := named(FieldsOf(t)); name != "" {
				return fmt.Sprintf("Did you mean %q in %q?", name, f.Name)
			}
		}
	}
	return DidYouMean(got, "fields", names(fields))
}

// value reads a node into a field of any supported type. ok is false if the node has
// the wrong type.
func (r *Reader) value(n Node, v reflect.Value, where string) (ok bool) {
	switch to := v.Addr().Interface().(type) {
	case NodeReader:
		to.ReadNode(r, n, where)
		return true
	case encoding.TextUnmarshaler:
		text := fmt.Sprint(n.Value)
		if _, isBool := n.Value.(bool); isBool || n.Value == nil {
			text = ""
		}
		if err := to.UnmarshalText([]byte(text)); err != nil {
			r.Report(where, "invalid-value", fmt.Sprintf("%s %v", where, err), "")
		}
		return true
	}
	wants, hint := "", ""
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(n, v.Elem(), where)
	case reflect.Struct:
		r.structure(n, v, where)
		return true
	case reflect.Interface:
		if u, ok := r.Rules.Unions[v.Type()]; ok {
			r.union(n, v, where, u)
		} else if plain := r.Plain(n); plain != nil {
			v.Set(reflect.ValueOf(plain))
		}
		return true
	case reflect.Slice:
		if key, noun := KeyOf(v.Type().Elem()); noun != "" {
			r.named(n, v, where, key, noun)
			return true
		}
		wants, hint, ok = "a list", "Write [ ] around it, or write each item on its own line after a hyphen.", n.Shape == List
		r.items(n, v, where)
	case reflect.Map:
		wants, hint, ok = "a map", "Write the name of each as a key, with its value after a colon.", n.Shape == Map
		r.entries(n, v, where)
	default:
		wants, hint, ok = scalar(n, v)
	}
	if !ok {
		r.WrongType(n, where, wants, hint)
	}
	return ok
}

// scalar reads a node into a string, a bool or an int. ok is false if the node has
// another type. wants and hint then describe the right one.
func scalar(n Node, v reflect.Value) (wants, hint string, ok bool) {
	switch v.Kind() {
	case reflect.String:
		text, ok := n.Value.(string)
		v.SetString(text)
		if n.Value != nil {
			hint = "Put quotes around it."
		}
		return "a string", hint, ok
	case reflect.Bool:
		b, ok := n.Value.(bool)
		v.SetBool(b)
		return "true or false", "", ok
	case reflect.Int:
		number, _ := n.Value.(json.Number)
		i, err := strconv.Atoi(string(number))
		v.SetInt(int64(i))
		return "a whole number", "", err == nil
	}
	panic("yamlnode: unsupported field type " + v.Type().String())
}

// items reads a list.
func (r *Reader) items(n Node, v reflect.Value, where string) {
	for i, item := range n.Items {
		path := Join(where, strconv.Itoa(i+1))
		r.Put(path, item)
		if to := reflect.New(v.Type().Elem()).Elem(); r.value(item, to, path) {
			v.Set(reflect.Append(v, to))
		}
	}
}

// entries reads a map with arbitrary keys.
func (r *Reader) entries(n Node, v reflect.Value, where string) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, f := range r.Unique(n) {
		path := Join(where, f.Key)
		at := f.Value
		at.Place = f.Place
		r.Put(path, at)
		if to := reflect.New(v.Type().Elem()).Elem(); r.value(f.Value, to, path) {
			v.SetMapIndex(reflect.ValueOf(f.Key), to)
		}
	}
}

// union reads a map into the struct that its field "type" names.
func (r *Reader) union(n Node, v reflect.Value, where string, u Union) {
	if n.Shape != Map {
		r.WrongType(n, where, "a map", "")
		return
	}
	t, _ := n.Child("type")
	text, isText := t.Value.(string)
	switch {
	case t.IsNull():
		r.fail(where, n.Place, "missing-field", where+` lacks the field "type"`, "The types are: "+strings.Join(u.Names, ", ")+".")
	case !isText:
		r.fail(where, t.Place, "wrong-type", fmt.Sprintf("%s.type must be a string, not %s", where, t.Describe()), "")
	case !slices.Contains(u.Names, text):
		hint := DidYouMean(text, "types", u.Names)
		if name, ok := u.Aliases[text]; ok {
			hint = meant(name)
		}
		r.fail(where, t.Place, "unknown-type", fmt.Sprintf("%s is not a kind of %s", Quote(text), u.Noun), hint)
	default:
		to := u.New(text)
		v.Set(reflect.ValueOf(to))
		r.structure(n, reflect.ValueOf(to).Elem(), where)
	}
}

// named reads a map from names to structs into a slice of the structs.
func (r *Reader) named(n Node, v reflect.Value, where string, key reflect.StructField, noun string) {
	if n.Shape != Map && !n.IsNull() {
		r.WrongType(n, where, "a map", fmt.Sprintf("Write the name of each %s as a key, with its fields indented below.", noun))
		return
	}
	first := map[string]Place{}
	for _, f := range r.indented(n, FieldsOf(v.Type().Elem()), where, noun) {
		if before, twice := first[f.Key]; twice {
			of := ""
			if before.File != f.File {
				of = " of " + Printable(cmp.Or(before.File, r.File))
			}
			r.At(f.Place, "duplicate-name", fmt.Sprintf("the %s %s is declared twice, first in line %d%s", noun, Quote(f.Key), before.Line, of), "Rename or remove one of the two.")
			continue
		}
		first[f.Key] = f.Place
		path := Join(where, f.Key)
		r.Put(path, Node{Place: f.Place})
		to := reflect.New(v.Type().Elem()).Elem()
		to.FieldByIndex(key.Index).SetString(f.Key)
		r.structure(f.Value, to, path)
		v.Set(reflect.Append(v, to))
	}
}

// indented returns the entries of a map from names to structs. If the fields of a
// struct are indented too little, they look like entries of the map. indented omits
// these fields and reports the first field of each sequence of them.
func (r *Reader) indented(n Node, fields []FieldType, where, noun string) []Field {
	var out []Field
	owner, inRun := "", false
	for _, f := range n.Fields {
		if owner == "" || !has(fields, f.Key) || !misplaced(f.Value, fields) {
			out = append(out, f)
			owner, inRun = f.Key, false
			continue
		}
		r.complete(fields, Join(where, owner))
		if !inRun {
			r.At(f.Place, "wrong-indentation",
				fmt.Sprintf("%s is next to the %s %s, not in it", Quote(f.Key), noun, Quote(owner)),
				fmt.Sprintf("Is it indented too little? Indent line %d and its content further.", f.Line))
		}
		inRun = true
	}
	return out
}

// misplaced reports whether a value whose key is the name of a field cannot be a
// struct, because it has none of the required fields of the struct.
func misplaced(value Node, fields []FieldType) bool {
	if !slices.ContainsFunc(fields, func(f FieldType) bool { return f.Must != "" }) {
		return value.Shape == Scalar && value.Value != nil // null is a struct without fields
	}
	return !slices.ContainsFunc(fields, func(f FieldType) bool {
		return f.Must != "" && slices.ContainsFunc(value.Fields, func(g Field) bool { return g.Key == f.Name })
	})
}

// Unique returns the fields of a map and reports repeated ones.
func (r *Reader) Unique(n Node) []Field {
	fields, repeated := n.Unique()
	r.Add(repeated)
	return fields
}

// Plain returns the value of a node in the types of encoding/json, with numbers as
// json.Number.
func (r *Reader) Plain(n Node) any {
	switch n.Shape {
	case List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = r.Plain(item)
		}
		return list
	case Map:
		fields := make(map[string]any, len(n.Fields))
		for _, f := range r.Unique(n) {
			fields[f.Key] = r.Plain(f.Value)
		}
		return fields
	}
	return n.Value
}

// check runs the check that a field's tag names.
func (r *Reader) check(name string, f Field, t reflect.Type, where string) {
	c := r.Rules.Check(name)
	switch {
	case name == "" || r.bad[where]:
	case t.Kind() == reflect.Slice && f.Value.Shape == List:
		if n := len(f.Value.Items); c.Max > 0 && n > c.Max {
			r.Report(where, "invalid-value", fmt.Sprintf("%s has %d items, %d are allowed", where, n, c.Max), "")
		}
		c.Max = 0
		for i, item := range f.Value.Items {
			key := strconv.Itoa(i + 1)
			r.one(c, Field{Place: item.Place, Key: key, Value: item}, Join(where, key))
		}
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
		entries, _ := f.Value.Unique()
		for _, entry := range entries {
			r.one(c, entry, Join(where, entry.Key))
		}
	default:
		r.one(c, f, where)
	}
}

// one runs a check on one value.
func (r *Reader) one(c Check, f Field, where string) {
	text, _ := f.Value.Value.(string)
	switch {
	case r.bad[where]:
	case c.Pattern != "" && (!regexp.MustCompile(c.Pattern).MatchString(text) || strings.ContainsAny(text, "\x00\r\n")):
		r.Report(where, "invalid-value", fmt.Sprintf("%s must be %s, not %s", where, c.Wants, Quote(text)), "")
	case c.Max > 0 && len(text) > c.Max:
		r.Report(where, "invalid-value", fmt.Sprintf("%s is longer than %d bytes", where, c.Max), "")
	case c.Func != nil:
		c.Func(f, where)
	}
}

// Controls reports control characters in the texts of a file, except at places that
// have another problem.
func (r *Reader) Controls(root Node) {
	controls := Reader{File: r.File}
	controls.Add(ControlCharacters(root))
	r.Problems = append(r.Problems, Unreported(controls.Problems, r.Problems)...)
}
