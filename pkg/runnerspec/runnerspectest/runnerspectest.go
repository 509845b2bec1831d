// Package runnerspectest lists the fields of runner configurations, for the tests that check that pages, charts and
// agents cover all of them.
package runnerspectest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Field documents one field of a configuration.
type Field struct {
	Path     string // such as "runner_configuration.job.image"
	Type     string // string, number, bool, list, map, time, CPUs, size
	Required bool   // in its parent
	Secret   bool
	Only     string // the only side that may set it: "control plane" or "agent"; "": both
	Doc      string
}

// RunnerFields returns the fields of a kind's runner_configuration.
func RunnerFields(t testing.TB, k runnerspec.Kind) []Field {
	t.Helper()
	r, err := runnerspec.DecodeRunner(fmt.Appendf(nil, `{"type":%q}`, k))
	if err != nil {
		t.Fatal(err)
	}
	return Describe(reflect.TypeOf(r).Elem(), "runner_configuration")
}

// StorageFields returns the fields of a kind's state_storage_configuration.
func StorageFields(t testing.TB, k runnerspec.StorageKind) []Field {
	t.Helper()
	s, err := runnerspec.DecodeStorage(fmt.Appendf(nil, `{"type":%q}`, k))
	if err != nil {
		t.Fatal(err)
	}
	return Describe(reflect.TypeOf(s).Elem(), "state_storage_configuration")
}

// RegistryFields returns the fields of a kind's registry.
func RegistryFields(t testing.TB, k runnerspec.RegistryKind) []Field {
	t.Helper()
	r, err := runnerspec.DecodeRegistry(fmt.Appendf(nil, `{"type":%q}`, k))
	if err != nil {
		t.Fatal(err)
	}
	return Describe(reflect.TypeOf(r).Elem(), "registry")
}

// Describe returns the fields of a struct at the path where, each followed by the fields of the structs in it.
func Describe(t reflect.Type, where string) []Field {
	var fields []Field
	for _, s := range yamlnode.FieldsOf(t) {
		f := Field{Path: yamlnode.Join(where, s.Name), Required: s.Must != "", Secret: s.Type == reflect.TypeFor[runnerspec.Secret](), Only: s.Only, Doc: s.Doc}
		under := s.Type
		if under.Kind() == reflect.Pointer {
			under = under.Elem()
		}
		switch {
		case under == reflect.TypeFor[runnerspec.Duration]():
			f.Type = "time"
		case under == reflect.TypeFor[runnerspec.CPU]():
			f.Type = "CPUs"
		case under == reflect.TypeFor[runnerspec.Size]():
			f.Type = "size"
		default:
			f.Type = map[reflect.Kind]string{
				reflect.String: "string", reflect.Bool: "bool", reflect.Int: "number", reflect.Slice: "list", reflect.Map: "map", reflect.Struct: "map", reflect.Interface: "map",
			}[under.Kind()]
		}
		fields = append(fields, f)
		if under.Kind() == reflect.Struct {
			fields = append(fields, Describe(under, f.Path)...)
		}
	}
	return fields
}
