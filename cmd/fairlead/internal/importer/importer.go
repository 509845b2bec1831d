// Package importer reads runner descriptions of other products and converts them to
// Fairlead's runner configuration. It adds a note for each setting of the file. It
// drops a setting without counterpart and names it in a note. An unknown setting is an
// error, because otherwise a person would not notice that the setting is missing.
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

// Fate is the result of the import of one setting.
type Fate string

// The fates.
const (
	Mapped  Fate = "mapped"  // the setting has the same meaning in Fairlead
	Changed Fate = "changed" // the setting has another value, or depends on another condition
	Dropped Fate = "dropped" // the setting is not in the configuration
)

// Note is the result of the import of one setting. It contains no secret value.
type Note struct {
	Line int    `json:"line"` // line of the file, from 1
	Fate Fate   `json:"fate"`
	From string `json:"from"`          // name in the file
	To   string `json:"to,omitempty"`  // field of Fairlead's configuration
	Why  string `json:"why,omitempty"` // reason, and what to do next
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

// Result is the result of an import.
type Result struct {
	Spec     *runnerspec.Spec // nil if there are problems
	Notes    []Note           // sorted by line
	Warnings runnerspec.Problems
	Problems runnerspec.Problems
}

// Sources returns the import functions by the name of the product.
func Sources() map[string]func(file string, src []byte, settings []string) Result {
	return map[string]func(string, []byte, []string) Result{"humanitec": Humanitec, "tharsis": Tharsis}
}

// The parts of Fairlead's configuration.
const (
	runnerPart  = "runner_configuration"
	storagePart = "state_storage_configuration"
	jobPart     = runnerPart + ".job"
	clusterPart = runnerPart + ".cluster"
)

// importer builds a configuration from the settings of a file.
type importer struct {
	file     string
	settings []string // of the command line; they override the result
	out      yamlnode.Node
	notes    []Note
	problems []runnerspec.Problem
}

func newImporter(file string, settings []string) *importer {
	return &importer{file: file, settings: settings, out: yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}, Shape: yamlnode.Map}}
}

// result checks the configuration with the rules of `runner create`.
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

// given reports whether the command line sets the field or a part of the field.
func (im *importer) given(path string) bool {
	return slices.ContainsFunc(im.settings, func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return name == path || strings.HasPrefix(name, path+".")
	})
}

// get returns a field of the configuration that was built so far.
func (im *importer) get(path string) (yamlnode.Node, bool) {
	n, ok := im.out, true
	for name := range strings.SplitSeq(path, ".") {
		if n, ok = n.Child(name); !ok {
			break
		}
	}
	return n, ok
}

// put sets the field. It creates missing parent maps, with the place of the value.
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

// commas splits a comma-separated list and drops empty items.
func commas(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// handler imports a value. Where is the path of the value in the file.
type handler func(n yamlnode.Node, where string)

// handlers are the handlers of a map's fields, by name.
type handlers map[string]handler

// row is a line of a table: it describes the import of one setting.
type row struct {
	of   []string // conditions; the row applies if the file meets one
	from string   // name in the other product
	fate string   // a Fate, or the name of a special handler
	to   string   // field below a part of Fairlead's configuration
	why  string   // reason for the note
}

// rowsOf reads a table. Vertical bars separate the fields of a row. A line that begins
// with # is a comment. A line with several names becomes several rows.
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

// handle returns the handler of a row. The field of the row is below part. Special has
// the special handlers by name.
func (im *importer) handle(part string, r row, special map[string]func(to string) handler) handler {
	to := strings.TrimPrefix(part+"."+r.to, ".")
	switch r.fate {
	case string(Mapped), string(Changed):
		return im.with(Fate(r.fate), to, r.why)
	case string(Dropped):
		return im.drop(r.why)
	}
	return special[r.fate](to)
}

// nested returns the handlers of the rows. A dot in a name separates a map from its
// field.
func (im *importer) nested(part string, rows []row, special map[string]func(to string) handler) handlers {
	out, inner := handlers{}, map[string][]row{}
	for _, r := range rows {
		if outer, rest, ok := strings.Cut(r.from, "."); ok {
			r.from = rest
			inner[outer] = append(inner[outer], r)
			continue
		}
		out[r.from] = im.handle(part, r, special)
	}
	for outer, rows := range inner {
		out[outer] = func(n yamlnode.Node, where string) { im.object(n, where, im.nested(part, rows, special)) }
	}
	return out
}

// object calls the handler of each field of a map. A field without handler is an
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

// same copies a value unchanged.
func (im *importer) same(to string) handler { return im.with(Mapped, to, "") }

// with copies a value unchanged, and adds a note with the reason.
func (im *importer) with(fate Fate, to, why string) handler {
	return func(n yamlnode.Node, where string) {
		im.put(to, n)
		im.note(n.Place, fate, where, to, why)
	}
}

// drop omits a value, and adds a note with the reason.
func (im *importer) drop(why string) handler {
	return func(n yamlnode.Node, where string) { im.note(n.Place, Dropped, where, "", why) }
}

// name sets the name of the runner. Fairlead's names are in lower case and have
// hyphens instead of underscores.
func (im *importer) name(n yamlnode.Node, where string) {
	s, ok := n.Value.(string)
	fixed := strings.ToLower(strings.ReplaceAll(s, "_", "-"))
	if !ok || fixed == s {
		im.same("id")(n, where)
		return
	}
	im.put("id", text(n.Place, fixed))
	im.note(n.Place, Changed, where, "id", fmt.Sprintf("Fairlead's names are in lower case and have hyphens: %s", fixed))
}

// image copies the image of a job. It drops the image of the other product's runner.
func (im *importer) image(to, product string, theirs func(repository string) bool) handler {
	return func(n yamlnode.Node, where string) {
		s, _ := n.Value.(string)
		repository, _, _ := strings.Cut(s, "@")
		if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
			repository = repository[:i]
		}
		if theirs(repository) {
			im.note(n.Place, Dropped, where, to, fmt.Sprintf("it is the image of %s's runner; jobs use the image of the agent's version. --set %s=REPOSITORY@sha256:… sets another", product, to))
			return
		}
		im.same(to)(n, where)
	}
}
