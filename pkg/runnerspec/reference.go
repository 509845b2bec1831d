package runnerspec

import (
	"reflect"

	"github.com/fairlead/fairlead/pkg/yamldoc"
)

//go:generate env UPDATE_GOLDEN=1 go test -run TestTheReferenceIsThatOfTheCode|TestTheSchemaInTheDocumentsIsInStep .

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

// RunnerFields returns the fields of a kind's runner_configuration; none for
// an unknown kind.
func RunnerFields(k Kind) []Field {
	r := newConfiguration(k)
	if r == nil {
		return nil
	}
	return describe(reflect.TypeOf(r).Elem(), "runner_configuration")
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
