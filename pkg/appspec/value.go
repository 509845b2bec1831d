package appspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// Value is what a component's variable is set to: a literal, a reference that
// keeps the type of what it refers to, a text with references in it, or a list
// or map of values. The zero Value is null. Values are immutable.
//
// Its JSON is the way it is written in app.yaml: a reference is the string
// "${inputs.size}", and a literal "${" is "$${".
type Value struct {
	kind    kind
	literal any              // kindLiteral: a normalized JSON value without any reference
	ref     Reference        // kindReference
	items   []Value          // kindText: string literals and references; kindList: elements
	fields  map[string]Value // kindMap
}

type kind int

const (
	kindLiteral kind = iota
	kindReference
	kindText
	kindList
	kindMap
)

// Literal returns a value without references; no text in it is read as one. v
// is a JSON value.
func Literal(v any) (Value, error) {
	n, err := yamldoc.Normalize(v)
	if err != nil {
		return Value{}, err
	}
	return Value{literal: n}, nil
}

// References returns what the value refers to, in the order of the text (maps
// in the order of their keys), with repetitions.
func (v Value) References() []Reference {
	var refs []Reference
	v.walk(func(v Value) {
		if v.kind == kindReference {
			refs = append(refs, v.ref)
		}
	})
	return refs
}

// walk calls f for v and all values in it, outer before inner, keys in order.
func (v Value) walk(f func(Value)) {
	f(v)
	for _, item := range v.items {
		item.walk(f)
	}
	for _, key := range slices.Sorted(maps.Keys(v.fields)) {
		v.fields[key].walk(f)
	}
}

// Scope is what references are resolved against.
type Scope struct {
	// Inputs holds a value for every declared input, as CheckInputs returns it.
	Inputs map[string]Resolved
	// Install holds what is known of the install, by InstallNames.
	Install map[string]string
	// Outputs returns an output of a component that is deployed already.
	Outputs func(component, output string) (Resolved, bool)
}

// Resolved is a JSON value and whether it must be kept secret.
type Resolved struct {
	Value     any
	Sensitive bool
}

// UnresolvedError says that what a reference refers to is not there (yet).
type UnresolvedError struct {
	Reference Reference
	Reason    string // such as "component \"database\" has no output \"url\""
}

// Error names the reference and why it has no value.
func (e *UnresolvedError) Error() string {
	return fmt.Sprintf("%s cannot be resolved: %s", e.Reference.show(), e.Reason)
}

// Resolve returns the JSON value that v has in scope, a copy that the caller
// owns, with numbers as json.Number. It is sensitive as soon as one of the
// values in it is. The error is an *UnresolvedError if something is missing
// from scope, or else a *fairlead.Error of KindInvalid with the code
// "not-a-scalar", if a list, map or null would have to become text. Errors
// hold names, never values.
func (v Value) Resolve(s Scope) (value any, sensitive bool, err error) {
	switch v.kind {
	case kindReference:
		return v.ref.resolve(s)
	case kindText:
		var text strings.Builder
		for _, part := range v.items {
			if part.kind == kindLiteral {
				text.WriteString(part.literal.(string))
				continue
			}
			value, secret, err := part.ref.resolve(s)
			if err != nil {
				return nil, false, err
			}
			sensitive = sensitive || secret
			switch value := value.(type) {
			case string:
				text.WriteString(value)
			case json.Number:
				text.WriteString(string(value))
			case bool:
				text.WriteString(strconv.FormatBool(value))
			default:
				return nil, false, &fairlead.Error{
					Kind: fairlead.KindInvalid, Code: "not-a-scalar",
					Message: fmt.Sprintf("%s is %s, which cannot be part of a text", part.ref.show(), yamldoc.Describe(value)),
					Hint:    "Give the reference as the whole value, and build the text in the module.",
				}
			}
		}
		return text.String(), sensitive, nil
	case kindList:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			value, secret, err := item.Resolve(s)
			if err != nil {
				return nil, false, err
			}
			list[i], sensitive = value, sensitive || secret
		}
		return list, sensitive, nil
	case kindMap:
		fields := make(map[string]any, len(v.fields))
		for _, key := range slices.Sorted(maps.Keys(v.fields)) { // sorted, so that the same error comes first each time
			value, secret, err := v.fields[key].Resolve(s)
			if err != nil {
				return nil, false, err
			}
			fields[key], sensitive = value, sensitive || secret
		}
		return fields, sensitive, nil
	default:
		value, err := yamldoc.Normalize(v.literal)
		return value, false, err
	}
}

// resolve looks the reference up and follows its path.
func (r Reference) resolve(s Scope) (any, bool, error) {
	found, ok := Resolved{}, false
	missing := ""
	switch r.Namespace {
	case Inputs:
		found, ok = s.Inputs[r.Name]
		missing = fmt.Sprintf("input %q has no value", r.Name)
	case Install:
		var text string
		text, ok = s.Install[r.Name]
		found.Value = text
		missing = fmt.Sprintf("the install's %s is not known", r.Name)
	case Components:
		if s.Outputs != nil {
			found, ok = s.Outputs(r.Name, r.Output)
		}
		missing = fmt.Sprintf("component %q has no output %q", r.Name, r.Output)
	default:
		missing = "it is empty"
	}
	if !ok {
		return nil, false, &UnresolvedError{Reference: r, Reason: missing}
	}
	value, err := yamldoc.Normalize(found.Value)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", r.show(), err)
	}
	for i, step := range r.Path {
		ok := false
		switch container := value.(type) {
		case map[string]any:
			value, ok = container[step]
		case []any:
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(container) {
				value, ok = container[n], true
			}
		}
		if !ok {
			until := r
			until.Path = r.Path[:i]
			return nil, false, &UnresolvedError{Reference: r, Reason: fmt.Sprintf("%s is %s without %s", until.show(), yamldoc.Describe(value), yamldoc.Quote(step))}
		}
	}
	return value, found.Sensitive, nil
}

// String returns the value as compact JSON, as it is written in app.yaml.
func (v Value) String() string {
	data, err := v.MarshalJSON()
	if err != nil {
		return "null"
	}
	return string(data)
}

// MarshalJSON writes the value as it is written in app.yaml.
func (v Value) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v.source()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// source returns the JSON value that parseValue reads as v.
func (v Value) source() any {
	switch v.kind {
	case kindReference:
		return v.ref.String()
	case kindText:
		var text strings.Builder
		for _, part := range v.items {
			text.WriteString(part.source().(string))
		}
		return text.String()
	case kindList:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			list[i] = item.source()
		}
		return list
	case kindMap:
		fields := make(map[string]any, len(v.fields))
		for key, item := range v.fields {
			fields[key] = item.source()
		}
		return fields
	default:
		return escaped(v.literal)
	}
}

// escaped returns a literal in which no text reads as a reference.
func escaped(literal any) any {
	switch v := literal.(type) {
	case string:
		return strings.ReplaceAll(v, "${", "$${")
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = escaped(item)
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(v))
		for key, item := range v {
			fields[key] = escaped(item)
		}
		return fields
	default:
		return v
	}
}

// UnmarshalJSON reads what MarshalJSON wrote, and any JSON that could stand in
// app.yaml.
func (v *Value) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var raw any
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	raw, err := yamldoc.Normalize(raw)
	if err != nil {
		return err
	}
	parsed, err := parseValue(raw)
	if err != nil {
		return err
	}
	*v = parsed
	return nil
}

// parseValue reads a normalized JSON value as app.yaml writes it. It reports
// the first error; the reader of app.yaml, which reports all, goes through the
// nodes itself.
func parseValue(raw any) (Value, error) {
	switch raw := raw.(type) {
	case string:
		v, errs := parseText(raw, func(Reference, int) {})
		if len(errs) > 0 {
			return Value{}, fmt.Errorf("%s: %s", yamldoc.Quote(raw), errs[0].message)
		}
		return v, nil
	case []any:
		items := make([]Value, len(raw))
		for i, item := range raw {
			v, err := parseValue(item)
			if err != nil {
				return Value{}, err
			}
			items[i] = v
		}
		return listOf(items), nil
	case map[string]any:
		fields := make(map[string]Value, len(raw))
		for key, item := range raw {
			if strings.Contains(key, "${") {
				return Value{}, errors.New("a key cannot hold a reference: " + yamldoc.Quote(key))
			}
			v, err := parseValue(item)
			if err != nil {
				return Value{}, err
			}
			fields[key] = v
		}
		return mapOf(fields), nil
	default:
		return Value{literal: raw}, nil
	}
}

// listOf returns the list of items, as one literal where no item refers to
// anything: each value has one tree.
func listOf(items []Value) Value {
	list := make([]any, len(items))
	for i, item := range items {
		if item.kind != kindLiteral {
			return Value{kind: kindList, items: items}
		}
		list[i] = item.literal
	}
	return Value{literal: list}
}

// mapOf is listOf for maps.
func mapOf(fields map[string]Value) Value {
	literals := make(map[string]any, len(fields))
	for key, item := range fields {
		if item.kind != kindLiteral {
			return Value{kind: kindMap, fields: fields}
		}
		literals[key] = item.literal
	}
	return Value{literal: literals}
}
