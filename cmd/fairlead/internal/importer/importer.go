// Package importer reads how other products describe a runner, and writes it as
// a configuration of ours. It says of each thing that it found what became of
// it: what has no counterpart here is named and left out, and what it does not
// know is an error, because nobody would notice that it is missing.
package importer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Fate is what became of something in the file.
type Fate string

// The fates.
const (
	Mapped  Fate = "mapped"  // it says the same here
	Changed Fate = "changed" // it says something else here, or under another condition
	Dropped Fate = "dropped" // it is not in the configuration
)

// Note says what became of one thing. It holds no value of a secret.
type Note struct {
	Line int    `json:"line"` // of the file, from 1
	Fate Fate   `json:"fate"`
	From string `json:"from"`          // as the file calls it
	To   string `json:"to,omitempty"`  // our field
	Why  string `json:"why,omitempty"` // and what to do, in full
}

// String returns the note on one line, without the name of the file.
func (n Note) String() string {
	s := string(n.Fate) + " " + n.From
	if n.To != "" && n.To != n.From {
		s += " -> " + n.To
	}
	if n.Why != "" {
		s += ": " + n.Why
	}
	return s
}

// Result is what became of a file.
type Result struct {
	Spec     *runnerspec.Spec // nil if there are problems
	Notes    []Note           // in the order of the file
	Warnings runnerspec.Problems
	Problems runnerspec.Problems
}

// Sources are the products whose files can be read, by name.
func Sources() map[string]func(file string, src []byte, settings []string) Result {
	return map[string]func(string, []byte, []string) Result{"humanitec": Humanitec, "tharsis": Tharsis}
}

// The parts of our configuration.
const (
	runnerPart  = "runner_configuration"
	storagePart = "state_storage_configuration"
	jobPart     = runnerPart + ".job"
	clusterPart = runnerPart + ".cluster"
)

// importer makes a configuration of what a file says.
type importer struct {
	file     string
	settings []string // of the command line, on top of what is made
	out      yamlnode.Node
	notes    []Note
	problems []runnerspec.Problem
}

func newImporter(file string, settings []string) *importer {
	return &importer{file: file, settings: settings, out: yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}, Shape: yamlnode.Map}}
}

// result checks what was made, as `runner create` will.
func (im *importer) result() Result {
	slices.SortStableFunc(im.notes, func(a, b Note) int { return a.Line - b.Line })
	r := Result{Notes: im.notes}
	if len(im.problems) == 0 {
		made := runnerspec.Read(im.file, im.out, im.settings...)
		r.Spec, r.Warnings = made.Spec, made.Warnings
		im.problems = made.Problems
	}
	r.Problems = yamlnode.Finish(im.problems)
	return r
}

func (im *importer) problem(at yamlnode.Place, code, message, hint string) {
	im.problems = append(im.problems, runnerspec.Problem{File: im.file, Line: at.Line, Column: at.Column, Code: code, Message: message, Hint: hint})
}

func (im *importer) note(at yamlnode.Place, fate Fate, from, to, why string) {
	im.notes = append(im.notes, Note{Line: at.Line, Fate: fate, From: from, To: to, Why: why})
}

// given reports whether a setting of the command line says the field, or a part
// of it.
func (im *importer) given(path string) bool {
	return slices.ContainsFunc(im.settings, func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return name == path || strings.HasPrefix(name, path+".")
	})
}

// get returns what was made of the field.
func (im *importer) get(path string) (yamlnode.Node, bool) {
	n, ok := im.out, true
	for name := range strings.SplitSeq(path, ".") {
		if n, ok = n.Child(name); !ok {
			break
		}
	}
	return n, ok
}

// put makes the field. What stands around it is made where the value stands.
func (im *importer) put(path string, value yamlnode.Node) {
	im.out = with(im.out, strings.Split(path, "."), value)
}

func with(n yamlnode.Node, path []string, value yamlnode.Node) yamlnode.Node {
	if len(path) == 0 {
		return value
	}
	for i, f := range n.Fields {
		if f.Key == path[0] {
			n.Fields[i].Value = with(f.Value, path[1:], value)
			return n
		}
	}
	inner := yamlnode.Node{Place: value.Place, Shape: yamlnode.Map}
	n.Fields = append(n.Fields, yamlnode.Field{Place: value.Place, Key: path[0], Value: with(inner, path[1:], value)})
	return n
}

func text(at yamlnode.Place, s string) yamlnode.Node { return yamlnode.Node{Place: at, Value: s} }

func list(at yamlnode.Place, items ...string) yamlnode.Node {
	n := yamlnode.Node{Place: at, Shape: yamlnode.List}
	for _, s := range items {
		n.Items = append(n.Items, text(at, s))
	}
	return n
}

// commas splits a list as an environment variable has it.
func commas(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// handler says what becomes of a value, and of where in the file.
type handler func(n yamlnode.Node, where string)

// handlers say what becomes of the fields of a map.
type handlers map[string]handler

// row is a line of a table: what becomes of one thing.
type row struct {
	of   []string // what a file must be
	from string   // as the other product calls it
	fate string   // a Fate, or a way of its own
	to   string   // below a part of ours
	why  string
}

// rowsOf reads a table, whose lines have the fields of a row between vertical bars.
// A line that begins with # is a comment; several names are several rows.
func rowsOf(table string) (rows []row) {
	for line := range strings.Lines(table) {
		col := strings.SplitN(line, "|", 5)
		if len(col) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		for i := range col {
			col[i] = strings.TrimSpace(col[i])
		}
		col = append(col, "", "")
		for name := range strings.SplitSeq(col[1], ", ") {
			rows = append(rows, row{strings.Split(col[0], ", "), name, col[2], cmp.Or(col[3], name), col[4]})
		}
	}
	return rows
}

// handle returns the handler of a row, whose counterpart is in a part of ours.
func (im *importer) handle(part string, r row, ways map[string]func(to string) handler) handler {
	to := strings.TrimPrefix(part+"."+r.to, ".")
	switch r.fate {
	case string(Mapped), string(Changed):
		return im.with(Fate(r.fate), to, r.why)
	case string(Dropped):
		return im.drop(r.why)
	}
	return ways[r.fate](to)
}

// nested makes handlers of the rows; dots in a name lead into maps.
func (im *importer) nested(part string, rows []row, ways map[string]func(to string) handler) handlers {
	out, inner := handlers{}, map[string][]row{}
	for _, r := range rows {
		if outer, rest, ok := strings.Cut(r.from, "."); ok {
			r.from = rest
			inner[outer] = append(inner[outer], r)
			continue
		}
		out[r.from] = im.handle(part, r, ways)
	}
	for outer, rows := range inner {
		out[outer] = func(n yamlnode.Node, where string) { im.object(n, where, im.nested(part, rows, ways)) }
	}
	return out
}

// object hands each field of a map to its handler. A field that has none is an
// error.
func (im *importer) object(n yamlnode.Node, where string, fields handlers) {
	if n.Shape != yamlnode.Map {
		im.problem(n.Place, "wrong-type", orFile(where)+" must be a map, not "+n.Describe(), "")
		return
	}
	seen := map[string]bool{}
	for _, f := range n.Fields {
		path := strings.TrimPrefix(where+"."+f.Key, ".")
		handle, ok := fields[f.Key]
		switch {
		case seen[f.Key]:
			im.problem(f.Place, "repeated-field", fmt.Sprintf("%s has the field %s twice", orFile(where), yamlnode.Quote(f.Key)), "Remove one of the two.")
		case !ok:
			im.problem(f.Place, "unknown-field", fmt.Sprintf("%s has no field %s", orFile(where), yamlnode.Quote(f.Key)),
				yamlnode.DidYouMean(f.Key, "fields", slices.Sorted(maps.Keys(fields))))
		case f.Value.IsNull():
		default:
			handle(f.Value, path)
		}
		seen[f.Key] = true
	}
}

func orFile(where string) string {
	if where == "" {
		return "the file"
	}
	return where
}

// same moves a value as it is.
func (im *importer) same(to string) handler { return im.with(Mapped, to, "") }

// with moves a value as it is, and says what to mind.
func (im *importer) with(fate Fate, to, why string) handler {
	return func(n yamlnode.Node, where string) {
		im.put(to, n)
		im.note(n.Place, fate, where, to, why)
	}
}

// drop leaves a value out, and says why.
func (im *importer) drop(why string) handler {
	return func(n yamlnode.Node, where string) { im.note(n.Place, Dropped, where, "", why) }
}

// name makes the name of a runner, which has hyphens here and may have
// underscores elsewhere.
func (im *importer) name(n yamlnode.Node, where string) {
	s, ok := n.Value.(string)
	fixed := strings.ToLower(strings.ReplaceAll(s, "_", "-"))
	if !ok || fixed == s {
		im.same("id")(n, where)
		return
	}
	im.put("id", text(n.Place, fixed))
	im.note(n.Place, Changed, where, "id", fmt.Sprintf("names are in lower case and have hyphens here: %s", fixed))
}

// image moves the image of a job, unless it is the other product's own runner.
func (im *importer) image(to, product string, theirs func(repository string) bool) handler {
	return func(n yamlnode.Node, where string) {
		s, _ := n.Value.(string)
		repository, _, _ := strings.Cut(s, "@")
		if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
			repository = repository[:i]
		}
		if theirs(repository) {
			im.note(n.Place, Dropped, where, to, fmt.Sprintf("it is %s's runner; jobs take the image of the agent's version, or --set %s=REPOSITORY@sha256:…", product, to))
			return
		}
		im.same(to)(n, where)
	}
}
