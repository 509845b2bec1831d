package appspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamldoc"
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
	r := &reader{file: filename, places: map[string]yamldoc.Place{"": {Line: 1, Column: 1}}, silent: map[string]bool{}, types: map[string]string{}, sources: map[string]string{}, written: map[string]string{}, partial: map[string]bool{}}
	if len(src) > MaxFileSize {
		r.at(yamldoc.Place{Line: 1, Column: 1}, "file-too-large", fmt.Sprintf("the file is larger than %d bytes", MaxFileSize), "Keep files and data in the modules.")
		return nil, r, r.problems
	}
	root, problems := yamldoc.Read(src)
	for _, p := range problems {
		p.File = filename
		r.problems = append(r.problems, p)
	}
	if yamldoc.HasCode(problems, "malformed-yaml") || (len(problems) > 0 && root.Shape == yamldoc.Scalar) {
		return nil, r, yamldoc.Finish(r.problems) // there is nothing to make sense of
	}
	app := r.app(root)
	check(app, r.report)
	controls := yamldoc.ControlCharacters(root)
	for i := range controls {
		controls[i].File = filename
	}
	r.problems = append(r.problems, yamldoc.Unreported(controls, r.problems)...)
	if len(r.problems) > 0 {
		return nil, r, yamldoc.Finish(r.problems)
	}
	addImplied(app)
	slices.SortFunc(app.Inputs, func(a, b Input) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(app.Components, func(a, b Component) int { return cmp.Compare(a.Name, b.Name) })
	return app, r, nil
}

// reader turns nodes into an App and remembers where everything stands.
type reader struct {
	file     string
	problems Problems
	places   map[string]yamldoc.Place // by the paths that check reports
	silent   map[string]bool          // paths of which the problem is reported already
	types    map[string]string        // as written, by component
	sources  map[string]string        // clean source by component, where there is one
	written  map[string]string        // source by component, as it is written
	partial  map[string]bool          // paths of maps whose missing fields stand elsewhere by mistake
}

func (r *reader) at(p yamldoc.Place, code, message, hint string) {
	r.problems = append(r.problems, Problem{File: r.file, Line: p.Line, Column: p.Column, Code: code, Message: message, Hint: hint})
}

// report is the reporter for check: it finds the place of where, or of what
// holds it, and keeps quiet about what could not be read in the first place.
func (r *reader) report(where, code, message, hint string) {
	if r.silent[where] {
		return
	}
	r.at(r.placeOf(where), code, message, hint)
}

func (r *reader) placeOf(where string) yamldoc.Place {
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
func (r *reader) wrongType(n yamldoc.Node, where, wants, hint string) {
	r.silent[where] = true
	r.at(n.Place, "wrong-type", fmt.Sprintf("%s must be %s, not %s", name(where), wants, describeNode(n)), hint)
}

// name says where a path leads, in words.
func name(where string) string {
	if where == "" {
		return "the file"
	}
	return yamldoc.Printable(where)
}

func describeNode(n yamldoc.Node) string {
	switch n.Shape {
	case yamldoc.List:
		return "a list"
	case yamldoc.Map:
		return "a map"
	}
	return describe(n.Value)
}

// object reads a map with the fields of specs and reports fields that are
// unknown, repeated or missing. ok is false if n is no map.
func (r *reader) object(n yamldoc.Node, where string, specs []fieldSpec) (fields map[string]yamldoc.Node, ok bool) {
	prefix := where
	if where != "" {
		prefix += "."
	}
	if n.Shape != yamldoc.Map && (n.Shape != yamldoc.Scalar || n.Value != nil) {
		var names []string
		for _, spec := range specs {
			names = append(names, spec.name)
		}
		r.wrongType(n, where, "a map", "Its fields are: "+strings.Join(names, ", ")+".")
		return nil, false
	}
	fields = map[string]yamldoc.Node{}
	for _, f := range r.unique(n) {
		i := slices.IndexFunc(specs, func(s fieldSpec) bool { return s.name == f.Key })
		if i < 0 {
			hint := r.indentHint(where, f, fields)
			if hint == "" {
				hint = fieldHint(f.Key, specs)
			}
			r.at(f.Place, "unknown-field", fmt.Sprintf("%s has no field %s", name(where), yamldoc.Quote(f.Key)), hint)
			continue
		}
		r.places[prefix+f.Key] = f.Value.Place
		fields[f.Key] = f.Value
	}
	for _, spec := range specs {
		if _, ok := fields[spec.name]; spec.required && !ok {
			if r.partial[where] {
				r.silent[prefix+spec.name] = true
				continue
			}
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
	return yamldoc.DidYouMean(got, "fields", names)
}

func (r *reader) string(fields map[string]yamldoc.Node, where, field string) string {
	n, ok := fields[field]
	if !ok {
		return ""
	}
	where = strings.TrimPrefix(where+"."+field, ".")
	text, ok := n.Value.(string)
	if n.Shape != yamldoc.Scalar || !ok {
		hint := ""
		if n.Shape == yamldoc.Scalar && n.Value != nil {
			hint = "Put quotes around it."
		}
		r.wrongType(n, where, "a string", hint)
	}
	return text
}

// bool reads a bool; given is false where nothing or no bool is there.
func (r *reader) bool(fields map[string]yamldoc.Node, where, field string) (value, given bool) {
	n, ok := fields[field]
	if !ok || (n.Shape == yamldoc.Scalar && n.Value == nil) {
		return false, false
	}
	value, ok = n.Value.(bool)
	if n.Shape != yamldoc.Scalar || !ok {
		r.wrongType(n, where+"."+field, "true or false", "")
	}
	return value, ok
}

func (r *reader) app(root yamldoc.Node) *App {
	a := &App{Inputs: []Input{}}
	r.places[""] = root.Place
	fields, ok := r.object(root, "", appFields())
	if !ok {
		for _, where := range []string{"name", "components"} {
			r.silent[where] = true
		}
		return a
	}
	if version, ok := fields["fairlead"]; ok && (version.Shape != yamldoc.Scalar || version.Value != FormatVersion) {
		got := describeNode(version)
		switch v := version.Value.(type) {
		case string:
			got = yamldoc.Quote(v)
		case json.Number:
			got = string(v)
		}
		r.at(version.Place, "unknown-version", fmt.Sprintf("the format %s is unknown", got), fmt.Sprintf("This program reads %q.", FormatVersion))
	}
	a.Name = r.string(fields, "", "name")
	if n, ok := fields["description"]; ok && (n.Shape != yamldoc.Scalar || n.Value != nil) {
		a.Description = r.string(fields, "", "description")
	}
	r.named(fields["inputs"], "inputs", "input", func(where, key string, n yamldoc.Node) {
		a.Inputs = append(a.Inputs, r.input(where, key, n))
	})
	r.named(fields["components"], "components", "component", func(where, key string, n yamldoc.Node) {
		a.Components = append(a.Components, r.component(where, key, n))
	})
	return a
}

// named reads a map from names to things.
func (r *reader) named(n yamldoc.Node, where, noun string, each func(where, key string, n yamldoc.Node)) {
	if n.Shape == yamldoc.Scalar && n.Value == nil {
		return
	}
	if n.Shape != yamldoc.Map {
		r.wrongType(n, where, "a map", fmt.Sprintf("Write the name of each %s as a key, with its fields indented below.", noun))
		return
	}
	first := map[string]yamldoc.Place{}
	fields := r.indented(n, where, noun)
	for _, f := range fields {
		if before, twice := first[f.Key]; twice {
			r.at(f.Place, "duplicate-name", fmt.Sprintf("the %s %s is declared twice, first in line %d", noun, yamldoc.Quote(f.Key), before.Line), "Rename or remove one of the two.")
			continue
		}
		first[f.Key] = f.Place
		r.places[where+"."+f.Key] = f.Place
		each(where+"."+f.Key, f.Key, f.Value)
	}
}

func (r *reader) input(where, key string, n yamldoc.Node) Input {
	in := Input{Name: key, Type: String}
	fields, ok := r.object(n, where, inputFields())
	if !ok {
		return in
	}
	if t, ok := fields["type"]; ok {
		text := r.string(fields, where, "type")
		if parsed, err := ParseType(text); err == nil {
			in.Type = parsed
		} else if t.Shape == yamldoc.Scalar && t.Value == text {
			r.at(t.Place, "unknown-type", fmt.Sprintf("%s is not a type of input", yamldoc.Quote(text)), typeHint(text))
			in.Type = Any // whatever the default is, it is not what is wrong
		} else {
			in.Type = Any
		}
	}
	in.Sensitive, _ = r.bool(fields, where, "sensitive")
	if n, ok := fields["description"]; ok && (n.Shape != yamldoc.Scalar || n.Value != nil) {
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
func (r *reader) literal(n yamldoc.Node, where string) any {
	switch n.Shape {
	case yamldoc.List:
		items := make([]any, len(n.Items))
		for i, item := range n.Items {
			items[i] = r.literal(item, where)
		}
		return items
	case yamldoc.Map:
		fields := make(map[string]any, len(n.Fields))
		for _, f := range r.unique(n) {
			fields[f.Key] = r.literal(f.Value, where)
		}
		return fields
	}
	if text, ok := n.Value.(string); ok && strings.Contains(text, "${") {
		p := n.Place
		if len(n.Dollars) > 0 {
			p = n.Dollars[0]
		}
		r.at(p, "reference-in-default", "a default cannot hold a reference", "Put the reference into a component's vars.")
	}
	return n.Value
}

// unique returns the fields of a map, and reports those that are repeated.
func (r *reader) unique(n yamldoc.Node) []yamldoc.Field {
	fields, repeated := n.Unique()
	for _, p := range repeated {
		r.at(yamldoc.Place{Line: p.Line, Column: p.Column}, p.Code, p.Message, p.Hint)
	}
	return fields
}

func (r *reader) component(where, key string, n yamldoc.Node) Component {
	c := Component{Name: key}
	fields, ok := r.object(n, where, componentFields())
	if !ok {
		r.silent[where+".type"], r.silent[where+".source"] = true, true
		return c
	}
	c.Type = r.string(fields, where, "type")
	r.types[key] = c.Type
	c.Source = r.string(fields, where, "source")
	r.written[key] = c.Source
	if clean, message, _ := cleanSource(c.Source); message == "" {
		c.Source = clean
		r.sources[key] = clean
	}
	if n := fields["depends_on"]; n.Shape == yamldoc.List {
		c.DependsOn = r.dependsOn(n, where+".depends_on")
	} else if n.Shape != yamldoc.Scalar || n.Value != nil {
		r.wrongType(n, where+".depends_on", "a list", "Write [ ] around the names.")
	}
	if n := fields["vars"]; n.Shape == yamldoc.Map {
		c.Vars = make(map[string]Value, len(n.Fields))
		for _, f := range r.unique(n) {
			place := where + ".vars." + f.Key
			r.places[place] = f.Place
			c.Vars[f.Key] = r.value(f.Value, place)
		}
	} else if n.Shape != yamldoc.Scalar || n.Value != nil {
		r.wrongType(n, where+".vars", "a map", "Write the name of each variable as a key.")
	}
	return c
}

func (r *reader) dependsOn(n yamldoc.Node, where string) []string {
	var names []string
	for _, item := range n.Items {
		text, ok := item.Value.(string)
		switch {
		case item.Shape != yamldoc.Scalar || !ok:
			r.wrongType(item, where, "a list of components' names", "")
		case slices.Contains(names, text):
			r.at(item.Place, "duplicate-name", fmt.Sprintf("the component %s is listed twice", yamldoc.Quote(text)), "")
		default:
			names = append(names, text)
			r.places[where+"|"+text] = item.Place
		}
	}
	return names
}

// value reads the value of a variable, with references anywhere in it.
func (r *reader) value(n yamldoc.Node, where string) Value {
	switch n.Shape {
	case yamldoc.List:
		items := make([]Value, len(n.Items))
		for i, item := range n.Items {
			items[i] = r.value(item, where)
		}
		return listOf(items)
	case yamldoc.Map:
		fields := make(map[string]Value, len(n.Fields))
		for _, f := range r.unique(n) {
			if strings.Contains(f.Key, "${") {
				r.at(f.Place, "invalid-reference", fmt.Sprintf("the key %s cannot hold a reference", yamldoc.Quote(f.Key)), "Build the map in the module.")
			}
			fields[f.Key] = r.value(f.Value, where)
		}
		return mapOf(fields)
	}
	text, ok := n.Value.(string)
	if !ok {
		return Value{literal: n.Value}
	}
	v, errs := parseText(text)
	dollar := func(i int) yamldoc.Place {
		if i < len(n.Dollars) {
			return n.Dollars[i]
		}
		return n.Place
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
