package appspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Type is the type of an input: string, number, bool, any, list, map, or a list or map of one type, such as
// list(string) and map(list(number)). Its value is the canonical spelling, without spaces. A list or map without an
// element type accepts any element.
type Type string

// The types without an element type.
const (
	String Type = "string"
	Number Type = "number"
	Bool   Type = "bool"
	List   Type = "list"
	Map    Type = "map"
	Any    Type = "any"
)

// maxTypeDepth is the maximum nesting of a type such as list(list(list(...))).
const maxTypeDepth = 6

// ParseType reads a type, white space allowed.
func ParseType(text string) (Type, error) {
	t, err := parseType(text, 0)
	if err != nil {
		return "", err
	}
	return t, nil
}

func parseType(text string, depth int) (Type, error) {
	text = strings.TrimSpace(text)
	if depth > maxTypeDepth {
		return "", fmt.Errorf("types are nested deeper than %d", maxTypeDepth)
	}
	switch t := Type(text); t {
	case String, Number, Bool, List, Map, Any:
		return t, nil
	}
	for _, outer := range []Type{List, Map} {
		if rest, ok := strings.CutPrefix(text, string(outer)); ok {
			rest = strings.TrimSpace(rest)
			if strings.HasPrefix(rest, "(") && strings.HasSuffix(rest, ")") {
				elem, err := parseType(rest[1:len(rest)-1], depth+1)
				if err != nil {
					return "", err
				}
				if elem == Any {
					return outer, nil // list(any) is the same type as list, and each type must have only one spelling
				}
				return outer + "(" + elem + ")", nil
			}
		}
	}
	return "", fmt.Errorf("%s is not a type", yamlnode.Quote(text))
}

// typeHint suggests a type for a type name of another language.
func typeHint(text string) string {
	names := map[string]string{
		"str": "string", "text": "string", "boolean": "bool", "int": "number", "integer": "number", "float": "number",
		"double": "number", "array": "list", "set": "list", "tuple": "list", "object": "map", "dict": "map",
	}
	name := strings.ToLower(text)
	switch {
	case names[name] != "":
		return fmt.Sprintf("Write %q.", names[name])
	case name == "secret" || name == "password":
		return `Write "type: string" and "sensitive: true".`
	}
	return yamlnode.DidYouMean(text, "types", []string{"string", "number", "bool", "any", "list", "map", "list(string)", "map(string)"})
}

// outer splits a type such as list(string) into list and string. elem is Any if the type has no element type.
func (t Type) outer() (outer, elem Type) {
	name, rest, found := strings.Cut(string(t), "(")
	if !found {
		return t, Any
	}
	return Type(name), Type(strings.TrimSuffix(rest, ")"))
}

// Check returns an error if value, a JSON value, does not match the type. The error names the place inside value and
// the type at this place. The error never holds the value, which may be secret.
func (t Type) Check(value any) error { return t.check(value, "") }

func (t Type) check(value any, where string) error {
	outer, elem := t.outer()
	at := func() string {
		if where == "" {
			return ""
		}
		return " at " + where
	}
	wrong := func() error { return fmt.Errorf("wants a %s, got %s%s", t, yamlnode.Describe(value), at()) }
	switch outer {
	case Any:
		return nil
	case String:
		if _, ok := value.(string); !ok {
			return wrong()
		}
	case Number:
		switch value.(type) {
		case json.Number, float64, int, int64, uint64:
		default:
			return wrong()
		}
	case Bool:
		if _, ok := value.(bool); !ok {
			return wrong()
		}
	case List:
		list, ok := value.([]any)
		if !ok {
			return wrong()
		}
		for i, item := range list {
			if err := elem.check(item, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case Map:
		fields, ok := value.(map[string]any)
		if !ok {
			return wrong()
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if err := elem.check(fields[key], fmt.Sprintf("%s[%s]", where, yamlnode.Quote(key))); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s is not a type", yamlnode.Quote(string(t)))
	}
	return nil
}

// FromText reads a value of the type from one command-line argument: the text itself for string, "3" or "true" for
// number or bool, JSON for list or map. For any it reads JSON, or takes the text if the text is not JSON.
func (t Type) FromText(text string) (any, error) {
	outer, _ := t.outer()
	switch outer {
	case String:
		return text, nil
	case Number:
		n, err := yamlnode.CanonicalNumber(text)
		if err != nil {
			return nil, errors.New("wants a number") // the error does not contain the text, because the text may be secret
		}
		return n, nil
	case Bool:
		if text != "true" && text != "false" {
			return nil, errors.New("wants true or false")
		}
		return text == "true", nil
	}
	value, err := decodeJSON(text)
	if err != nil {
		if outer == Any {
			return text, nil
		}
		return nil, fmt.Errorf("wants a %s as JSON, such as %s", t, example(outer))
	}
	if err := t.Check(value); err != nil {
		return nil, err
	}
	return value, nil
}

func example(t Type) string {
	if t == Map {
		return `{"key":"value"}`
	}
	return `["a","b"]`
}

// decodeJSON reads exactly one JSON value.
func decodeJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return yamlnode.Normalize(value)
}
