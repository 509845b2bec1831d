package runnerspec

import (
	"reflect"

	"github.com/fairlead/fairlead/pkg/yamlnode/schematest"
)

// Schema returns the JSON schema (draft 2020-12) of the file, for editors. It accepts
// every file that Parse accepts. Only Parse checks rules that cover several fields.
func Schema() []byte {
	return schematest.File(reflect.TypeFor[Spec](), (&checker{}).rules(),
		"https://raw.githubusercontent.com/fairlead/fairlead/main/docs/runner.schema.json", "Fairlead runner.yaml")
}
