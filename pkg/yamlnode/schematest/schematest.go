// Package schematest generates the JSON schemas in docs/ from the tags and rules with
// which yamlnode reads configurations. Only tests use it: they compare the committed
// schemas with the generated ones. No shipped binary needs a schema.
package schematest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"maps"
	"reflect"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

type schema = yamlnode.Schema

// File returns the schema of a file that a Reader with these rules reads into a struct
// of type t. The schema accepts every file that the Reader accepts. Only code checks
// what a schema cannot express, such as whether a name is declared.
func File(t reflect.Type, rules yamlnode.Rules, id, title string) []byte {
	defs := schema{}
	s := structSchema(t, rules, defs)
	maps.Copy(s, schema{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": id, "title": title, "$defs": defs})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		panic("schematest: encode a schema: " + err.Error()) // cannot happen: it consists of literals
	}
	return out.Bytes()
}

// structSchema returns the schema of a struct. It adds the schemas of nested structs
// to defs, by name.
func structSchema(t reflect.Type, rules yamlnode.Rules, defs schema) schema {
	properties, required, either := schema{}, []any{}, []any{}
	for _, f := range yamlnode.FieldsOf(t) {
		c := rules.Check(f.Check)
		p := valueSchema(f.Type, c, rules, defs)
		maps.Copy(p, c.Schema)
		switch kind, ok := p["type"].(string); {
		case len(f.Unless()) > 0:
			for _, name := range append([]string{f.Name}, f.Unless()...) {
				either = append(either, schema{"required": []any{name}})
			}
		case f.Must != "":
			required = append(required, f.Name)
			if f.Must == "true" && kind == "array" {
				p["minItems"] = 1
			}
		case ok: // a null counts as a missing field
			p["type"] = []any{kind, "null"}
		case p["$ref"] != nil:
			p = schema{"anyOf": []any{p, schema{"type": "null"}}}
		}
		p["description"] = f.Doc + c.Doc
		properties[f.Name] = p
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	if len(either) > 0 {
		s["anyOf"] = either
	}
	if len(required) == 0 {
		delete(s, "required")
		s["type"] = []any{"object", "null"}
	}
	return s
}

func valueSchema(t reflect.Type, c yamlnode.Check, rules yamlnode.Rules, defs schema) schema {
	switch reflect.New(t).Interface().(type) {
	case yamlnode.NodeReader:
		return schema{}
	case encoding.TextUnmarshaler:
		return schema{"type": []any{"string", "number", "null"}}
	}
	text := schema{"type": "string"}
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
			defs[t.Name()] = structSchema(t, rules, defs)
		}
		return schema{"$ref": "#/$defs/" + t.Name()}
	case reflect.String:
		return text
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int:
		return schema{"type": "integer"}
	case reflect.Slice:
		items := valueSchema(t.Elem(), yamlnode.Check{Pattern: c.Pattern}, rules, defs)
		if _, noun := yamlnode.KeyOf(t.Elem()); noun != "" {
			return schema{"type": "object", "additionalProperties": items}
		}
		list := schema{"type": "array", "items": items}
		if c.Max > 0 {
			list["maxItems"] = c.Max
		}
		return list
	case reflect.Interface:
		var types []any
		for _, name := range rules.Unions[t].Names {
			s := structSchema(reflect.TypeOf(rules.Unions[t].New(name)).Elem(), rules, defs)
			s["properties"].(schema)["type"] = schema{"const": name}
			types = append(types, s)
		}
		if types != nil {
			return schema{"oneOf": types}
		}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": valueSchema(t.Elem(), yamlnode.Check{}, rules, defs)}
	}
	return schema{}
}
