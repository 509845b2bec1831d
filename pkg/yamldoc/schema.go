package yamldoc

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
)

// Schema is a JSON schema (draft 2020-12), or a part of one.
type Schema = map[string]any

// SchemaOf returns the schema of what a Reader with these rules reads into
// structs of the type t. It accepts every file that the Reader accepts; what it
// cannot say, such as that a name is declared, only code checks. Structs are in
// defs, by their names.
func SchemaOf(t reflect.Type, rules Rules, defs Schema) Schema {
	properties, required := Schema{}, []any{}
	for _, f := range FieldsOf(t) {
		c := rules.check(f.Check)
		p := valueSchema(f.Type, c, rules, defs)
		maps.Copy(p, c.Schema)
		switch kind, ok := p["type"].(string); {
		case f.Must != "":
			required = append(required, f.Name)
			if f.Must == "true" && kind == "array" {
				p["minItems"] = 1
			}
		case ok: // a null is a field that is not there
			p["type"] = []any{kind, "null"}
		case p["$ref"] != nil:
			p = Schema{"anyOf": []any{p, Schema{"type": "null"}}}
		}
		p["description"] = f.Doc + c.Doc
		properties[f.Name] = p
	}
	s := Schema{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	if len(required) == 0 {
		delete(s, "required")
		s["type"] = []any{"object", "null"}
	}
	return s
}

func valueSchema(t reflect.Type, c Check, rules Rules, defs Schema) Schema {
	switch reflect.New(t).Interface().(type) {
	case NodeReader:
		return Schema{}
	case encoding.TextUnmarshaler:
		return Schema{"type": []any{"string", "number", "null"}}
	}
	text := Schema{"type": "string"}
	if c.Pattern != "" {
		text["pattern"] = c.Pattern
	}
	if c.Max > 0 {
		text["maxLength"] = c.Max
	}
	switch t.Kind() {
	case reflect.Pointer:
		return valueSchema(t.Elem(), c, rules, defs)
	case reflect.Struct:
		if defs[t.Name()] == nil {
			defs[t.Name()] = SchemaOf(t, rules, defs)
		}
		return Schema{"$ref": "#/$defs/" + t.Name()}
	case reflect.String:
		return text
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int:
		return Schema{"type": "integer"}
	case reflect.Slice:
		items := valueSchema(t.Elem(), Check{Pattern: c.Pattern}, rules, defs)
		if _, noun := keyOf(t.Elem()); noun != "" {
			return Schema{"type": "object", "additionalProperties": items}
		}
		list := Schema{"type": "array", "items": items}
		if c.Max > 0 {
			list["maxItems"] = c.Max
		}
		return list
	case reflect.Interface:
		var types []any
		for _, name := range rules.Unions[t].Names {
			s := SchemaOf(reflect.TypeOf(rules.Unions[t].New(name)).Elem(), rules, defs)
			s["properties"].(Schema)["type"] = Schema{"const": name}
			types = append(types, s)
		}
		if types != nil {
			return Schema{"oneOf": types}
		}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": valueSchema(t.Elem(), Check{}, rules, defs)}
	}
	return Schema{}
}

// WriteSchema writes the schema of a file, with its $defs.
func WriteSchema(s, defs Schema, id, title string) []byte {
	maps.Copy(s, Schema{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": id, "title": title, "$defs": defs})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		panic("yamldoc: a schema is no JSON: " + err.Error()) // it is made of literals
	}
	return out.Bytes()
}
