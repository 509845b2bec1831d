package appspec

import (
	"bytes"
	"encoding/json"
)

//go:generate go run ./internal/genschema ../../docs/app.schema.json

// schemaID names the schema; a $schema comment in app.yaml may point to it.
const schemaID = "https://raw.githubusercontent.com/fairlead/fairlead/main/docs/app.schema.json"

// Schema returns the JSON schema (draft 2020-12) of app.yaml, for editors. It
// accepts every file that Parse accepts; what a schema cannot say, such as
// that a reference leads somewhere, only Parse checks.
func Schema() []byte {
	object := func(specs []fieldSpec) map[string]any {
		properties := map[string]any{}
		required := []any{}
		for _, spec := range specs {
			spec.schema["description"] = spec.doc
			properties[spec.name] = spec.schema
			if spec.required {
				required = append(required, spec.name)
			}
		}
		s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
		if len(required) > 0 {
			s["required"] = required
		}
		return s
	}
	root := object(appFields())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = schemaID
	root["title"] = "Fairlead app.yaml"
	input := object(inputFields())
	input["type"] = []any{"object", "null"} // "region:" alone is an input with nothing said of it
	root["$defs"] = map[string]any{"input": input, "component": object(componentFields())}

	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		panic("appspec: the schema is no JSON: " + err.Error()) // it is made of literals
	}
	return out.Bytes()
}
