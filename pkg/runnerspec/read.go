package runnerspec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// checker reads nodes into configurations and remembers where everything
// stands and what is wrong with it.
type checker struct {
	file     string
	problems []Problem
	warnings []Problem
	places   map[string]yamldoc.Place // by path, such as "runner_configuration.job.image"
	flags    []string                 // paths of the settings, by their places
	bad      map[string]bool          // paths of which a problem is reported already
}

func newChecker(file string) *checker {
	return &checker{file: file, places: map[string]yamldoc.Place{}, bad: map[string]bool{}}
}

func (c *checker) result(s *Spec) Result {
	r := Result{Problems: yamldoc.Finish(c.problems), Warnings: yamldoc.Finish(c.warnings)}
	if len(r.Problems) == 0 {
		r.Spec = s
	}
	return r
}

func (c *checker) at(p yamldoc.Place, code, message, hint string) {
	c.problems = append(c.problems, c.problem(p, code, message, hint))
}

// report reports a problem of the field at the path, once.
func (c *checker) report(where, code, message, hint string) {
	if c.bad[where] {
		return
	}
	c.bad[where] = true
	c.at(c.placeOf(where), code, message, hint)
}

func (c *checker) warn(where, code, message, hint string) {
	c.warnings = append(c.warnings, c.problem(c.placeOf(where), code, message, hint))
}

// placeOf returns where the path stands, or else what holds it.
func (c *checker) placeOf(where string) yamldoc.Place {
	for {
		if p, ok := c.places[where]; ok {
			return p
		}
		i := strings.LastIndexByte(where, '.')
		if i < 0 {
			return yamldoc.Place{Line: 1, Column: 1}
		}
		where = where[:i]
	}
}

// readFile reads YAML or JSON, and puts the settings on top. ok is false if
// there is nothing to make sense of.
func (c *checker) readFile(src []byte, settings []string) (root yamldoc.Node, ok bool) {
	if len(src) > MaxFileSize {
		c.at(yamldoc.Place{Line: 1, Column: 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", MaxFileSize), "")
		return root, false
	}
	read := yamldoc.Read
	if json.Valid(src) {
		read = yamldoc.ReadJSON
	}
	root, problems := read(src)
	for _, p := range problems {
		p.File = c.file
		c.problems = append(c.problems, p)
	}
	if len(problems) == 0 && root.IsNull() && len(settings) > 0 {
		root = yamldoc.Node{Place: root.Place, Shape: yamldoc.Map} // all of it is in the settings
	}
	if len(problems) == 0 && root.Shape != yamldoc.Map {
		c.at(root.Place, "wrong-type", "the file must be a map, not "+root.Describe(), "Its fields are: "+strings.Join(names(fieldsOf(reflect.TypeFor[head]())), ", ")+".")
	}
	if len(c.problems) == 0 {
		root = c.settings(root, settings)
	}
	return root, len(c.problems) == 0
}

// spec reads the whole configuration.
func (c *checker) spec(root yamldoc.Node) *Spec {
	s := c.parts(root)
	var controls []Problem
	for _, p := range yamldoc.ControlCharacters(root) {
		controls = append(controls, c.problem(yamldoc.Place{Line: p.Line, Column: p.Column}, p.Code, p.Message, p.Hint))
	}
	c.problems = append(c.problems, yamldoc.Unreported(controls, c.problems)...)
	return s
}

// parts reads the head, the runner and its state storage.
func (c *checker) parts(root yamldoc.Node) *Spec {
	var h head
	c.structure(root, reflect.ValueOf(&h).Elem(), "")
	s := &Spec{ID: h.ID, Description: h.Description, Group: h.Group, Install: h.Install}
	if h.Group != "" && h.Install != "" {
		c.report("install", "conflicting-fields", `"group" and "install" are both given`, "A runner serves a group, or one install.")
	}
	var kinds []string
	for _, k := range Kinds() {
		kinds = append(kinds, string(k))
	}
	if n, ok := child(root, "runner_configuration"); ok {
		kind := c.kindOf(n, "runner_configuration", "runner", kinds, kindAliases())
		if s.Runner = newConfiguration(Kind(kind)); s.Runner != nil {
			c.structure(n, reflect.ValueOf(s.Runner).Elem(), "runner_configuration")
		}
	}
	var storages []string
	for _, k := range StorageKinds() {
		storages = append(storages, string(k))
	}
	if n, ok := child(root, "state_storage_configuration"); ok {
		kind := c.kindOf(n, "state_storage_configuration", "state storage", storages, nil)
		if s.Storage = newStorage(StorageKind(kind)); s.Storage != nil {
			c.structure(n, reflect.ValueOf(s.Storage).Elem(), "state_storage_configuration")
		}
	}
	if s.Runner == nil || s.Storage == nil {
		return nil
	}
	c.checkJob(s.Runner)
	s.Runner.check(c)
	if ok, why := Compatible(s.Runner.Kind(), s.Storage.Kind()); !ok {
		c.report("state_storage_configuration.type", "incompatible-storage",
			fmt.Sprintf("a runner of kind %s cannot keep states in %s: %s", s.Runner.Kind(), s.Storage.Kind(), why),
			"It can in: "+strings.Join(storagesOf(s.Runner.Kind()), ", ")+".")
	}
	return s
}

// kindOf returns the type that a configuration names, or "".
func (c *checker) kindOf(n yamldoc.Node, where, noun string, known []string, aliases map[string]Kind) string {
	if n.Shape != yamldoc.Map {
		return "" // structure of head has said so
	}
	t, ok := child(n, "type")
	if !ok || t.IsNull() {
		c.at(n.Place, "missing-field", fmt.Sprintf("%s lacks the field \"type\"", where), "The types are: "+strings.Join(known, ", ")+".")
		return ""
	}
	text, ok := t.Value.(string)
	if !ok || t.Shape != yamldoc.Scalar {
		c.at(t.Place, "wrong-type", fmt.Sprintf("%s.type must be a string, not %s", where, t.Describe()), "")
		return ""
	}
	if slices.Contains(known, text) {
		return text
	}
	hint := yamldoc.DidYouMean(text, "types", known)
	if k, ok := aliases[text]; ok {
		hint = fmt.Sprintf("Did you mean %q?", string(k))
	}
	c.at(t.Place, "unknown-type", fmt.Sprintf("%s is no kind of %s", yamldoc.Quote(text), noun), hint)
	return ""
}

// fieldSpec is a field as its tags declare it.
type fieldSpec struct {
	name    string
	index   []int
	typ     reflect.Type
	must    bool
	check   string
	aliases []string
	doc     string
}

// fieldsOf returns the fields of a struct, those of embedded structs among
// them.
func fieldsOf(t reflect.Type) []fieldSpec {
	var specs []fieldSpec
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		specs = append(specs, fieldSpec{
			name: name, index: f.Index, typ: f.Type, must: f.Tag.Get("must") != "", check: f.Tag.Get("check"),
			aliases: strings.Fields(f.Tag.Get("alias")), doc: f.Tag.Get("doc"),
		})
	}
	return specs
}

func names(specs []fieldSpec) []string {
	var all []string
	for _, s := range specs {
		all = append(all, s.name)
	}
	return all
}

func join(where, field string) string { return strings.TrimPrefix(where+"."+field, ".") }

// nameOf says where a path leads.
func nameOf(where string) string {
	if where == "" {
		return "the file"
	}
	return yamldoc.Printable(where)
}

func (c *checker) wrongType(n yamldoc.Node, where, wants, hint string) {
	c.places[where] = n.Place
	c.report(where, "wrong-type", fmt.Sprintf("%s must be %s, not %s", nameOf(where), wants, n.Describe()), hint)
}

// structure reads a map into a struct.
func (c *checker) structure(n yamldoc.Node, v reflect.Value, where string) {
	c.places[where] = n.Place
	specs := fieldsOf(v.Type())
	if n.Shape != yamldoc.Map {
		c.wrongType(n, where, "a map", "Its fields are: "+strings.Join(names(specs), ", ")+".")
		return
	}
	given := map[string]bool{}
	for _, f := range c.unique(n) {
		i := slices.IndexFunc(specs, func(s fieldSpec) bool { return s.name == f.Key })
		if i < 0 {
			hint := fieldHint(f.Key, specs)
			c.at(f.Place, "unknown-field", fmt.Sprintf("%s has no field %s", nameOf(where), yamldoc.Quote(f.Key)), hint)
			for _, s := range specs {
				if hint == meant(s.name) {
					c.bad[join(where, s.name)] = true // it is not missing, it is misspelt
				}
			}
			continue
		}
		given[f.Key] = true
		path := join(where, f.Key)
		c.places[path] = f.Value.Place
		if f.Value.IsNull() && !specs[i].must {
			continue
		}
		c.value(f.Value, v.FieldByIndex(specs[i].index), path)
		c.checkField(specs[i].check, v.FieldByIndex(specs[i].index), f.Value, path)
	}
	for _, spec := range specs {
		path := join(where, spec.name)
		if !spec.must || c.bad[path] || given[spec.name] && !empty(v.FieldByIndex(spec.index)) {
			continue
		}
		message := fmt.Sprintf("%s lacks the field %q", nameOf(where), spec.name)
		if given[spec.name] {
			message = fmt.Sprintf("%s is empty", path)
		}
		c.report(path, "missing-field", message, spec.doc)
	}
}

// empty reports whether a field that must be there says nothing. A map of our
// own says by itself what it lacks.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

func meant(name string) string { return fmt.Sprintf("Did you mean %q?", name) }

// fieldHint names the field that was probably meant, also one that belongs
// into a map of the same level.
func fieldHint(got string, specs []fieldSpec) string {
	if got == "identity" {
		return "The environment of an agent says how it proves who it is, and `fairlead runner trust create` or --aws-role lets it in."
	}
	named := func(specs []fieldSpec) string {
		for _, s := range specs {
			if s.name == got || slices.Contains(s.aliases, got) {
				return s.name
			}
		}
		return ""
	}
	if name := named(specs); name != "" {
		return meant(name)
	}
	for _, s := range specs {
		t := s.typ
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue
		}
		if name := named(fieldsOf(t)); name != "" {
			return fmt.Sprintf("Did you mean %q in %q?", name, s.name)
		}
	}
	return yamldoc.DidYouMean(got, "fields", names(specs))
}

// value reads a node into a field of any type that a configuration has.
func (c *checker) value(n yamldoc.Node, v reflect.Value, where string) {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text := ""
		switch value := n.Value.(type) {
		case string:
			text = value
		case json.Number:
			text = string(value)
		}
		if err := u.UnmarshalText([]byte(text)); err != nil {
			c.report(where, "invalid-value", fmt.Sprintf("%s %v", where, err), "")
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		c.structure(n, v.Elem(), where)
	case reflect.Struct:
		if v.NumField() > 0 {
			c.structure(n, v, where)
		} else if n.Shape != yamldoc.Map {
			c.wrongType(n, where, "a map", "")
		}
	case reflect.String:
		text, ok := n.Value.(string)
		if !ok || n.Shape != yamldoc.Scalar {
			hint := ""
			if n.Shape == yamldoc.Scalar && n.Value != nil {
				hint = "Put quotes around it."
			}
			c.wrongType(n, where, "a string", hint)
			return
		}
		v.SetString(text)
	case reflect.Bool:
		b, ok := n.Value.(bool)
		if !ok {
			c.wrongType(n, where, "true or false", "")
		}
		v.SetBool(b)
	case reflect.Int:
		number, _ := n.Value.(json.Number)
		i, err := strconv.Atoi(string(number))
		if err != nil {
			c.wrongType(n, where, "a whole number", "")
		}
		v.SetInt(int64(i))
	case reflect.Slice:
		if n.Shape != yamldoc.List {
			c.wrongType(n, where, "a list", "Write [ ] around it, or each on a line of its own behind a hyphen.")
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items))
		for i, item := range n.Items {
			path := fmt.Sprintf("%s.%d", where, i+1)
			c.places[path] = item.Place
			c.value(item, list.Index(i), path)
		}
		v.Set(list)
	case reflect.Map:
		c.mapping(n, v, where)
	default:
		panic("runnerspec: no configuration has a field of type " + v.Type().String())
	}
}

// mapping reads a map of strings, or an Object.
func (c *checker) mapping(n yamldoc.Node, v reflect.Value, where string) {
	if n.Shape != yamldoc.Map {
		c.wrongType(n, where, "a map", "")
		return
	}
	if _, ok := v.Interface().(Object); ok {
		v.Set(reflect.ValueOf(Object(c.plain(n, where).(map[string]any))))
		return
	}
	out := make(map[string]string, len(n.Fields))
	for _, f := range c.unique(n) {
		path := join(where, f.Key)
		c.places[path] = f.Place
		text, ok := f.Value.Value.(string)
		if !ok || f.Value.Shape != yamldoc.Scalar {
			c.wrongType(f.Value, path, "a string", "Put quotes around it.")
			continue
		}
		out[f.Key] = text
	}
	v.Set(reflect.ValueOf(out))
}

// unique returns the fields of a map and reports those that are repeated.
func (c *checker) unique(n yamldoc.Node) []yamldoc.Field {
	fields, repeated := n.Unique()
	for _, p := range repeated {
		c.at(yamldoc.Place{Line: p.Line, Column: p.Column}, p.Code, p.Message, p.Hint)
	}
	return fields
}

// plain returns a node as encoding/json would.
func (c *checker) plain(n yamldoc.Node, where string) any {
	switch n.Shape {
	case yamldoc.List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = c.plain(item, where)
		}
		return list
	case yamldoc.Map:
		fields := make(map[string]any, len(n.Fields))
		for _, f := range c.unique(n) {
			fields[f.Key] = c.plain(f.Value, where)
		}
		return fields
	}
	return n.Value
}

// checkField runs the check that the field's tag names.
func (c *checker) checkField(check string, v reflect.Value, n yamldoc.Node, where string) {
	if check == "" || c.bad[where] {
		return
	}
	if check == "podtemplate" {
		c.podTemplate(n, where)
		return
	}
	if check == "concurrency" {
		if i := v.Int(); i < 1 || i > maxConcurrency {
			c.report(where, "invalid-value", fmt.Sprintf("%s must be from 1 to %d", where, maxConcurrency), "")
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		c.text(check, v.String(), where)
	case reflect.Slice:
		if check == "subnets" || check == "securitygroups" {
			c.atMost(check, v.Len(), where)
		}
		for i := range v.Len() {
			c.text(check, v.Index(i).String(), fmt.Sprintf("%s.%d", where, i+1))
		}
	case reflect.Map:
		m := v.Interface().(map[string]string)
		for _, key := range slices.Sorted(maps.Keys(m)) {
			c.entry(check, key, m[key], join(where, key))
		}
	}
}
