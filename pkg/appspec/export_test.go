package appspec

import (
	"reflect"

	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/pkg/yamlnode/schematest"
)

// Schema returns the JSON schema (draft 2020-12) of app.yaml, for editors. It accepts
// every file that Parse accepts. Only Parse checks what a schema cannot express, such
// as the targets of references.
func Schema() []byte {
	return schematest.File(reflect.TypeFor[document](), (&reader{}).rules(),
		"https://raw.githubusercontent.com/fairlead/fairlead/main/docs/app.schema.json", "Fairlead app.yaml")
}

// Literal returns the JSON value v as a Value without references: a text in v is never
// read as a reference.
func Literal(v any) (Value, error) {
	tree, err := yamlnode.Normalize(v)
	return Value{tree}, err
}
