package appspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Parse reads app.yaml without looking for the sources that it names. filename
// is what problems say. It returns the app, or everything that is wrong with
// it; never both, never neither. It never panics and takes time and memory in
// proportion to len(src), which is bounded by MaxFileSize.
func Parse(filename string, src []byte) (*App, Problems) {
	app, _, problems := parseFile(filename, src)
	return app, problems
}

// parseFile is Parse that also returns where everything stands.
func parseFile(filename string, src []byte) (*App, *reader, Problems) {
	r := &reader{file: filename, places: map[string]place{"": {1, 1}}, silent: map[string]bool{}, sources: map[string]string{}}
	if len(src) > MaxFileSize {
		r.at(place{1, 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", MaxFileSize), "Keep files and data in the modules.")
		return nil, r, r.problems
	}
	root, problems := readYAML(src)
	for _, p := range problems {
		p.File = filename
		r.problems = append(r.problems, p)
	}
	if hasCode(problems, "malformed-yaml") || (len(problems) > 0 && root.shape == scalarNode) {
		return nil, r, finish(r.problems) // there is nothing to make sense of
	}
	app := r.app(root)
	check(app, r.report)
	if len(r.problems) > 0 {
		return nil, r, finish(r.problems)
	}
	addImplied(app)
	slices.SortFunc(app.Inputs, func(a, b Input) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(app.Components, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	return app, r, nil
}

func hasCode(ps Problems, code string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Code == code })
}

// reader turns nodes into an App and remembers where everything stands.
type reader struct {
	file     string
	problems Problems
	places   map[string]place  // by the paths that check reports
	silent   map[string]bool   // paths of which the problem is reported already
	sources  map[string]string // clean source by component, where there is one
}

func (r *reader) at(p place, code, message, hint string) {
	r.problems = append(r.problems, Problem{File: r.file, Line: p.line, Column: p.column, Code: code, Message: message, Hint: hint})
}

// report is the reporter for check: it finds the place of where, or of what
// holds it, and keeps quiet about what could not be read in the first place.
func (r *reader) report(where, code, message, hint string) {
	if r.silent[where] {
		return
	}
	r.at(r.placeOf(where), code, message, hint)
}

func (r *reader) placeOf(where string) place {
	for {
		if p, ok := r.places[where]; ok {
			return p
		}
		cut := strings.LastIndexAny(where, ".|")
		if bar := strings.IndexByte(where, '|'); bar >= 0 {
			cut = bar
		}
		if cut < 0 {
			return r.places[""]
		}
		where = where[:cut]
	}
}

// wrongType reports a node that is not what it should be, and silences what
// check would say about the nothing that is read instead.
func (r *reader) wrongType(n node, where, wants, hint string) {
	r.silent[where] = true
	r.at(n.place, "wrong-type", fmt.Sprintf("%s must be %s, not %s", name(where), wants, describeNode(n)), hint)
}

// name says where a path leads, in words.
func name(where string) string {
	if where == "" {
		return "the file"
	}
	return printable(where)
}

func describeNode(n node) string {
	switch n.shape {
	case listNode:
		return "a list"
	case mapNode:
		return "a map"
	}
	return describe(n.value)
}

// object reads a map with the fields of specs and reports fields that are
// unknown, repeated or missing. ok is false if n is no map.
func (r *reader) object(n node, where string, specs []fieldSpec) (fields map[string]node, ok bool) {
	prefix := where
	if where != "" {
		prefix += "."
	}
	if n.shape != mapNode && (n.shape != scalarNode || n.value != nil) {
		var names []string
		for _, spec := range specs {
			names = append(names, spec.name)
		}
		r.wrongType(n, where, "a map", "Its fields are: "+strings.Join(names, ", ")+".")
		return nil, false
	}
	fields = map[string]node{}
	first := map[string]place{}
	for _, f := range n.fields {
		i := slices.IndexFunc(specs, func(s fieldSpec) bool { return s.name == f.key })
		if i < 0 {
			r.at(f.place, "unknown-field", fmt.Sprintf("%s has no field %s", name(where), quote(f.key)), fieldHint(f.key, specs))
			continue
		}
		if before, twice := first[f.key]; twice {
			r.at(f.place, "duplicate-key", fmt.Sprintf("the field %q is repeated; it stands in line %d already", f.key, before.line), "Remove one of the two.")
			continue
		}
		first[f.key] = f.place
		r.places[prefix+f.key] = f.value.place
		fields[f.key] = f.value
	}
	for _, spec := range specs {
		if _, ok := fields[spec.name]; spec.required && !ok {
			hint := spec.doc
			if spec.name == "fairlead" {
				hint = "Begin the file with: fairlead: " + FormatVersion
			}
			r.silent[prefix+spec.name] = true
			r.at(r.placeOf(where), "missing-field", fmt.Sprintf("%s lacks the field %q", name(where), spec.name), hint)
		}
	}
	return fields, true
}

func fieldHint(got string, specs []fieldSpec) string {
	var names []string
	for _, spec := range specs {
		if slices.Contains(spec.aliases, got) {
			return fmt.Sprintf("Did you mean %q?", spec.name)
		}
		names = append(names, spec.name)
	}
	return didYouMean(got, "fields", names)
}

func (r *reader) string(fields map[string]node, where, field string) string {
	n, ok := fields[field]
	if !ok {
		return ""
	}
	where = strings.TrimPrefix(where+"."+field, ".")
	text, ok := n.value.(string)
	if n.shape != scalarNode || !ok {
		hint := ""
		if n.shape == scalarNode && n.value != nil {
			hint = "Put quotes around it."
		}
		r.wrongType(n, where, "a string", hint)
	}
	return text
}

// bool reads a bool; given is false where nothing or no bool is there.
func (r *reader) bool(fields map[string]node, where, field string) (value, given bool) {
	n, ok := fields[field]
	if !ok || (n.shape == scalarNode && n.value == nil) {
		return false, false
	}
	value, ok = n.value.(bool)
	if n.shape != scalarNode || !ok {
		r.wrongType(n, where+"."+field, "true or false", "")
	}
	return value, ok
}

func (r *reader) app(root node) *App {
	a := &App{Inputs: []Input{}}
	r.places[""] = root.place
	fields, ok := r.object(root, "", appFields())
	if !ok {
		for _, where := range []string{"name", "components"} {
			r.silent[where] = true
		}
		return a
	}
	if version, ok := fields["fairlead"]; ok && (version.shape != scalarNode || version.value != FormatVersion) {
		got := describeNode(version)
		switch v := version.value.(type) {
		case string:
			got = quote(v)
		case json.Number:
			got = string(v)
		}
		r.at(version.place, "unknown-version", fmt.Sprintf("the format %s is unknown", got), fmt.Sprintf("This program reads %q.", FormatVersion))
	}
	a.Name = r.string(fields, "", "name")
	if n, ok := fields["description"]; ok && (n.shape != scalarNode || n.value != nil) {
		a.Description = r.string(fields, "", "description")
	}
	r.named(fields["inputs"], "inputs", "input", func(where, key string, n node) {
		a.Inputs = append(a.Inputs, r.input(where, key, n))
	})
	r.named(fields["components"], "components", "component", func(where, key string, n node) {
		a.Components = append(a.Components, r.component(where, key, n))
	})
	return a
}

// named reads a map from names to things.
func (r *reader) named(n node, where, noun string, each func(where, key string, n node)) {
	if n.shape == scalarNode && n.value == nil {
		return
	}
	if n.shape != mapNode {
		r.wrongType(n, where, "a map", fmt.Sprintf("Write the name of each %s as a key, with its fields indented below.", noun))
		return
	}
	first := map[string]place{}
	for _, f := range n.fields {
		if before, twice := first[f.key]; twice {
			r.at(f.place, "duplicate-name", fmt.Sprintf("the %s %s is declared twice, first in line %d", noun, quote(f.key), before.line), "Rename or remove one of the two.")
			continue
		}
		first[f.key] = f.place
		r.places[where+"."+f.key] = f.place
		each(where+"."+f.key, f.key, f.value)
	}
}

func (r *reader) input(where, key string, n node) Input {
	in := Input{Name: key, Type: String}
	fields, ok := r.object(n, where, inputFields())
	if !ok {
		return in
	}
	if t, ok := fields["type"]; ok {
		text := r.string(fields, where, "type")
		if parsed, err := ParseType(text); err == nil {
			in.Type = parsed
		} else if t.shape == scalarNode && t.value == text {
			r.at(t.place, "unknown-type", fmt.Sprintf("%s is not a type of input", quote(text)), typeHint(text))
			in.Type = Any // whatever the default is, it is not what is wrong
		} else {
			in.Type = Any
		}
	}
	in.Sensitive, _ = r.bool(fields, where, "sensitive")
	if n, ok := fields["description"]; ok && (n.shape != scalarNode || n.value != nil) {
		in.Description = r.string(fields, where, "description")
	}
	if n, ok := fields["default"]; ok {
		in.HasDefault = true
		in.Default = r.literal(n, where+".default")
	}
	required, given := r.bool(fields, where, "required")
	in.Required = required || (!given && !in.HasDefault)
	return in
}

// literal reads a JSON value in which references have no meaning.
func (r *reader) literal(n node, where string) any {
	switch n.shape {
	case listNode:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = r.literal(item, where)
		}
		return items
	case mapNode:
		fields := make(map[string]any, len(n.fields))
		for _, f := range r.unique(n) {
			fields[f.key] = r.literal(f.value, where)
		}
		return fields
	}
	if text, ok := n.value.(string); ok && strings.Contains(text, "${") {
		p := n.place
		if len(n.dollar) > 0 {
			p = n.dollar[0]
		}
		r.at(p, "reference-in-default", "a default cannot hold a reference", "Put the reference into a component's vars.")
	}
	return n.value
}

// unique returns the fields of a map with keys of any name, and reports those
// that are repeated.
func (r *reader) unique(n node) []field {
	first := map[string]place{}
	fields := make([]field, 0, len(n.fields))
	for _, f := range n.fields {
		if before, twice := first[f.key]; twice {
			r.at(f.place, "duplicate-key", fmt.Sprintf("the key %s is repeated; it stands in line %d already", quote(f.key), before.line), "Remove one of the two.")
			continue
		}
		first[f.key] = f.place
		fields = append(fields, f)
	}
	return fields
}

func (r *reader) component(where, key string, n node) Component {
	c := Component{Name: key}
	fields, ok := r.object(n, where, componentFields())
	if !ok {
		r.silent[where+".type"], r.silent[where+".source"] = true, true
		return c
	}
	c.Type = r.string(fields, where, "type")
	c.Source = r.string(fields, where, "source")
	if clean, message, _ := cleanSource(c.Source); message == "" {
		c.Source = clean
		r.sources[key] = clean
	}
	if n := fields["depends_on"]; n.shape == listNode {
		c.DependsOn = r.dependsOn(n, where+".depends_on")
	} else if n.shape != scalarNode || n.value != nil {
		r.wrongType(n, where+".depends_on", "a list", "Write [ ] around the names.")
	}
	if n := fields["vars"]; n.shape == mapNode {
		c.Vars = make(map[string]Value, len(n.fields))
		for _, f := range r.unique(n) {
			place := where + ".vars." + f.key
			r.places[place] = f.place
			c.Vars[f.key] = r.value(f.value, place)
		}
	} else if n.shape != scalarNode || n.value != nil {
		r.wrongType(n, where+".vars", "a map", "Write the name of each variable as a key.")
	}
	return c
}

func (r *reader) dependsOn(n node, where string) []string {
	var names []string
	for _, item := range n.items {
		text, ok := item.value.(string)
		switch {
		case item.shape != scalarNode || !ok:
			r.wrongType(item, where, "a list of components' names", "")
		case slices.Contains(names, text):
			r.at(item.place, "duplicate-name", fmt.Sprintf("the component %s is listed twice", quote(text)), "")
		default:
			names = append(names, text)
			r.places[where+"|"+text] = item.place
		}
	}
	return names
}

// value reads the value of a variable, with references anywhere in it.
func (r *reader) value(n node, where string) Value {
	switch n.shape {
	case listNode:
		items := make([]Value, len(n.items))
		for i, item := range n.items {
			items[i] = r.value(item, where)
		}
		return listOf(items)
	case mapNode:
		fields := make(map[string]Value, len(n.fields))
		for _, f := range r.unique(n) {
			if strings.Contains(f.key, "${") {
				r.at(f.place, "invalid-reference", fmt.Sprintf("the key %s cannot hold a reference", quote(f.key)), "Build the map in the module.")
			}
			fields[f.key] = r.value(f.value, where)
		}
		return mapOf(fields)
	}
	text, ok := n.value.(string)
	if !ok {
		return Value{literal: n.value}
	}
	v, errs := parseText(text)
	dollar := func(i int) place {
		if i < len(n.dollar) {
			return n.dollar[i]
		}
		return n.place
	}
	for _, err := range errs {
		r.at(dollar(err.occurrence), err.code, err.message, err.hint)
	}
	// Each "${" of a text that parses is an escape or begins one reference.
	occurrence := 0
	for rest := text; len(errs) == 0; occurrence++ {
		i := strings.Index(rest, "${")
		if i < 0 {
			break
		}
		if escaped := i > 0 && rest[i-1] == '$'; !escaped {
			if ref, _, err := parseReference(rest[i:]); err == nil {
				key := where + "|" + ref.String()
				if _, known := r.places[key]; !known {
					r.places[key] = dollar(occurrence)
				}
			}
		}
		rest = rest[i+2:]
	}
	return v
}
