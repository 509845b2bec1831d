package appspec

import (
	"reflect"

	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/pkg/yamlnode/schematest"
)

// Schema returns the JSON schema (draft 2020-12) of app.yaml, for editors. It
// accepts every file that Parse accepts; what a schema cannot say, such as
// that a reference leads somewhere, only Parse checks.
func Schema() []byte {
	return schematest.File(reflect.TypeFor[document](), (&reader{}).rules(),
		"https://raw.githubusercontent.com/fairlead/fairlead/main/docs/app.schema.json", "Fairlead app.yaml")
}

// Literal returns a value without references; no text in it is read as one. v
// is a JSON value.
func Literal(v any) (Value, error) {
	tree, err := yamlnode.Normalize(v)
	return Value{tree}, err
}
