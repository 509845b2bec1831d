package runnerspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamldoc"
)

//go:generate go run ./internal/gendocs ../../docs/RUNNERS.md ../../docs/runner.schema.json

// Schema returns the JSON schema (draft 2020-12) of the file, for editors. It
// accepts every file that Parse accepts; what takes more than one field, only
// Parse checks.
func Schema() []byte {
	defs := yamldoc.Schema{}
	root := yamldoc.SchemaOf(reflect.TypeFor[Spec](), (&checker{}).rules(), defs)
	return yamldoc.WriteSchema(root, defs, "https://raw.githubusercontent.com/fairlead/fairlead/main/docs/runner.schema.json", "Fairlead runner.yaml")
}

// Field documents one field of a configuration.
type Field struct {
	Path     string // such as "runner_configuration.job.image"
	Type     string // string, number, bool, list, map, time, CPUs, size
	Required bool   // inside what holds it
	Secret   bool
	Only     string // the one side that may give it: "control plane", "agent"; "": both
	Doc      string
}

// Fields returns the fields at the top of the file.
func Fields() []Field { return describe(reflect.TypeFor[Spec](), "") }

// RunnerFields returns the fields of a kind's runner_configuration; none for
// an unknown kind.
func RunnerFields(k Kind) []Field {
	r := newConfiguration(k)
	if r == nil {
		return nil
	}
	return describe(reflect.TypeOf(r).Elem(), "runner_configuration")
}

// StorageFields returns the fields of a kind's state_storage_configuration;
// none for an unknown kind.
func StorageFields(k StorageKind) []Field {
	s := newStorage(k)
	if s == nil {
		return nil
	}
	return describe(reflect.TypeOf(s).Elem(), "state_storage_configuration")
}

func describe(t reflect.Type, where string) []Field {
	var fields []Field
	for _, s := range yamldoc.FieldsOf(t) {
		f := Field{Path: yamldoc.Join(where, s.Name), Required: s.Must != "", Secret: s.Type == reflect.TypeFor[Secret](), Only: s.Only, Doc: s.Doc}
		under := s.Type
		if under.Kind() == reflect.Pointer {
			under = under.Elem()
		}
		switch {
		case under == reflect.TypeFor[Duration]():
			f.Type = "time"
		case under == reflect.TypeFor[CPU]():
			f.Type = "CPUs"
		case under == reflect.TypeFor[Size]():
			f.Type = "size"
		default:
			f.Type = map[reflect.Kind]string{
				reflect.String: "string", reflect.Bool: "bool", reflect.Int: "number", reflect.Slice: "list", reflect.Map: "map", reflect.Struct: "map", reflect.Interface: "map",
			}[under.Kind()]
		}
		fields = append(fields, f)
		if under.Kind() == reflect.Struct {
			fields = append(fields, describe(under, f.Path)...)
		}
	}
	return fields
}

// Reference renders all fields of all kinds and the matrix, in Markdown. What
// every kind has, and jobs of kinds that have the same fields, are described once.
func Reference() string {
	var b strings.Builder
	table := func(prefix string, fields []Field) {
		b.WriteString("\n| field | | |\n|---|---|---|\n")
		for _, f := range fields {
			what := f.Type
			if f.Required {
				what += ", required"
			}
			if f.Only == agentSide {
				what += ", in an agent's file"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.TrimPrefix(f.Path, prefix), what, strings.ReplaceAll(f.Doc, "|", `\|`))
		}
	}
	b.WriteString("### The file\n")
	table("", Fields())
	b.WriteString("\n### Every kind\n")
	shared := describe(reflect.TypeFor[struct {
		Common
		Job JobCommon `json:"job" doc:"The jobs."`
	}](), "runner_configuration")
	shared = slices.DeleteFunc(shared, func(f Field) bool { return f.Path == "runner_configuration.job" })
	table("runner_configuration.", shared)
	seen := map[string]Kind{}
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n### `%s`\n", k)
		var fields []Field
		same := Kind("")
		for _, f := range RunnerFields(k) {
			if slices.ContainsFunc(shared, func(s Field) bool { return s.Path == f.Path }) {
				continue
			}
			path := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name, ok := strings.CutPrefix(path, "job."); ok {
				jobs := reflect.TypeOf(newConfiguration(k)).Elem()
				job, _ := jobs.FieldByName("Job")
				if first, ok := seen[job.Type.Name()]; ok && first != k {
					same = first
					continue
				}
				seen[job.Type.Name()] = k
				f.Path = "runner_configuration.job." + name
			}
			fields = append(fields, f)
		}
		table("runner_configuration.", fields)
		if same != "" {
			fmt.Fprintf(&b, "\nThe fields of `job` are those of `%s`.\n", same)
		}
	}
	b.WriteString("\n### An agent's file\n")
	table("", describe(reflect.TypeFor[Agent](), ""))
	for _, k := range StorageKinds() {
		fmt.Fprintf(&b, "\n### State storage `%s`\n", k)
		table("state_storage_configuration.", StorageFields(k))
	}
	b.WriteString("\n### Which runner may use which state storage\n\n```\n" + Matrix() + "```\n")
	return b.String()
}
