package yamlnode

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// FieldType is a field of a configuration, as the tags of a struct declare it:
//
//	json   the field's name
//	doc    what it is, for people; a field of the struct without it is none of the file
//	must   "true": it must be there and say something; "there": it must be there
//	alias  what newcomers write instead, separated by spaces
//	check  the name of its Check
//	only   which of those who write such files may give it; the Reader does not heed it
//	key    what the struct is called, where it stands in a map under the field's value
type FieldType struct {
	Name, Doc, Must, Check string
	Only                   string
	Aliases                []string
	Type                   reflect.Type
	index                  []int
}

// FieldsOf returns the fields of a struct, those of embedded structs among them.
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

// KeyOf returns the field of a struct that takes its name, and what the struct
// is called; noun is "" if it does not stand under a name.
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

// FieldList is a hint that names the fields of a struct.
func FieldList(t reflect.Type) string {
	return "Its fields are: " + strings.Join(names(FieldsOf(t)), ", ") + "."
}

func has(fields []FieldType, name string) bool { return slices.Contains(names(fields), name) }

// Schema is a JSON schema (draft 2020-12), or a part of one.
type Schema = map[string]any

// Check says more of a field than its type does. Of a list it says what each
// item is, and of a map with texts what each entry is.
type Check struct {
	Pattern string                      // what a text looks like; "" if that cannot be said
	Wants   string                      // what that is, for people
	Max     int                         // most bytes of a text, or items of a list; 0 for any
	Func    func(f Field, where string) // may be nil; it is called for what the pattern lets pass
	Schema  Schema                      // what a schema says of the whole field
	Doc     string                      // put behind the doc of the field
}

// Union is a field that is one of several structs, which its own field "type"
// names.
type Union struct {
	Noun    string            // what it is
	Names   []string          // of the types
	Aliases map[string]string // what newcomers write instead of a name
	New     func(name string) any
}

// Rules are what a configuration has beside the tags of its structs.
type Rules struct {
	Checks map[string]Check       // by the names that tags use
	Unions map[reflect.Type]Union // by the interface that is the type of the field
	// Hint says what is meant by a field that the map at where does not have, if
	// it knows better than the nearest name. It may be nil.
	Hint func(where string, f Field, in Node) string
}

// Check returns the check that a tag names, an empty one for "". A name that is
// not known is a mistake in the code, which the schema's test meets.
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

// Reader reads nodes into structs, as the tags of their fields say, and keeps
// where everything stands and what is wrong with it. A path such as
// "components.web.source" names a field; what else has a place has a name behind
// a bar there.
type Reader struct {
	File     string // as the caller calls it
	Rules    Rules
	Problems []Problem

	nodes map[string]Node
	bad   map[string]bool // paths of which a problem is reported already
}

// NewReader returns a Reader that has read nothing.
func NewReader(file string, rules Rules) *Reader {
	return &Reader{File: file, Rules: rules, nodes: map[string]Node{}, bad: map[string]bool{}}
}

// Source reads a file of up to limit bytes; hint says what to do about a larger
// one. The node is null if nothing can be made of it.
func (r *Reader) Source(read func([]byte) (Node, []Problem), src []byte, limit int, hint string) Node {
	if len(src) > limit {
		r.At(Place{1, 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", limit), hint)
		return Node{}
	}
	root, problems := read(src)
	r.Add(problems)
	return root
}

// Add adds problems that name no file yet.
func (r *Reader) Add(problems []Problem) {
	for _, p := range problems {
		p.File = r.File
		r.Problems = append(r.Problems, p)
	}
}

// At reports a problem at a place.
func (r *Reader) At(p Place, code, message, hint string) {
	r.Add([]Problem{{Line: p.Line, Column: p.Column, Code: code, Message: message, Hint: hint}})
}

// Report reports a problem of what is at the path, once.
func (r *Reader) Report(where, code, message, hint string) {
	r.fail(where, r.Node(where).Place, code, message, hint)
}

func (r *Reader) fail(where string, at Place, code, message, hint string) {
	if !r.bad[where] {
		r.bad[where] = true
		r.At(at, code, message, hint)
	}
}

// Bad reports whether there is a problem of what is at the path itself.
func (r *Reader) Bad(where string) bool { return r.bad[where] }

// WrongType reports a node that is not what the path wants.
func (r *Reader) WrongType(n Node, where, wants, hint string) {
	r.fail(where, n.Place, "wrong-type", fmt.Sprintf("%s must be %s, not %s", NameOf(where), wants, n.Describe()), hint)
}

// Given reports whether the path is in the file, be it as a null.
func (r *Reader) Given(where string) bool {
	_, ok := r.nodes[where]
	return ok
}

// Put says what is at a path.
func (r *Reader) Put(where string, n Node) { r.nodes[where] = n }

// Node returns what is at the path, or else what holds it. That of an entry of a
// map has the place of its key.
func (r *Reader) Node(where string) Node {
	for {
		n, ok := r.nodes[where]
		if ok || where == "" {
			if n.Place == (Place{}) {
				n.Place = Place{1, 1}
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

// NameOf says where a path leads.
func NameOf(where string) string {
	if where == "" {
		return "the file"
	}
	return Printable(where)
}

// Join returns the path of a field of what is at the path where.
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
		case !given:
			r.Report(path, "missing-field", fmt.Sprintf("%s lacks the field %q", NameOf(where), f.Name), f.Doc+r.Rules.Check(f.Check).Doc)
		case f.Must == "true" && (is.Value == "" || is.Shape == List && len(is.Items) == 0):
			r.Report(path, "missing-field", path+" is empty", f.Doc)
		}
	}
}

// complete keeps quiet about fields that are missing from what is at the path.
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
			r.bad[Join(where, of.Name)] = true // it is not missing, it is misspelt
		}
	}
}

func meant(name string) string { return fmt.Sprintf("Did you mean %q?", name) }

// fieldHint names the field that was probably meant, also one that belongs
// into a map of the same level.
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

// value reads a node into a field of any type that a configuration has. ok is
// false if nothing could be made of it.
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
		wants, hint, ok = "a list", "Write [ ] around it, or each on a line of its own behind a hyphen.", n.Shape == List
		r.items(n, v, where)
	case reflect.Map:
		wants, hint, ok = "a map", "Write the name of each as a key, with its value behind a colon.", n.Shape == Map
		r.entries(n, v, where)
	default:
		wants, hint, ok = scalar(n, v)
	}
	if !ok {
		r.WrongType(n, where, wants, hint)
	}
	return ok
}

// scalar reads a node into a text, a truth or a number. ok is false if it is
// something else than what is wanted.
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
	panic("yamlnode: no configuration has a field of type " + v.Type().String())
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

// entries reads a map whose keys are not ours.
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
		r.fail(where, t.Place, "unknown-type", fmt.Sprintf("%s is no kind of %s", Quote(text), u.Noun), hint)
	default:
		to := u.New(text)
		v.Set(reflect.ValueOf(to))
		r.structure(n, reflect.ValueOf(to).Elem(), where)
	}
}

// named reads a map from names to structs into a list of them.
func (r *Reader) named(n Node, v reflect.Value, where string, key reflect.StructField, noun string) {
	if n.Shape != Map && !n.IsNull() {
		r.WrongType(n, where, "a map", fmt.Sprintf("Write the name of each %s as a key, with its fields indented below.", noun))
		return
	}
	first := map[string]int{}
	for _, f := range r.indented(n, FieldsOf(v.Type().Elem()), where, noun) {
		if line, twice := first[f.Key]; twice {
			r.At(f.Place, "duplicate-name", fmt.Sprintf("the %s %s is declared twice, first in line %d", noun, Quote(f.Key), line), "Rename or remove one of the two.")
			continue
		}
		first[f.Key] = f.Line
		path := Join(where, f.Key)
		r.Put(path, Node{Place: f.Place})
		to := reflect.New(v.Type().Elem()).Elem()
		to.FieldByIndex(key.Index).SetString(f.Key)
		r.structure(f.Value, to, path)
		v.Set(reflect.Append(v, to))
	}
}

// indented returns the fields of a map from names to structs without those that
// are one level too high: the field of a struct that stands beside it. It
// reports the first of each run of them.
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
				fmt.Sprintf("%s stands beside the %s %s, not in it", Quote(f.Key), noun, Quote(owner)),
				fmt.Sprintf("Is it indented too little? Indent line %d further, and what belongs to it.", f.Line))
		}
		inRun = true
	}
	return out
}

// misplaced reports whether a value that stands under the name of a field
// cannot be a struct of that name: it has none of the fields that must be there.
func misplaced(value Node, fields []FieldType) bool {
	if !slices.ContainsFunc(fields, func(f FieldType) bool { return f.Must != "" }) {
		return value.Shape == Scalar && value.Value != nil // a struct with no field is a null
	}
	return !slices.ContainsFunc(fields, func(f FieldType) bool {
		return f.Must != "" && slices.ContainsFunc(value.Fields, func(g Field) bool { return g.Key == f.Name })
	})
}

// Unique returns the fields of a map and reports those that are repeated.
func (r *Reader) Unique(n Node) []Field {
	fields, repeated := n.Unique()
	r.Add(repeated)
	return fields
}

// Plain returns a node as encoding/json would.
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

// Controls reports control characters in the texts of a file, but where
// something else is wrong.
func (r *Reader) Controls(root Node) {
	controls := Reader{File: r.File}
	controls.Add(ControlCharacters(root))
	r.Problems = append(r.Problems, Unreported(controls.Problems, r.Problems)...)
}
