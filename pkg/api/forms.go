package api

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/placement"
)

// form describes the strings that a field accepts.
type form struct {
	pattern string // a regular expression, with its anchors
	most    int    // longest length in bytes; 0: the pattern or the field limits it
	enum    []any  // the accepted values, if there is no pattern
}

// formOf returns the form that a struct tag names. The tag `form` describes a string,
// or the strings in a list or object. The tag `keys` describes the keys of an object.
// Each pattern comes from the package that checks the value. The patterns are only in
// the documents. Package control checks the values, because its messages explain more
// than "does not match".
func formOf(name string) form {
	f, ok := map[string]form{
		"name":                 {pattern: fairlead.NamePattern},
		"name-or-none":         {pattern: `^$|` + fairlead.NamePattern},
		"group":                {pattern: placement.PathPattern},
		"group-below":          {pattern: placement.BelowPattern},
		"matched-group":        {pattern: placement.GroupPattern},
		"label-key":            {pattern: placement.KeyPattern},
		"label-value":          {pattern: placement.ValuePattern},
		"asked-value":          {pattern: placement.AskedPattern, most: placement.MaxLabelLen},
		"variable":             {pattern: control.VariablePattern},
		"email":                {pattern: control.EmailPattern},
		"user":                 {pattern: userPattern},
		"identifier":           {pattern: identifierPattern},
		"identifier-or-none":   {pattern: `^$|` + identifierPattern},
		"text":                 {pattern: textPattern},
		"cursor":               {pattern: cursorPattern},
		"digest":               {pattern: control.DigestPattern},
		"version-name":         {pattern: fairlead.VersionNamePattern},
		"version-name-or-none": {pattern: `^$|` + fairlead.VersionNamePattern},
		"version":              {pattern: control.VersionPattern},
		"image":                {pattern: `^$|` + control.ImagePattern},
		"aws-account":          {pattern: awsiam.AccountPattern},
		"webhook-url":          {pattern: control.WebhookURLPattern},
		"webhook-event":        {pattern: control.WebhookEventPattern, most: control.MaxWebhookEvent},
		"cause":                {enum: causes()},
	}[name]
	if !ok {
		panic("api: no form is called " + name)
	}
	return f
}

// causes returns the death reasons that an agent reports of a step.
func causes() (out []any) {
	for _, c := range fairlead.Causes() {
		out = append(out, string(c))
	}
	return out
}

// identifierPattern is the regular expression of all identifiers that the control
// plane makes. An identifier of another form is answered with "not found".
const identifierPattern = `^[0-9A-Za-z_-]+$`

// describeForms adds the forms of an operation's input to the document.
func describeForms(a huma.API, o *huma.Operation, input reflect.Type) {
	for _, f := range reflect.VisibleFields(input) {
		if name := f.Tag.Get("form"); name != "" {
			for _, p := range o.Parameters {
				if p.Name == f.Tag.Get(p.In) {
					describeForm(p.Schema, name, "")
				}
			}
		}
		if f.Name == "Body" {
			describeFields(a.OpenAPI().Components.Schemas, f.Type)
		}
	}
}

// describeFields adds the forms of the fields of a body to the document.
func describeFields(r huma.Registry, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	s := r.SchemaFromRef(r.Schema(t, true, "").Ref)
	if s == nil {
		return // a type with its own schema, for example time.Time
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := s.Properties[name]
		if property == nil {
			continue
		}
		describeForm(property, f.Tag.Get("form"), f.Tag.Get("keys"))
		describeFields(r, f.Type)
	}
}

// describeForm adds the form called values to a string, or to the strings in a list
// or object, and the form called keys to the keys of an object; "": none.
func describeForm(s *huma.Schema, values, keys string) {
	if keys != "" {
		s.Extensions = map[string]any{"propertyNames": formOf(keys).schema()}
	}
	if values == "" {
		return
	}
	switch s.Type {
	case huma.TypeArray:
		s = s.Items
	case huma.TypeObject:
		s = s.AdditionalProperties.(*huma.Schema)
	}
	if s.Type != huma.TypeString {
		panic(fmt.Sprintf("api: the form %s is of a string, not of type %s", values, s.Type))
	}
	of := formOf(values).schema()
	s.Pattern, s.Enum = of.Pattern, append(s.Enum, of.Enum...)
	if of.MaxLength != nil {
		s.MaxLength = of.MaxLength
	}
}

func (f form) schema() *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Pattern: f.pattern, Enum: f.enum}
	if f.most > 0 {
		s.MaxLength = &f.most
	}
	return s
}
