package appspec

import (
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// fieldSpec describes one field of app.yaml. The reader and the schema for
// editors are both made from it, so that they cannot differ.
type fieldSpec struct {
	name     string
	required bool
	doc      string
	schema   map[string]any // JSON schema of the value; the doc is added to it
	aliases  []string       // what newcomers write instead
}

func nameSchema() map[string]any {
	return map[string]any{"type": "string", "pattern": `^[a-z]([a-z0-9-]*[a-z0-9])?$`, "maxLength": fairlead.MaxName}
}

func textSchema() map[string]any {
	return map[string]any{"type": "string", "maxLength": maxDescription}
}

// appFields are the fields of the file.
func appFields() []fieldSpec {
	return []fieldSpec{
		{
			name: "fairlead", required: true, doc: "The version of this format.",
			schema: map[string]any{"const": FormatVersion}, aliases: []string{"version", "apiVersion"},
		},
		{name: "name", required: true, doc: "The app's name: lower-case letters, digits and hyphens.", schema: nameSchema()},
		{name: "description", doc: "What the app is, for those who install it.", schema: textSchema()},
		{
			name: "inputs", doc: "The values that each install gives, by name.",
			schema: map[string]any{
				"type": []any{"object", "null"}, "maxProperties": MaxInputs, "propertyNames": nameSchema(),
				"additionalProperties": map[string]any{"$ref": "#/$defs/input"},
			},
			aliases: []string{"variables", "vars", "parameters", "params"},
		},
		{
			name: "components", required: true, doc: "The parts of the app, by name. Each is deployed after those it needs.",
			schema: map[string]any{
				"type": "object", "minProperties": 1, "maxProperties": MaxComponents, "propertyNames": nameSchema(),
				"additionalProperties": map[string]any{"$ref": "#/$defs/component"},
			},
			aliases: []string{"modules", "resources", "services"},
		},
	}
}

// inputFields are the fields of one input.
func inputFields() []fieldSpec {
	return []fieldSpec{
		{
			name: "type", doc: "string (if nothing is said), number, bool, list, map, any, or a list or map of one type, such as list(string).",
			schema: map[string]any{"type": "string", "pattern": `^\s*(string|number|bool|list|map|any|(list|map)\s*\(.+\))\s*$`, "examples": []any{"string", "number", "bool", "list", "map", "any", "list(string)", "map(string)"}},
		},
		{
			name: "required", doc: "Whether an install must give a value. True if there is no default; false without a default means null.",
			schema: map[string]any{"type": "boolean"}, aliases: []string{"optional"},
		},
		{name: "default", doc: "The value where an install gives none.", schema: map[string]any{}},
		{
			name: "sensitive", doc: "Whether the value is secret: never shown, never logged, encrypted where it is stored.",
			schema: map[string]any{"type": "boolean"}, aliases: []string{"secret"},
		},
		{name: "description", doc: "What the value is, for those who give it.", schema: textSchema()},
	}
}

// componentFields are the fields of one component.
func componentFields() []fieldSpec {
	var types []any
	typeDocs := ""
	for _, t := range component.Types() {
		types, typeDocs = append(types, t.Name), typeDocs+" "+t.Doc
	}
	return []fieldSpec{
		{
			name: "type", required: true, doc: "What the component is." + typeDocs,
			schema: map[string]any{"enum": types}, aliases: []string{"kind"},
		},
		{
			name: "source", required: true, doc: "The folder of the module, inside the app's folder.",
			schema: map[string]any{"type": "string", "minLength": 1}, aliases: []string{"path", "dir", "directory", "folder", "module"},
		},
		{
			name: "depends_on", doc: "Components that must be deployed before. Those whose outputs vars refer to need no mention.",
			schema:  map[string]any{"type": []any{"array", "null"}, "uniqueItems": true, "items": nameSchema()},
			aliases: []string{"needs", "requires", "dependencies", "after"},
		},
		{
			name: "vars", doc: "The module's variables: any value, with references such as ${inputs.NAME}, ${install.name} and ${components.NAME.outputs.OUTPUT}.",
			schema: map[string]any{
				"type": []any{"object", "null"}, "maxProperties": MaxVars,
				"propertyNames":        map[string]any{"pattern": `^[A-Za-z_][A-Za-z0-9_-]*$`},
				"additionalProperties": true,
			},
			aliases: []string{"variables", "inputs", "values", "with", "parameters"},
		},
	}
}
