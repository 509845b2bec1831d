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

// form is what a string looks like that is taken.
type form struct {
	pattern string // a regular expression, with its anchors
	most    int    // bytes; 0: the pattern bounds it, or the field
	enum    []any  // in place of a pattern; nil: any of the pattern
}

// formOf returns the form of the tags `form`, of a string or of those in a list or
// object, and `keys`, of an object's. Each pattern is the one by which its package
// checks. Only the documents have them: a use case that refuses a name says what
// a name is, which "does not match" does not.
func formOf(name string) form {
	f, ok := map[string]form{
		"name":               {pattern: fairlead.NamePattern},
		"name-or-none":       {pattern: `^$|` + fairlead.NamePattern},
		"group":              {pattern: placement.PathPattern},
		"group-below":        {pattern: placement.BelowPattern},
		"matched-group":      {pattern: placement.GroupPattern},
		"label-key":          {pattern: placement.KeyPattern},
		"label-value":        {pattern: placement.ValuePattern},
		"asked-value":        {pattern: placement.AskedPattern, most: placement.MaxLabelLen},
		"variable":           {pattern: control.VariablePattern},
		"identifier":         {pattern: identifierPattern},
		"identifier-or-none": {pattern: `^$|` + identifierPattern},
		"text":               {pattern: textPattern},
		"cursor":             {pattern: cursorPattern},
		"digest":             {pattern: control.DigestPattern},
		"version":            {pattern: control.VersionPattern},
		"image":              {pattern: `^$|` + control.ImagePattern},
		"aws-account":        {pattern: awsiam.AccountPattern},
		"webhook-url":        {pattern: control.WebhookURLPattern},
		"webhook-event":      {pattern: control.WebhookEventPattern, most: control.MaxWebhookEvent},
		"cause":              {enum: causes()},
	}[name]
	if !ok {
		panic("api: no form is called " + name)
	}
	return f
}

// causes are the deaths of a step that an agent reports.
func causes() (out []any) {
	for _, c := range fairlead.Causes() {
		out = append(out, string(c))
	}
	return out
}

// identifierPattern is the regular expression of identifiers: no other are given
// out, so what one of another form names is not found.
const identifierPattern = `^[0-9A-Za-z_-]+$`

// describeForms says in the document what form the input of an operation has.
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

// describeFields does the same of what is in a body.
func describeFields(r huma.Registry, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	s := r.SchemaFromRef(r.Schema(t, true, "").Ref)
	if s == nil {
		return // a type of its own, such as time.Time
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

// describeForm gives a string its form, or those in a list or object, and the keys
// of an object theirs; "": none.
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
